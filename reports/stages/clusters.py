"""What there is to see of clusters: their images, what they explain of the target, and other numbers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from datasets.task_data import TaskData, evenly
from datasets.tasks import RGB
from models.central.evaluation import held_out_values
from models.embedding.embeddings import compare_n_clusters, tsne
from models.embedding.features import MODEL
from models.embedding.settings import ClusterSettings
from models.networks.task_model import TaskModel
from network.partition.explained import CEILING, CLASSES, CLUSTERS, target_explained
from reports.console import wrapped
from reports.figures import charts
from reports.figures.images import cluster_samples
from reports.figures.partitions import cluster_numbers
from reports.learnt import beats_trivial
from reports.stages.central import report_held_out
from utils.runs import Run

# Clusters that explain less than this share of the ceiling say little about the task.
ENOUGH = 0.5
_OF_A_CLUSTER = 12  # images in a figure
_POINTS = 5000  # of t-SNE, which takes many minutes for tens of thousands


def report(
    settings: ClusterSettings,
    run: Run,
    model: TaskModel,
    data: TaskData,
    accelerator: Accelerator,
    reduced: np.ndarray,
    assignments: np.ndarray,
    seed: int,
) -> dict[str, float]:
    """Print and draw what the clusters are; returns the share of the target's variance that groups explain, by name.

    `reduced` (N, D) are the embeddings that were clustered, `assignments` (N,) the images' clusters.
    """
    held_out = cache(partial(held_out_values, model, data, accelerator))  # for two reports, or none
    learnt = settings.features != MODEL or report_central(data.task.name, *(of["loss"] for of in held_out()))
    explained = target_explained(data, assignments, settings.n_clusters, seed)
    report_explained(data, explained, run.figures, advise=learnt)
    if settings.compare_n_clusters:
        rows = compare_n_clusters(reduced[data.train], sorted(set(settings.compare_n_clusters)), seed)
        report_n_clusters(rows, f"{data.task.label}: numbers of clusters", run.path)
    draw_clusters(data, reduced, assignments, seed, run.figures)
    if settings.observe_performance:
        report_held_out(model, data, *held_out(), run.figures)
    return explained


def draw_clusters(data: TaskData, reduced: np.ndarray, assignments: np.ndarray, seed: int, folder: Path) -> None:
    """t-SNE of the training images by cluster and, where they have classes, by class; sample images of each cluster.

    Of many images t-SNE is of 5000, evenly spaced.
    """
    used = data.train[assignments[data.train] >= 0]
    drawn, clusters = evenly(used, _POINTS), np.unique(assignments[used])
    points = tsne(reduced[drawn], seed)
    by_cluster = np.searchsorted(clusters, assignments[drawn])
    title = f"{data.task.label}: embeddings of the training images"
    charts.tsne(points, by_cluster, [str(k) for k in clusters], "cluster", title, folder / "tsne_clusters.png")
    classes = data.table.labels[drawn]
    if (classes >= 0).all():
        charts.tsne(points, classes, data.table.class_names, "class", title, folder / "tsne_classes.png")
    samples = []
    for k in clusters:
        # The table may have its images in the order of their classes.
        members = torch.from_numpy(evenly(used[assignments[used] == k], _OF_A_CLUSTER))
        samples.append(data.batch(members).images[:, : RGB.channels].cpu().numpy())
    cluster_samples(samples, f"{data.task.label}: training images of each cluster", folder / "cluster_samples.png")


def report_n_clusters(rows: Sequence[Mapping[str, float]], title: str, folder: Path) -> None:
    """Print the rows of `compare_n_clusters`, and save them as `n_clusters.csv` and as a figure."""
    table = pd.DataFrame(rows)
    table.to_csv(folder / "n_clusters.csv", index=False)
    print(table.to_string(index=False, float_format="%.3f"))
    cluster_numbers(rows, title, folder / "figures" / "n_clusters.png")


def report_clusters(
    title: str, embeddings: np.ndarray, reduced: np.ndarray, explained: float, assignments: np.ndarray
) -> None:
    """Print how many numbers embeddings (N, D) have, how much of their variance is kept, and the clusters' sizes.

    `reduced` are the embeddings in fewer dimensions, `explained` is the share of the variance that these keep, and
    `assignments` are the clusters of the training images, -1 for none.
    """
    components = f"{reduced.shape[1]} principal components keep {100 * explained:.1f} % of their variance"
    print(f"{title}: {embeddings.shape[1]} numbers per image; {components}")
    print(wrapped(f"training images per cluster: {' '.join(map(str, np.bincount(assignments[assignments >= 0])))}"))


def report_central(task: str, loss: float, trivial: float) -> bool:
    """Whether a central model's held-out loss is below the constant baseline's; prints what follows if it is not."""
    if not (learnt := beats_trivial([loss], [trivial]) is not False):
        print(
            wrapped(
                f"The central model of {task} has not learnt its task: its loss on global test, {loss:.4f}, is not "
                f"clearly below the constant baseline's, {trivial:.4f}, and clusters of its embeddings say little of "
                "the task. Train it longer or at another rate, or cluster --features target."
            )
        )
    return learnt


def report_explained(data: TaskData, explained: dict[str, float], folder: Path, advise: bool = True) -> None:
    """Print and draw the shares of `target_explained`, and warn where the clusters explain little of the target.

    The warning says what to do, unless that has been said.
    """
    clusters, ceiling = explained[CLUSTERS], explained[CEILING]
    beside = f", classes {explained[CLASSES]:.2f}" if CLASSES in explained else ""
    print(
        f"share of the target's variance explained: clusters {clusters:.2f}{beside}, K-means on the target itself "
        f"{ceiling:.2f}"
    )
    if clusters < ENOUGH * ceiling:
        advice = " Train the central model longer, or cluster --features target." * advise
        line = (
            "The clusters explain less than half of what is possible, so a partition by them hardly follows the task."
        )
        print(wrapped(line + advice))
    charts.shares(
        explained, f"{data.task.label}: the target's variance that groups explain", folder / "target_explained.png"
    )
