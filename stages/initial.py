"""What a run of `model_initialization.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from models.networks.conventions import Scaling, add_scaling
from models.networks.settings import ModelSettings
from models.settings import ModelName
from utils.args import Parser
from utils.stage import Stage, add_shared


@dataclass(frozen=True, kw_only=True)
class InitialStage(Stage):
    """An initial model: its name, what it is made of, and how its encoder scales images."""

    model: ModelName
    settings: ModelSettings
    scaling: Scaling

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ModelName.add_arguments(parser)
        add_shared(parser, "init_model_dir")
        ModelSettings.add_arguments(parser)
        add_scaling(parser.group("model"), "image", "the encoder")
        add_shared(parser, "data_path", "result_path", "rand_seed")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the values of these arguments."""
        return super().from_config(config, scaling=Scaling.of(config, "image"), **others)
