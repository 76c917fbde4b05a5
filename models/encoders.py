"""Image encoders: images in, a feature vector out, with skip connections where the encoder has them.

Each takes images (B, 3, S, S) in [0, 1], applies its own normalisation, and returns the features
(B, `out_features`) and the list of its skip maps at strides 2, 4, …, finest first (none for the paper's encoders).
One entry in `ENCODERS` is all that another encoder needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from models.decoders import PAPER_STEM, PAPER_WIDTHS
from models.layers import NORMS, conv_block, normalisation
from utils.errors import UserError

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_CENTRED = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


class Encoder(nn.Module):
    """A backbone that maps normalised images to feature vectors, without skip connections."""

    skip_channels: tuple[int, ...] = ()
    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, out_features: int, statistics: tuple) -> None:
        super().__init__()
        self.backbone, self.out_features = backbone, out_features
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in statistics)
        # Constants of the input, not weights: they are neither saved nor averaged.
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def take_images_as_they_are(self) -> None:
        """Leave out the normalisation, as the published code does, whose CLIP sees colours that it was not made for."""
        self.mean.zero_()
        self.std.fill_(1.0)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features (B, out_features) of images (B, 3, S, S) in [0, 1], and no skip maps."""
        return self.backbone((images - self.mean) / self.std), []


class TinyEncoder(Encoder):
    """Four 3x3 convolutions with stride 2, for small images on a CPU; all maps but the last are skip maps.

    It has no layer at full resolution: on a CPU such a layer costs as much as all others together.
    """

    skip_channels = (16, 32, 48)

    def __init__(self, image_size: int, norm: str, out_features: int = 128) -> None:
        widths = (3, *self.skip_channels, 64)
        blocks = [conv_block(a, b, norm, stride=2) for a, b in pairwise(widths)]
        super().__init__(nn.Sequential(*blocks), out_features, _CENTRED)
        self.project = nn.Linear(widths[-1] * (image_size // 16) ** 2, out_features)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features (B, out_features) and the maps at strides 2, 4 and 8."""
        maps = [(images - self.mean) / self.std]
        for block in self.backbone.children():
            maps.append(block(maps[-1]))
        return self.project(maps[-1].flatten(1)), maps[1:-1]


@dataclass(frozen=True)
class EncoderEntry:
    """How to build an encoder: `build(image_size, pretrained, norm)`.

    `weight_norms` are the norms that its published weights admit, none where there are no weights.
    `stem` and `widths` are the decoder's channels, by default the paper's.
    """

    build: Callable[[int, bool, str], Encoder]
    image_size: int
    weight_norms: tuple[str, ...] = ()
    stem: tuple[int, ...] = PAPER_STEM
    widths: tuple[int, ...] = PAPER_WIDTHS


def _tiny(image_size: int, pretrained: bool, norm: str) -> Encoder:
    return TinyEncoder(image_size, norm)


def _resnet(name: str, out_features: int) -> Callable[[int, bool, str], Encoder]:
    def build(image_size: int, pretrained: bool, norm: str) -> Encoder:
        from torchvision.models import get_model  # imported where it is needed: it takes a second

        weights = "DEFAULT" if pretrained else None
        network = get_model(name, weights=weights, norm_layer=lambda channels: normalisation(norm, channels))
        network.fc = nn.Identity()
        return Encoder(network, out_features, _IMAGENET)

    return build


def _clip_vit_b32(image_size: int, pretrained: bool, norm: str) -> Encoder:
    try:
        import open_clip
    except ImportError as error:
        raise UserError("--encoder clip_vit_b32 needs the package open_clip_torch; install requirements.txt") from error
    name, tag = "ViT-B-32-quickgelu", "openai" if pretrained else None
    logging.disable(logging.ERROR)  # it logs a line for every try of a download, and one for random weights
    try:
        network = open_clip.create_model(name, pretrained=tag, force_image_size=image_size, load_weights=pretrained)
    finally:
        logging.disable(logging.NOTSET)
    return Encoder(network.visual.float(), 512, _CLIP)  # the text tower is not needed


ENCODERS: dict[str, EncoderEntry] = {
    "tiny": EncoderEntry(_tiny, 64, stem=(64, 64, 32), widths=(32, 16, 8, 8)),
    "resnet18": EncoderEntry(_resnet("resnet18", 512), 224, weight_norms=("batch",)),
    "resnet50": EncoderEntry(_resnet("resnet50", 2048), 224, weight_norms=("batch",)),
    # CLIP normalises by layers, so that `norm` concerns its decoder alone.
    "clip_vit_b32": EncoderEntry(_clip_vit_b32, 224, weight_norms=NORMS),
}


def build_encoder(name: str, image_size: int, pretrained: bool, norm: str) -> Encoder:
    """Build an encoder by name; `pretrained` asks for its published weights.

    Raises `UserError` where the weights do not exist, do not fit the norm, or cannot be had.
    """
    if name not in ENCODERS:
        raise UserError(f"unknown encoder {name!r}; --encoder takes one of {', '.join(ENCODERS)}")
    entry = ENCODERS[name]
    if pretrained and norm not in entry.weight_norms:
        need = f"need --norm {entry.weight_norms[0]}" if entry.weight_norms else "do not exist"
        raise UserError(f"pretrained weights of --encoder {name} {need}; or give --pretrained False")
    try:
        return entry.build(image_size, pretrained, norm)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise UserError(
            f"the pretrained weights of {name} cannot be had ({str(error).split('. ')[0]}); "
            "connect to the internet for the first run, or give --pretrained False"
        ) from error
