"""What a run of `extract_embeddings.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from models.embedding.settings import ClusterSettings
from models.networks.conventions import Scaling, add_scaling
from models.settings import ModelName
from network.partition.non_participating import add_whose
from utils.args import Parser
from utils.stage import Stage, add_shared, add_stage


@dataclass(frozen=True, kw_only=True)
class ClusterStage(Stage):
    """Clusters of a task: whose model, of which features, how many; `scaling` is of a network's images."""

    model: ModelName
    clusters: ClusterSettings
    scaling: Scaling

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ModelName.add_arguments(parser)
        add_shared(parser, "init_model_dir", "load_model_dir")
        ClusterSettings.add_arguments(parser)
        add_scaling(parser.group("clusters"), "features", "the network of --features")
        add_whose(parser, "clusters", "cluster_clients", "clusters are found in")
        add_shared(parser, "assignment_files_path")
        add_stage(parser, "continue an interrupted run with these arguments")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the values of these arguments."""
        return super().from_config(config, scaling=Scaling.of(config, "features"), **others)
