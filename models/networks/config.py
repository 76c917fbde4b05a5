"""The settings of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from datasets.classes import ClassSet
from models.networks.conventions import Scaling

_OPTIONAL = ("weights", "decoder_channels", "encoder_norm", "image_mean", "image_std", "frames_apart")
VERSIONS = "code_version"  # beside the settings in a file: those of encoder and decoder


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of; it is saved with the weights, so that later stages rebuild the same network.

    `decoder` is empty where `models.networks.decoders.with_decoder` is to choose, before anything is built. `classes`
    are those of a categorical task, from the table of the images that the model is for. `weights` says which file the
    encoder started from, if any. `decoder_channels` are a U-Net's, by default smp's. `encoder_norm` is the encoder's
    normalisation where it is not `norm`. `image_mean` and `image_std` are of red, green and blue, by which images are
    scaled where it is not by the file's or the encoder's. Of several photographs at once the encoder sees each by
    itself with `frames_apart`, and otherwise all of them stacked.
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
    image_mean: tuple[float, ...] | None = None
    image_std: tuple[float, ...] | None = None
    frames_apart: bool = False

    def __post_init__(self) -> None:
        for name in ("decoder_channels", "image_mean", "image_std"):
            value = getattr(self, name)
            object.__setattr__(self, name, value and tuple(value))

    @property
    def scaling(self) -> Scaling:
        """How images are scaled where that is not the encoder's own way: as given, else as `weights` says."""
        return Scaling(self.image_mean, self.image_std).or_of(Scaling.of(self.weights or {}))

    @property
    def norm_of_encoder(self) -> str:
        """The encoder's normalisation, which `--norm` chooses too where `encoder_norm` says no other."""
        return self.encoder_norm or self.norm

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ModelConfig:
        """From what JSON makes of one; TypeError or ValueError where it is none."""
        config = cls(**content)
        return config if config.classes is None else replace(config, classes=ClassSet.of(content["classes"]))

    def record(self) -> dict[str, Any]:
        """What `of` takes, without what is optional where there is none."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value}


def config_from_metadata(metadata: Mapping[str, str] | None) -> tuple[ModelConfig, dict[str, int] | None]:
    """The settings in the metadata of a model's file, and the declared versions of encoder and decoder, if any.

    KeyError, TypeError or ValueError where it is no model of this project.
    """
    content = dict(json.loads((metadata or {})["config"]))
    versions = content.pop(VERSIONS, None)
    return ModelConfig.of(content), versions
