"""The settings of embeddings and their clusters, which are arguments of `extract_embeddings.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from models.embedding.features import features_name
from utils.args import POSITIVE_INT, number
from utils.settings import Settings, setting


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """Of which features clusters are made, and how many."""

    heading: ClassVar[str] = "clusters"

    from_checkpoint: bool = setting(False, "take the last checkpoint instead of the best model", bool, heading="model")
    features: str = setting(
        "model",
        "what is clustered: model (the central model's embedding), target, image, efficientnet_lite0, timm:<name> "
        "or random:<name>; all but the first need only the initial model, for its settings",
        features_name,
    )
    encoder_weights: Path | None = setting(
        None,
        "weights of --features timm:<name>, a safetensors file or state dict; default: timm's",
        Path,
        metavar="FILE",
    )
    n_clusters: int = setting(10, "number of clusters, the K of K-means", POSITIVE_INT)
    compare_n_clusters: Sequence[int] | None = setting(
        None,
        "to help choose K: also measure and draw these numbers of clusters",
        number(int, least=2),
        nargs="+",
        metavar="K",
    )
    cluster_threshold: float = setting(
        0.0, "leave out clusters with a smaller share of the images", number(float, least=0, most=1)
    )
    observe_performance: bool = setting(False, "also measure and draw the model's predictions", bool, heading="output")
    keep_embeddings: bool = setting(
        False, "keep the full embeddings of all images, not only their projection", bool, heading="output"
    )
