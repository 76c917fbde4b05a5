"""Figures of pictures: what a model sees, should say and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from datasets.drawing import NO_VALUE, classes_of, colours_of, draw_flow_legend, draw_target
from datasets.tasks import COLOUR_WHEEL
from utils.figures import palette, save

if TYPE_CHECKING:
    from datasets.tasks import Task

_LABELLED = 8  # boxes of a picture that have room for their labels


def _limits(targets: np.ndarray, valid: np.ndarray) -> tuple[float, float]:
    """A colour range for values without a natural one: from the lowest, or 0, to nearly the highest that counts."""
    counted = targets[:, : valid.shape[1]][valid] if targets.ndim == valid.ndim else targets[:0]
    low, high = np.quantile(counted, (0.01, 0.99)) if counted.size else (0.0, 1.0)
    return min(0.0, float(low)), max(float(high), float(low) + 1e-6)


def predictions(
    task: Task, images: np.ndarray, targets: np.ndarray, valid: np.ndarray, outputs: np.ndarray, title: str, path: Path
) -> Path:
    """Input, target and prediction of each image, one image per column; of several photographs each has a row.

    Args:
        task: of the targets.
        images: (n, 3 F, S, S) in [0, 1].
        targets: (n, C, S, S) in the task's unit, or ids (n, S, S).
        valid: which pixels count, broadcastable to one channel of the targets.
        outputs: like `targets`.
        title: of the figure.
        path: where to save.
    """
    n, frames = len(images), images.shape[1] // 3
    figure = Figure((1.6 * n + 1.4, 1.6 * frames + 4), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(frames + 2, n, squeeze=False)
    shown = np.broadcast_to(valid, targets.shape if task.categorical else targets[:, :1].shape)
    is_flow = task.colormap == COLOUR_WHEEL
    limits = task.value_range or _limits(np.linalg.norm(targets, axis=1, keepdims=True) if is_flow else targets, shown)
    for column in range(n):
        for axis, photograph in zip(axes[:, column], np.split(images[column], frames), strict=False):
            axis.imshow(photograph.transpose(1, 2, 0))
            axis.set(xticks=[], yticks=[])
        image = draw_target(axes[-2, column], task, targets[column], shown[column], limits)
        draw_target(axes[-1, column], task, outputs[column], np.ones_like(shown[column]), limits)
    for row, label in enumerate(("input", *["next frame"] * (frames - 1), "target", "prediction")):
        axes[row, 0].set_ylabel(label)
    if task.categorical:
        named = zip(colours_of(task), classes_of(task).names, strict=True)
        handles = [Patch(facecolor=colour, edgecolor="gray", lw=0.5, label=name) for colour, name in named]
        figure.legend(handles=handles, loc="outside lower center", ncols=9, fontsize="small")
    elif is_flow:
        draw_flow_legend(axes[-1, -1].inset_axes((1.1, 0.1, 0.6, 0.6)), limits[1], task.unit)
    elif targets.shape[1] != 3:
        figure.colorbar(image, ax=axes[-2:, :], label=task.unit, shrink=0.8)
    return save(figure, path)


def detections(
    task: Task,
    images: np.ndarray,
    targets: Sequence[np.ndarray],
    predictions: Sequence[np.ndarray],
    title: str,
    path: Path,
    least_score: float = 0.3,
) -> Path:
    """Images with their true boxes, and below them with the detected ones as well, one image per column.

    A legend has the colours of the classes in them. The boxes of a picture have their names and scores beside them only
    where they are few, because on crowded ones labels would bury the boxes.

    Args:
        task: with classes.
        images: (n, 3, S, S) in [0, 1].
        targets: of each image (m, 5), left, top, right, bottom in pixels and class.
        predictions: of each image (k, 6), class, score and sides.
        title: of the figure.
        path: where to save.
        least_score: of the boxes that are drawn.
    """
    names, colours = classes_of(task).names, colours_of(task)
    figure = Figure((2.4 * len(images) + 0.4, 5.6), layout="constrained")
    figure.suptitle(f"{title}: boxes from a score of {least_score:g} on over the true ones (dotted)")
    axes = figure.subplots(2, len(images), squeeze=False)
    shown: set[int] = set()
    for column, (image, there, seen) in enumerate(zip(images, targets, predictions, strict=True)):
        for axis in axes[:, column]:
            axis.imshow(image.transpose(1, 2, 0))
            axis.set(xticks=[], yticks=[])
        drawn = seen[seen[:, 1] >= least_score][::-1]
        shown.update(int(label) for label in (*there[:, 4], *drawn[:, 0]))
        for *sides, label in there:
            name = names[int(label)] if len(there) <= _LABELLED else ""
            _draw_box(axes[0, column], sides, colours[int(label)], name)
            _draw_box(axes[1, column], sides, np.ones(3), "", linestyle=":")
        for label, score, *sides in drawn:
            name = f"{names[int(label)]} {score:.2f}" if len(drawn) <= _LABELLED else ""
            _draw_box(axes[1, column], sides, colours[int(label)], name)
    for row, label in enumerate(("target", "prediction")):
        axes[row, 0].set_ylabel(label)
    handles = [Patch(facecolor=colours[label], label=names[label]) for label in sorted(shown)]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(images), fontsize="small")
    return save(figure, path)


def _draw_box(axes: Any, sides: Sequence[float], colour: np.ndarray, text: str, linestyle: str = "-") -> None:
    """A box between sides in pixels, whose edges imshow puts half a pixel up and left."""
    left, top, right, bottom = (side - 0.5 for side in sides)
    box = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, lw=1.5, ls=linestyle)
    axes.add_patch(box)
    light = colour @ (0.3, 0.6, 0.1) > 0.6
    label = {"facecolor": colour, "edgecolor": "none", "pad": 0.8}
    if text:
        axes.text(
            left, top, text, fontsize=6, va="bottom", color="black" if light else "white", bbox=label, clip_on=True
        )


def objects(
    task: Task,
    images: np.ndarray,
    targets: Sequence[tuple[np.ndarray, np.ndarray]],
    valid: np.ndarray,
    predictions: Sequence[tuple[np.ndarray, np.ndarray]],
    title: str,
    path: Path,
) -> Path:
    """Images, and below them their true and their found objects in colours over them, one image per column.

    Args:
        task: with classes.
        images: (n, 3, S, S) in [0, 1].
        targets: of each image the objects' numbers (S, S), 0 for none, and the classes of the numbers from 1 on.
        valid: (n, S, S), which pixels count; the others are grey-blue among the targets.
        predictions: like `targets`.
        title: of the figure.
        path: where to save.
    """
    figure = Figure((2.4 * len(images) + 0.4, 7.6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(3, len(images), squeeze=False)
    for column, (image, counts) in enumerate(zip(images, valid, strict=True)):
        picture = image.transpose(1, 2, 0)
        axes[0, column].imshow(picture)
        _draw_objects(axes[1, column], task, np.where(counts[..., None], picture, NO_VALUE[:3]), *targets[column])
        _draw_objects(axes[2, column], task, picture, *predictions[column])
    for row, label in enumerate(("input", "target", "prediction")):
        axes[row, 0].set_ylabel(label)
        for axis in axes[row]:
            axis.set(xticks=[], yticks=[])
    return save(figure, path)


def _draw_objects(axes: Any, task: Task, picture: np.ndarray, numbers: np.ndarray, classes: np.ndarray) -> None:
    """Objects in colours over a picture (S, S, 3), the largest with the names of their classes."""
    n = len(classes)
    colours = np.array([colour[:3] for colour in palette(max(n, 1))])
    shown = np.where((numbers > 0)[..., None], 0.35 * picture + 0.65 * colours[numbers - 1], picture)
    axes.imshow(shown)
    areas = np.bincount(numbers.ravel(), minlength=n + 1)[1:]
    for k in np.argsort(-areas, kind="stable")[:_LABELLED]:
        if areas[k]:
            y, x = (np.median(positions) for positions in np.nonzero(numbers == k + 1))
            axes.text(x, y, classes_of(task).names[classes[k]], fontsize=6, ha="center", va="center", clip_on=True)


def cluster_samples(images: Sequence[np.ndarray], title: str, path: Path) -> Path:
    """Some images of each cluster, a row per cluster; `images[k]` is (n, 3, S, S) in [0, 1]."""
    columns = max(len(row) for row in images)
    figure = Figure((columns * 0.9 + 0.9, len(images) * 0.9 + 0.5), layout="constrained")
    figure.suptitle(title)
    figure.supylabel("cluster")
    axes = figure.subplots(len(images), columns, squeeze=False)
    for k, row in enumerate(images):
        axes[k, 0].set_ylabel(k, rotation=0, ha="right", va="center")
        for column in range(columns):
            axes[k, column].set(xticks=[], yticks=[])
            if column < len(row):
                axes[k, column].imshow(row[column].transpose(1, 2, 0))
            elif column:
                axes[k, column].axis("off")
    return save(figure, path)


def coloured_maps(images: np.ndarray, layers: Mapping[str, np.ndarray], path: Path) -> Path:
    """Images (n, 3, S, S) in [0, 1], and below them maps (n, 3, H, W) of any range as colours, a row per layer."""
    n = len(images)
    figure = Figure((1.5 * n + 0.6, 1.5 * (1 + len(layers)) + 0.4), layout="constrained")
    figure.suptitle("The three leading components of each layer as colours")
    axes = figure.subplots(1 + len(layers), n, squeeze=False)
    for row, (name, maps) in enumerate([("image", images), *layers.items()]):
        if row:
            low, high = (np.quantile(maps, q, axis=(0, 2, 3), keepdims=True) for q in (0.02, 0.98))
            maps = ((maps - low) / np.maximum(high - low, 1e-12)).clip(0, 1)
        axes[row, 0].set_ylabel(name)
        for column in range(n):
            axes[row, column].imshow(maps[column].transpose(1, 2, 0))
            axes[row, column].set(xticks=[], yticks=[])
    return save(figure, path)
