"""Image encoders: images in, a feature vector out, with skip connections where the encoder has them.

Each takes images (B, 3, S, S) in [0, 1], applies its own normalisation, and returns the features
(B, `out_features`) and the list of its skip maps at strides 2, 4, …, finest first (none for the paper's encoders).
One entry in `ENCODERS` is all that another encoder needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.layers import NORMS, PAPER_STEM, PAPER_WIDTHS, normalisation
from utils.errors import UserError
from utils.registry import Registry

if TYPE_CHECKING:
    from models.backbones import Encoder


@dataclass(frozen=True)
class EncoderEntry:
    """How to build an encoder: `build(image_size, pretrained, norm)`.

    `weight_norms` are the norms that its published weights admit, none where there are no weights.
    `stem` and `widths` are the decoder's channels, by default the paper's; `pyramid` the detector's, and the
    convolutions of its towers.
    """

    build: Callable[[int, bool, str], Encoder]
    image_size: int
    weight_norms: tuple[str, ...] = ()
    stem: tuple[int, ...] = PAPER_STEM
    widths: tuple[int, ...] = PAPER_WIDTHS
    pyramid: tuple[int, int] = (64, 4)


def _tiny(image_size: int, pretrained: bool, norm: str) -> Encoder:
    from models.backbones import TinyEncoder

    return TinyEncoder(image_size, norm)


def _resnet(name: str, out_features: int) -> Callable[[int, bool, str], Encoder]:
    def build(image_size: int, pretrained: bool, norm: str) -> Encoder:
        """The network without its last layer."""
        from torch import nn
        from torchvision.models import get_model

        from models.backbones import IMAGENET, Encoder

        weights = "DEFAULT" if pretrained else None
        network = get_model(name, weights=weights, norm_layer=lambda channels: normalisation(norm, channels))
        network.fc = nn.Identity()
        return Encoder(network, out_features, IMAGENET)

    return build


def _clip_vit_b32(image_size: int, pretrained: bool, norm: str) -> Encoder:
    from models.backbones import CLIP, Encoder

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
    return Encoder(network.visual.float(), 512, CLIP)  # the text tower is not needed


ENCODERS: Registry[EncoderEntry] = {
    "tiny": EncoderEntry(_tiny, 64, stem=(64, 64, 32), widths=(32, 16, 8, 8), pyramid=(32, 2)),
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
