"""Image encoders: images in, a vector of each out, and maps at several scales where the network has them.

Each takes images (B, 3, S, S) in [0, 1], applies its own normalisation, and returns the vectors
(B, `out_features`) and the list of its maps at strides 2, 4, …, finest first. One entry in `ENCODERS` is all that
another encoder needs; `timm:<name>` is any network of timm.
"""

from __future__ import annotations

import logging
import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from models.networks.conventions import LOCAL, OWN_SCALING, Scaling
from models.networks.layers import PAPER_STEM, PAPER_WIDTHS, with_group_norms
from models.networks.published import LITE0, LITE0_OF_TIMM, load_lite0
from models.networks.weights import EncoderWeights, absolute, file_in, local_config, timm_filter
from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models.networks.backbones import Encoder

TIMM = "timm:"


@dataclass(frozen=True)
class EncoderRequest:
    """What an encoder is built for.

    `weights` are those of a file, in place of published ones. `most_stride` is given where a decoder takes the maps:
    none of them has a larger one. The vector is the deepest map's mean then, and the encoder has no layers that only
    another would need. `scaling` is of images, where it is not the encoder's own. The encoder sees as many `frames` at
    once, see `models/networks/frames.py`.
    """

    image_size: int
    pretrained: bool
    norm: str
    most_stride: int | None = None
    weights: EncoderWeights | None = None
    scaling: Scaling = OWN_SCALING
    frames: int = 1
    frames_apart: bool = False

    def put_weights(self, network: nn.Module, adapt: Callable[..., Any] | None = None) -> None:
        """Those of the file, if any, into a network that has published names; see `EncoderWeights.put_into`."""
        if self.weights and not self.weights.of_a_model_of_ours:
            self.weights.put_into(network, adapt)


@dataclass(frozen=True)
class EncoderEntry:
    """How to build an encoder, and what goes with it by default.

    `has_weights` says whether there are published ones. `decoder` is its own one. Of the Taskonomy decoder, `stem` and
    `widths` are the channels, by default the paper's, and `n_skips` how many of the maps it takes, from the finest on;
    `pyramid` are the detector's channels, and the convolutions of its towers. `version` is raised by one where the
    encoder's numbers change.
    """

    build: Callable[[EncoderRequest], Encoder]
    image_size: int = 224
    has_weights: bool = False
    decoder: str = "taskonomy"
    stem: tuple[int, ...] = PAPER_STEM
    widths: tuple[int, ...] = PAPER_WIDTHS
    n_skips: int = 0
    pyramid: tuple[int, int] = (64, 4)
    version: int = 1


def _tiny(request: EncoderRequest) -> Encoder:
    from models.networks.backbones import TinyEncoder

    return TinyEncoder(request.image_size, request.norm)


def _lenet(request: EncoderRequest) -> Encoder:
    from models.networks.backbones import LeNet

    return LeNet(request.image_size)


def _resnet10(request: EncoderRequest) -> Encoder:
    """For small images: a 3x3 stem without stride or pooling, and one block per stage."""
    from torch import nn
    from torchvision.models.resnet import BasicBlock, ResNet

    from models.networks.backbones import CENTRED, StagedEncoder

    net = ResNet(BasicBlock, [1, 1, 1, 1])
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    request.put_weights(net)
    first = nn.Sequential(net.conv1, net.bn1, net.relu, net.layer1, net.layer2)
    return StagedEncoder([first, net.layer3, net.layer4], (128, 256, 512), CENTRED)


def _resnet(name: str, *map_channels: int) -> Callable[[EncoderRequest], Encoder]:
    def build(request: EncoderRequest) -> Encoder:
        """Torchvision's network of this name, cut into its stem and four layers."""
        from torch import nn

        from models.networks.backbones import IMAGENET, StagedEncoder

        net = _of_torchvision(name, request)
        stem, first = nn.Sequential(net.conv1, net.bn1, net.relu), nn.Sequential(net.maxpool, net.layer1)
        return StagedEncoder([stem, first, net.layer2, net.layer3, net.layer4], map_channels, IMAGENET)

    return build


def _mobile(
    name: str, ends: Sequence[int], *map_channels: int, **settings: float
) -> Callable[[EncoderRequest], Encoder]:
    """A network of torchvision whose stages end before these of its blocks; its dropout, which is random, is left out.

    What stands between pooling and the classifier is part of the vector.
    """

    def build(request: EncoderRequest) -> Encoder:
        """The network as wanted, in these stages."""
        from torch import nn

        from models.networks.backbones import IMAGENET, StagedEncoder

        net = _of_torchvision(name, request, **settings)
        blocks = list(net.features)
        stages = [nn.Sequential(*blocks[a:b]) for a, b in pairwise((0, *ends, len(blocks)))]
        *between, classifier = (layer for layer in net.classifier if not isinstance(layer, nn.Dropout))
        vector = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *between)
        return StagedEncoder(stages, map_channels, IMAGENET, vector, classifier.in_features)

    return build


