"""What a run of `extract_diffusion_features.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from models.embedding.settings import ClusterSettings
from models.networks.conventions import Scaling, add_scaling
from models.teacher.teachers import TeacherSettings
from utils.args import POSITIVE_INT, Parser
from utils.settings import add_settings, setting
from utils.stage import Stage, add_stage


@dataclass(frozen=True, kw_only=True)
class TeacherStage(Stage):
    """A teacher's vectors of all images: who makes them, with which weights and scaling of images, and where."""

    teacher: TeacherSettings
    encoder_weights: Path | None
    scaling: Scaling
    guidance_path: Path = setting(Path("guidance"), "folder for the features", Path, heading="output")
    batch_size: int = setting(32, "passes of the denoiser at once", POSITIVE_INT)

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        TeacherSettings.add_arguments(parser)
        add_settings(parser, ClusterSettings, "model", {"encoder_weights": ""})
        add_scaling(parser.group("model"), "features", "the network of --features")
        super().add_arguments(parser)
        add_stage(parser, "continue an interrupted run with these arguments")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the values of these arguments."""
        return super().from_config(config, scaling=Scaling.of(config, "features"), **others)
