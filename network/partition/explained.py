"""How much of a task's target the groups that are dealt explain: what a split can make clients differ in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from datasets.task_data import TaskData
from models.embeddings import fit_kmeans
from models.features import shrunk_target
from network.partition.heterogeneity import variance_share
from utils.plots import shares

CLUSTERS, CLASSES, CEILING = "clusters", "classes", "ceiling"
# Below so much of the ceiling, a split by the clusters says little about the task.
ENOUGH = 0.5
_CHUNK = 256


def share_explained(values: np.ndarray, groups: np.ndarray) -> float:
    """Share of the variance of `values` that the groups explain, corrected for chance: 0 for random groups on average.

    Eta squared, see `variance_share`, less what random groups of any sizes explain, (K - 1) / (n - 1), over the most
    that is left: epsilon squared of a one-way analysis of variance (Kelley 1935). At most 1; below 0 where groups
    explain less than chance would.

    Args:
        values: (N, D), a row per image.
        groups: (N,) each image's group, -1 for none; these images do not count.
    """
    names, group = np.unique(groups[groups >= 0], return_inverse=True)
    n_images, n_groups = len(group), len(names)
    if n_images <= n_groups:
        return 0.0
    of_group = np.full(len(groups), -1)
    of_group[groups >= 0] = group
    chance = (n_groups - 1) / (n_images - 1)
    return (variance_share(values, of_group, n_groups) - chance) / (1 - chance)


def shrunk_targets(data: TaskData, positions: np.ndarray) -> np.ndarray:
    """The `shrunk_target` of the images at `positions`, (n, C * 64) float32, or (n, C) for one class an image."""
    parts = torch.from_numpy(positions).split(_CHUNK)
    return np.concatenate([shrunk_target(data, data.batch(at)).cpu().numpy() for at in parts])


def target_explained(data: TaskData, clusters: np.ndarray, n_clusters: int, seed: int) -> dict[str, float]:
    """Shares of the variance of the training images' targets, in a grid of 8 by 8 cells, that groups explain.

    Of the `clusters` (N,), of the table's classes where it has any, and of K-means on these targets themselves with as
    many clusters: the ceiling. It is one of the same images, so that a model that has learnt the targets of its
    training images by heart reaches it, too.
    """
    targets = shrunk_targets(data, data.train)
    found = {CLUSTERS: share_explained(targets, clusters[data.train])}
    labels = data.table.labels[data.train]
    if (labels >= 0).any():
        found[CLASSES] = share_explained(targets, labels)
    return found | {CEILING: share_explained(targets, fit_kmeans(targets, n_clusters, seed).labels_)}


def report_explained(data: TaskData, found: dict[str, float], folder: Path) -> None:
    """Say and draw the shares of `target_explained`, with a warning where the clusters know little of their task."""
    clusters, ceiling = found[CLUSTERS], found[CEILING]
    beside = f", classes {found[CLASSES]:.2f}" if CLASSES in found else ""
    print(f"share of the target's variance explained: clusters {clusters:.2f}{beside}, K-means on the target itself "
          f"{ceiling:.2f}")  # fmt: skip
    if clusters < ENOUGH * ceiling:
        print("the clusters explain less than half of what is possible, so that a split by them follows the task "
              "little; train the central model longer, or cluster --features target")  # fmt: skip
    shares(found, f"{data.task.name}: target's variance that groups explain", folder / "target_explained.png")