def _of_torchvision(name: str, request: EncoderRequest, **settings: float) -> Any:
    from torchvision.models import get_model

    network = get_model(name, weights="DEFAULT" if request.pretrained else None, **settings)
    request.put_weights(network)
    return network


def _clip_vit_b32(request: EncoderRequest) -> Encoder:
    from models.networks.backbones import CLIP, Encoder

    try:
        import open_clip
    except ImportError as error:
        raise UserError("--encoder clip_vit_b32 needs the package open_clip_torch; install requirements.txt") from error
    name, tag = "ViT-B-32-quickgelu", "openai" if request.pretrained else None
    with quiet():
        network = open_clip.create_model(
            name, pretrained=tag, force_image_size=request.image_size, load_weights=request.pretrained
        )
    request.put_weights(network.visual, _resized_clip)
    return Encoder(network.visual.float(), 512, CLIP)  # the text tower is not needed


def _resized_clip(tensors: Mapping[str, Tensor], visual: nn.Module) -> dict[str, Tensor]:
    """What was saved of CLIP's visual tower, with the positions of this one's image size."""
    from open_clip.model import resize_pos_embed

    named = {f"visual.{key}": tensor for key, tensor in tensors.items()}
    resize_pos_embed(named, SimpleNamespace(visual=visual))
    return {key.removeprefix("visual."): tensor for key, tensor in named.items()}


def _timm(name: str, load: Callable[[nn.Module], None] | None = None) -> Callable[[EncoderRequest], Encoder]:
    """A network of timm; `load` gives it its published weights where they are not timm's own."""

    def build(request: EncoderRequest) -> Encoder:
        """Timm's network of this name, at the wanted size."""
        import timm  # takes seconds to import

        from models.networks.backbones import TimmEncoder

        settings: dict[str, Any] = {}
        architecture = local_config(name)[1] if name.startswith(LOCAL) else name
        # Transformers; others take images of any size.
        if getattr(timm.get_pretrained_cfg(architecture), "fixed_input_size", False):
            settings["img_size"] = request.image_size
        if (request.most_stride or 32) < 32:
            settings["output_stride"] = request.most_stride
        try:
            with quiet():
                of_timm = request.pretrained and load is None
                network = timm.create_model(name, pretrained=of_timm, num_classes=0, **settings)
        except TypeError as error:
            raise UserError(
                f"--encoder {TIMM}{name} cannot be built for these images or this decoder ({error}); give another"
            ) from error
        if request.pretrained and load:
            load(network)
        request.put_weights(network, timm_filter(network))
        return TimmEncoder(network)

    return build


