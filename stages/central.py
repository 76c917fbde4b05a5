"""What a run of `train_centralized_task_model.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from models.central.settings import TrainSettings
from models.networks.parts import TRAINS
from models.settings import ModelName
from network.partition.non_participating import add_whose
from utils.args import Parser
from utils.arguments import add_arguments_of, with_defaults
from utils.settings import Configured, check_read
from utils.stage import Stage, add_shared, add_stage


@dataclass(frozen=True, kw_only=True)
class CentralStage(Stage):
    """A central training: its model, and how that is trained."""

    model: ModelName
    adapters: Configured
    training: TrainSettings

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ModelName.add_arguments(parser)
        add_shared(parser, "init_model_dir", "checkpoint_path")
        TrainSettings.add_arguments(parser)
        add_arguments_of(parser, "adapters", TRAINS, "train")
        add_whose(parser, "training", "train_clients", "the model learns from")
        add_stage(parser, "continue from the checkpoint", "epoch")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the defaults of these arguments; UserError for one that is not read."""
        given = with_defaults(config, TRAINS, "train")
        check_read(given, TrainSettings)
        return super().from_config(given, adapters=TRAINS[given["train"]].from_config(given), **others)
