"""The settings of an initial model, which are arguments of `model_initialization.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from datasets.classes import ClassSet
from datasets.tasks import DEPTH_TARGETS
from models.networks.config import ModelConfig
from models.networks.conventions import Scaling
from models.networks.decoders import DECODERS
from models.networks.encoders import ENCODERS, TIMM, encoder_entry, encoder_name
from models.networks.layers import NORMS
from utils.args import POSITIVE_INT
from utils.settings import Settings, setting


@dataclass(frozen=True)
class ModelSettings(Settings):
    """What a model is to be made of; None leaves a setting to the encoder."""

    heading: ClassVar[str] = "model"

    encoder: str = setting(
        "tiny", f"image encoder: {', '.join(ENCODERS)}, or {TIMM}<name>; the paper's is clip_vit_b32", encoder_name
    )
    decoder: str | None = setting(
        None, "what makes the output; default: the encoder's own, mostly taskonomy", choices=DECODERS
    )
    bottleneck: int | None = setting(
        None, "linear: width of a layer before the classes; default: no such layer", POSITIVE_INT
    )
    decoder_channels: Sequence[int] | None = setting(
        None, "unet: channels at each size, the coarsest first; default: 256 128 64 32 16", POSITIVE_INT, nargs="+"
    )
    image_size: int | None = setting(
        None, "side of the image in pixels; default: the encoder's, mostly 224", POSITIVE_INT
    )
    pretrained: bool | None = setting(None, "start from the encoder's published weights; default: if it has any", bool)
    encoder_weights: Path | None = setting(
        None,
        "start the encoder from this safetensors file or state dict in place of published weights",
        Path,
        metavar="FILE",
    )
    norm: str = setting("batch", "normalisation of the convolutions", choices=NORMS)
    depth_target: str = setting("scaled", "what depth models predict", choices=DEPTH_TARGETS)
    published_quirks: bool = setting(False, "decode, mask and normalise as the published code (see README)", bool)

    def of_task(self, task: str, use_cbam: bool, classes: ClassSet | None, scaling: Scaling) -> ModelConfig:
        """What a task's model is made of, with these classes where it is categorical."""
        return ModelConfig(
            task,
            self.encoder,
            self.image_size or encoder_entry(self.encoder).image_size,
            self.norm,
            use_cbam,
            self.depth_target,
            self.published_quirks,
            classes,
            self.decoder or "",
            self.bottleneck,
            decoder_channels=tuple(self.decoder_channels) if self.decoder_channels else None,
            image_mean=scaling.mean,
            image_std=scaling.std,
        )