@contextmanager
def quiet() -> Iterator[None]:
    """Without the line that a library logs for every try of a download, or for random weights."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


ENCODERS: dict[str, EncoderEntry] = {
    "tiny": EncoderEntry(_tiny, 64, stem=(64, 64, 32), widths=(32, 16, 8, 8), n_skips=3, pyramid=(32, 2)),
    "lenet": EncoderEntry(_lenet, 32, decoder="linear"),
    "resnet10": EncoderEntry(_resnet10, 32, decoder="linear"),
    "resnet18": EncoderEntry(_resnet("resnet18", 64, 64, 128, 256, 512), has_weights=True),
    "resnet50": EncoderEntry(_resnet("resnet50", 64, 256, 512, 1024, 2048), has_weights=True),
    "resnet101": EncoderEntry(_resnet("resnet101", 64, 256, 512, 1024, 2048), has_weights=True),
    "mobilenet_v2": EncoderEntry(_mobile("mobilenet_v2", (2, 4, 7, 14), 16, 24, 32, 96, 1280), has_weights=True),
    "mobilenet_v3_large": EncoderEntry(
        _mobile("mobilenet_v3_large", (2, 4, 7, 13), 16, 24, 40, 112, 960), has_weights=True
    ),
    "efficientnet_b0": EncoderEntry(
        _mobile("efficientnet_b0", (2, 3, 4, 6), 16, 24, 40, 112, 1280, stochastic_depth_prob=0.0), has_weights=True
    ),
    LITE0: EncoderEntry(_timm(LITE0_OF_TIMM, load_lite0), has_weights=True),
    # Transformers normalise by layers, so that `norm` concerns their decoder alone.
    "vit_b16": EncoderEntry(_timm("vit_base_patch16_224"), has_weights=True),
    "clip_vit_b32": EncoderEntry(_clip_vit_b32, has_weights=True),
}


def encoder_name(text: str) -> str:
    """An argparse type: a name in `ENCODERS`, or `timm:` and the name of a network."""
    if text not in ENCODERS and not (text.startswith(TIMM) and len(text) > len(TIMM)):
        raise ArgumentTypeError(f"{text!r} is not one of {', '.join(ENCODERS)} and {TIMM}<name>")
    return absolute(text)


def encoder_entry(name: str) -> EncoderEntry:
    """The entry of an encoder, or one for a network of timm; UserError if there is none."""
    if name in ENCODERS:
        return ENCODERS[name]
    if not name.startswith(TIMM):
        raise UserError(f"unknown encoder {name!r}; --encoder takes one of {', '.join(ENCODERS)} and {TIMM}<name>")
    import timm

    network = name.removeprefix(TIMM)
    if network.startswith(LOCAL):
        local_config(network)
        return EncoderEntry(_timm(network), has_weights=True)
    if not timm.is_model(network):
        raise UserError(f"--encoder {name}: timm {timm.__version__} has no such network; see timm.list_models()")
    return EncoderEntry(_timm(network), has_weights=timm.is_model_pretrained(network))


def weights_for(name: str, pretrained: bool | None, file: Path | None) -> tuple[bool, EncoderWeights | None]:
    """Whether an encoder starts from its published weights, and otherwise those of a file, if any.

    `pretrained` is None where nobody has said; a folder of timm is read as the file in it. UserError where both are
    asked for, or the file cannot be read.
    """
    if file:
        if pretrained is not None:
            raise UserError("--encoder_weights takes the place of --pretrained; give one of the two")
        return False, EncoderWeights(file)
    if pretrained is None:
        pretrained = encoder_entry(name).has_weights
    if pretrained and name.startswith(TIMM + LOCAL):
        return False, EncoderWeights(file_in(name.removeprefix(TIMM)))
    return pretrained, None


def build_encoder(name: str, request: EncoderRequest) -> Encoder:
    """Build an encoder by name.

    Weights that were published for batch norm serve group norm, too: its scales and shifts are theirs. UserError where
    the weights do not exist, could not be downloaded or do not fit, or the encoder has no maps for a decoder that takes
    them.
    """
    import torch

    entry = encoder_entry(name)
    if request.pretrained and not entry.has_weights:
        raise UserError(f"pretrained weights of --encoder {name} do not exist; give --pretrained False")
    try:
        encoder = entry.build(request)
    except (OSError, RuntimeError, ValueError) as error:
        if not request.pretrained:
            raise
        raise UserError(
            f"the pretrained weights of {name} could not be downloaded ({str(error).split('. ')[0]}); "
            "connect to the internet for the first run, or give --pretrained False"
        ) from error
    for constant, values in request.scaling._asdict().items():
        if values:
            encoder.get_buffer(constant).view(3).copy_(torch.tensor(values))
    if request.most_stride:
        encoder.serve_maps(request.most_stride)
    if request.norm == "group":
        with_group_norms(encoder)
        _check_no_batch_norm(encoder, name)
    if request.weights:
        if not request.weights.was_put:
            request.weights.put_into(encoder)  # one without published names, or a file with ours
        request.weights.check(encoder, f"--encoder {name}")
    if request.frames > 1:
        from models.networks.frames import FramesApart, stack_frames

        return FramesApart(encoder, request.frames) if request.frames_apart else stack_frames(encoder, request.frames)
    return encoder


def _check_no_batch_norm(encoder: Encoder, name: str) -> None:
    """UserError where batch norms are left: those over vectors, for which there is no group norm."""
    from torch.nn.modules.batchnorm import _BatchNorm

    left = sum(isinstance(module, _BatchNorm) for module in encoder.modules())
    if left:
        raise UserError(
            f"group norm does not suit --encoder {name}: {left} of its batch norms are not over maps; "
            "give --norm batch, and no --batch_norm group"
        )


def check_pixels(size: int, seen: Tensor, network: nn.Module, network_name: str) -> str:
    """What to say of an image's pixels (S, S) bool that a network sees; empty where these are all.

    UserError, with the nearest sizes, where the network cuts images into patches and some do not fit: `wanted` is the
    argument that names it.
    """
    share = 1 - float(seen.double().mean())
    if not share:
        return ""
    step = math.lcm(next(filter(None, map(_patch, network.modules())), 1), 16)
    if step > 16 or size % step:
        below, above = size // step * step, -(-size // step) * step
        sizes = " or ".join(str(near) for near in (below, above) if near)
        raise UserError(
            f"{network_name} divides images into patches, and at {size} pixels {share:.0%} of the pixels are in none; "
            f"give --image_size {sizes}"
        )
    return f"{network_name} leaves out {share:.1%} of the pixels, at the borders"


def _patch(module: nn.Module) -> int:
    """The side of the patches of an image that a layer takes each by itself; 0 for other layers."""
    from torch import nn

    if not isinstance(module, nn.Conv2d) or module.in_channels not in (3, 6):  # of one photograph, or two
        return 0
    return module.kernel_size[0] if module.kernel_size == module.stride != (1, 1) else 0
