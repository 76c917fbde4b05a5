"""The picture of the method: `python -m reports.figures.method FOLDER` draws docs/images/method.png.

The photograph and its depth are the first of the folder, by default the built-in rooms; the points are made up, and the
clients' bars are what the project's own rule makes of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from datasets.packed import read_image
from datasets.stored import read_photograph
from datasets.table import read_table
from datasets.tasks import RGB, TASKS
from network.partition.heterogeneity import group_counts
from network.partition.rules import PARTITIONERS
from reports.figures.partitions import stack
from utils.figures import palette, save

PICTURE = Path(__file__).parents[2] / "docs/images/method.png"
_GROUPS, _EACH, _CLIENTS, _ALPHA = 5, 80, 8, 0.1
_COLOURS = palette(2 * _GROUPS)  # first those of the classes


def method(photograph: np.ndarray, depth: np.ndarray, path: Path) -> Path:
    """A network for the task, its embeddings by class and by cluster, and what clients get of either; returns the path.

    `photograph` (3, H, W) uint8 and `depth` (H, W) are an example of what the network sees and predicts.
    """
    clusters, classes, points = _made_up(np.random.default_rng(0))
    figure = Figure((11.5, 4.9), layout="constrained")
    [[network, right]] = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 3.6))
    _draw_network(network.subplots(3, 1, height_ratios=(1, 0.8, 1)), photograph, depth)
    axes = right.subplots(2, 3, width_ratios=(1, 1.2, 1.2))
    axes[0, 0].set_title("2. Cluster its embeddings", loc="left", fontsize="medium")
    groupings = {"class": (classes, _COLOURS[:_GROUPS]), "cluster": (clusters, _COLOURS[_GROUPS:])}
    titles = (f"3. The usual partition: class labels, Dirichlet, α = {_ALPHA}", "The partition here: clusters, same α")
    for row, title, (name, (groups, colours)) in zip(axes, titles, groupings.items(), strict=True):
        row[0].scatter(*points.T, s=7, c=[colours[group] for group in groups])
        row[0].set(xticks=[], yticks=[], xlabel=f"embeddings, by {name}")
        client_of = PARTITIONERS["equal_size"](groups, _CLIENTS, _ALPHA, np.random.default_rng(3))
        for axis, (what, (shown, of)) in zip(row[1:], groupings.items(), strict=True):
            stack(axis, group_counts(client_of, shown, _CLIENTS), colours=of)
            axis.set(xticks=[], yticks=[], xlabel=f"images of {_CLIENTS} clients, by {what}")
        row[1].set_title(title, loc="left", fontsize="medium")
    return save(figure, path)


def _made_up(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clusters and classes (N,), independent of each other, and points (N, 2) around the centres of the clusters."""
    clusters = np.repeat(np.arange(_GROUPS), _EACH)
    angles = 2 * np.pi * np.arange(_GROUPS) / _GROUPS
    centres = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return clusters, rng.permutation(clusters), centres[clusters] + rng.normal(0, 0.22, (len(clusters), 2))


def _draw_network(axes: tuple[Axes, Axes, Axes], photograph: np.ndarray, depth: np.ndarray) -> None:
    """From top to bottom: an image, encoder and decoder with the embedding between them, and the prediction."""
    axes[0].imshow(photograph.transpose(1, 2, 0))
    axes[0].set_title("1. Train a network for the task", fontsize="medium")
    axes[2].imshow(depth, cmap="viridis_r")
    axes[2].set_xlabel("depth, normals, edges, …")
    box = {"boxstyle": "round,pad=0.4", "facecolor": "#eeeeee", "edgecolor": "#888888"}
    embedding = box | {"facecolor": "#ffe0c0", "edgecolor": "#d55e00"}
    arrow = {"arrowstyle": "->", "color": "#555555"}
    for height, text, style in ((0.85, "encoder", box), (0.5, "embedding", embedding), (0.15, "decoder", box)):
        axes[1].text(0.5, height, text, ha="center", va="center", bbox=style)
    axes[1].annotate("", (1.0, 0.5), (0.72, 0.5), arrowprops=arrow)
    axes[1].set(xlim=(0, 1), ylim=(0, 1))
    axes[1].axis("off")
    for axis in (axes[0], axes[2]):
        axis.set(xticks=[], yticks=[])


def main(folder: Path) -> None:
    """Draw the picture with the first image of a folder that has depth."""
    table = read_table(folder)
    depth = TASKS["depth_euclidean"].encoding
    assert depth is not None
    photograph, target = table.files[RGB.domain][0], table.files[depth.domain][0]
    method(read_photograph(folder, photograph), read_image(folder, target, depth)[0], PICTURE)
    PICTURE.with_suffix(".pdf").unlink()  # pages show the PNG


if __name__ == "__main__":
    main(Path(*sys.argv[1:] or ["data/sample_rooms"]))
