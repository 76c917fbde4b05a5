"""What a run of `test_fed.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from models.networks.parts import TRAINS
from models.settings import ModelName
from network.choices import add_choices, resolve_choices
from network.config import FederationConfig
from network.partition.settings import PartitionSettings, add_partition_settings, resolve_partition_settings
from network.settings import AdaptSettings, add_federation, resolve_federation
from utils.args import Parser
from utils.arguments import with_defaults
from utils.settings import Configured
from utils.stage import Stage, add_shared, add_stage


@dataclass(frozen=True, kw_only=True)
class FederationStage(Stage):
    """A federation of any clients: its model, and what clients and the server do."""

    model: ModelName
    adapters: Configured
    federation: FederationConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With what follows from these arguments; UserError where they do not go together."""
        given = with_defaults(resolve_choices(resolve_federation(config)), TRAINS, "train")
        adapters, federation = TRAINS[given["train"]].from_config(given), FederationConfig.from_config(given)
        return super().from_config(given | federation.record(), adapters=adapters, federation=federation, **others)


@dataclass(frozen=True, kw_only=True)
class FederatedStage(FederationStage):
    """A simulated federation: also what clients have, and what is done with those that never train."""

    partition: PartitionSettings
    adaptation: AdaptSettings

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ModelName.add_arguments(parser)
        add_shared(parser, "init_model_dir", "start_warm", "trained_model_dir")
        add_partition_settings(parser)
        add_federation(parser)
        add_choices(parser)
        add_shared(parser, "plot_distribution")
        add_stage(parser, "continue the newest run with these arguments", "round")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With what follows from these arguments; UserError where they do not go together."""
        return super().from_config(resolve_partition_settings(config), **others)
