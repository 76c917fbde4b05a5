"""The settings of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from datasets.classes import ClassSet

_OPTIONAL = ("weights", "decoder_channels", "encoder_norm")


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of; it is saved with the weights, so that later stages rebuild the same network.

    `decoder` is empty where `models.networks.decoders.with_decoder` is to choose, before anything is built. `classes`
    are those of a categorical task, from the table of the images that the model is for. `weights` says which file the
    encoder started from, if any. `decoder_channels` are a U-Net's, by default smp's. `encoder_norm` is the encoder's
    normalisation where it is not `norm`.
    """

    task: str
    encoder: str = "tiny"
    image_size: int = 64
    norm: str = "batch"
    use_cbam: bool = False
    depth_target: str = "scaled"
    published_quirks: bool = False
    classes: ClassSet | None = None
    decoder: str = ""
    bottleneck: int | None = None
    weights: dict[str, Any] | None = field(default=None, hash=False)
    decoder_channels: tuple[int, ...] | None = None
    encoder_norm: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder_channels", self.decoder_channels and tuple(self.decoder_channels))

    @property
    def norm_of_encoder(self) -> str:
        """The encoder's normalisation, which `--norm` chooses too where `encoder_norm` says no other."""
        return self.encoder_norm or self.norm

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ModelConfig:
        """From what JSON makes of one; TypeError or ValueError where it is none."""
        config = cls(**content)
        return config if config.classes is None else replace(config, classes=ClassSet.of(content["classes"]))

    def said(self) -> dict[str, Any]:
        """What `of` takes, without a start from a file, widths and a normalisation of its own where there are none."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value}
