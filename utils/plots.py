"""The figures. Each function draws one and saves it; nothing is shown on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import MaxNLocator

from utils.files import write_atomically

if TYPE_CHECKING:
    from datasets.tasks import ClassSet, Task

_NAMED = 40  # classes whose names fit below a histogram or a matrix
_IN_LEGEND = 32
_NO_VALUE = to_rgba("#c8c8d8")
# Of the palette that Okabe and Ito chose for the colour-blind.
COLOURS = {"class": "#0072b2", "embedding": "#d55e00"}
# The images that values are measured on: their names in the columns of `metrics.csv`, and in figures.
IMAGES = {"train": "clients' own training images", "local_test": "clients' held-out images",
          "test": "all held-out images"}  # fmt: skip


def save(figure: Figure, path: Path) -> Path:
    """Save a figure as PNG, and as PDF for print beside it; returns the PNG's path."""
    for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):  # the same figure is the same file
        with write_atomically(path.with_suffix(f".{kind}")) as temporary:
            figure.savefig(temporary, dpi=150, format=kind, metadata=metadata)
    return path


def palette(n: int) -> list[tuple[float, float, float, float]]:
    """`n` distinct colours, the same for the same n."""
    base = [colormaps["tab20"](i) for i in [*range(0, 20, 2), *range(1, 20, 2)]]
    return base[:n] if n <= 20 else [colormaps["hsv"](i / n) for i in range(n)]


def class_histogram(counts: Sequence[int], names: Sequence[str], path: Path) -> Path:
    """Images of each class, in the order of the classes; with names where there is room for them."""
    named = len(names) <= _NAMED
    figure = Figure((8, 4), layout="constrained")
    axes = figure.subplots()
    bars = axes.bar(range(len(counts)), counts, color="#3b6ea5", width=0.8 if named else 1.0)
    axes.margins(x=0.01, y=0.1)
    if named:
        axes.bar_label(bars, fontsize="small")
        axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=40, ha="right")
    axes.set(ylabel="images", xlabel="" if named else "class", title="Classes of the selected images")
    return save(figure, path)


def loss_curve(history: Sequence[Mapping[str, float]], trivial: float, title: str, measure: str, path: Path) -> Path:
    """Training and validation loss over epochs, with the trivial predictor's held-out loss.

    `measure` is what the loss is called, with its unit.
    """
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    epochs = [row["epoch"] for row in history]
    for key, label in (("train_loss", "training"), ("val_loss", "validation")):
        axes.plot(epochs, [row[key] for row in history], ".-", label=f"{label} images")
    axes.axhline(trivial, color="gray", ls=":", label="trivial predictor, held-out images")
    axes.set(xlabel="epoch", ylabel=measure, title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return save(figure, path)


def draw_target(axes: Any, task: Task, values: np.ndarray, valid: np.ndarray, limits: tuple[float, float]) -> Any:
    """Draw one target or prediction (C, H, W), or ids (H, W), on axes; pixels that do not count are grey-blue.

    Where the task shows none of these, they look as any others. Three channels are a picture, of two the first is
    shown; `limits` are the values of the ends of the colours.
    """
    axes.set(xticks=[], yticks=[])
    if task.categorical:
        return axes.imshow(np.where(valid[..., None], _colours_of(task)[values], _NO_VALUE[:3]))
    low, high = limits
    if len(values) == 3:
        picture = ((values.transpose(1, 2, 0) - low) / (high - low)).clip(0, 1)
        return axes.imshow(np.where(valid[0][..., None], picture, _NO_VALUE[:3]))
    colours = colormaps[task.colormap].with_extremes(bad=_NO_VALUE)
    shown = valid[0] | (not task.show_uncounted)
    return axes.imshow(np.where(shown, values[0], np.nan), cmap=colours, vmin=low, vmax=high)


def _colours_of(task: Task) -> np.ndarray:
    """The colours of the classes of a task, (classes, 3) in [0, 1]."""
    return np.array([to_rgb(colour) for colour in _classes_of(task).colours or palette(task.out_channels)])


def _classes_of(task: Task) -> ClassSet:
    if task.classes is None:
        raise ValueError(f"{task.name} has no classes to draw; see Task.with_classes")
    return task.classes


def _limits(targets: np.ndarray, valid: np.ndarray) -> tuple[float, float]:
    """A colour range for values without a natural one: from the lowest, or 0, to nearly the highest that counts."""
    counted = targets[:, : valid.shape[1]][valid] if targets.ndim == valid.ndim else targets[:0]
    low, high = np.quantile(counted, (0.01, 0.99)) if counted.size else (0.0, 1.0)
    return min(0.0, float(low)), max(float(high), float(low) + 1e-6)


def predictions(
    task: Task, images: np.ndarray, targets: np.ndarray, valid: np.ndarray, outputs: np.ndarray, title: str, path: Path
) -> Path:
    """Input, target and prediction of each image, one image per column.

    Args:
        task: of the targets.
        images: (n, 3, S, S) in [0, 1].
        targets: (n, C, S, S) in the task's unit, or ids (n, S, S).
        valid: which pixels count, broadcastable to one channel of the targets.
        outputs: like `targets`.
        title: of the figure.
        path: where to save.
    """
    n = len(images)
    figure = Figure((1.6 * n + 1.4, 5.6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(3, n, squeeze=False)
    shown = np.broadcast_to(valid, targets.shape if task.categorical else targets[:, :1].shape)
    limits = task.value_range or _limits(targets, shown)
    for column in range(n):
        axes[0, column].imshow(images[column].transpose(1, 2, 0))
        axes[0, column].set(xticks=[], yticks=[])
        image = draw_target(axes[1, column], task, targets[column], shown[column], limits)
        draw_target(axes[2, column], task, outputs[column], np.ones_like(shown[column]), limits)
    for row, label in enumerate(("input", "target", "prediction")):
        axes[row, 0].set_ylabel(label)
    if task.categorical:
        named = zip(_colours_of(task), _classes_of(task).names, strict=True)
        handles = [Patch(facecolor=colour, edgecolor="gray", lw=0.5, label=name) for colour, name in named]
        figure.legend(handles=handles, loc="outside lower center", ncols=9, fontsize="small")
    elif targets.shape[1] != 3:
        figure.colorbar(image, ax=axes[1:, :], label=task.unit, shrink=0.8)
    return save(figure, path)


def detections(
    task: Task,
    images: np.ndarray,
    targets: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    title: str,
    path: Path,
    least_score: float = 0.3,
) -> Path:
    """Images with their true boxes, and below them with the detected ones as well, one image per column.

    Args:
        task: with classes.
        images: (n, 3, S, S) in [0, 1].
        targets: of each image (m, 5), left, top, right, bottom in pixels and class.
        found: of each image (k, 6), class, score and sides.
        title: of the figure.
        path: where to save.
        least_score: of the boxes that are drawn.
    """
    names, colours = _classes_of(task).names, _colours_of(task)
    figure = Figure((2.4 * len(images) + 0.4, 5.6), layout="constrained")
    figure.suptitle(f"{title}: boxes from a score of {least_score:g} on over the true ones (dotted)")
    axes = figure.subplots(2, len(images), squeeze=False)
    for column, (image, there, seen) in enumerate(zip(images, targets, found, strict=True)):
        for axis in axes[:, column]:
            axis.imshow(image.transpose(1, 2, 0))
            axis.set(xticks=[], yticks=[])
        for *sides, label in there:
            _draw_box(axes[0, column], sides, colours[int(label)], names[int(label)])
            _draw_box(axes[1, column], sides, np.ones(3), "", linestyle=":")
        for label, score, *sides in seen[seen[:, 1] >= least_score][::-1]:
            _draw_box(axes[1, column], sides, colours[int(label)], f"{names[int(label)]} {score:.2f}")
    for row, label in enumerate(("target", "prediction")):
        axes[row, 0].set_ylabel(label)
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


def confusion_matrix(matrix: np.ndarray, names: Sequence[str], title: str, path: Path) -> Path:
    """Rows are true classes, columns predicted ones; colours are shares of the row, numbers are images.

    Where there are too many classes for that, it has neither their names nor numbers.
    """
    figure = Figure((8, 7), layout="constrained")
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(names) <= _NAMED:
        for row, column in np.argwhere(matrix > 0):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, matrix[row, column], ha="center", va="center", color=colour, fontsize="small")
        labels = [name.replace("_", " ") for name in names]
        axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
        axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel="predicted", ylabel="true", title=title)
    figure.colorbar(image, label="share of the true class")
    return save(figure, path)


def tsne(points: np.ndarray, ids: np.ndarray, labels: Sequence[str], kind: str, title: str, path: Path) -> Path:
    """Points of the plane (n, 2), coloured by their ids (n,), with a legend and labels where there is room for them.

    A label stands at the median of its points; `kind` is what it is of, a cluster or class.
    """
    figure = Figure((8, 6), layout="constrained")
    axes = figure.subplots()
    colours = palette(len(labels))
    few = len(labels) <= _IN_LEGEND
    halo: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="white")]
    for i, label in enumerate(labels):
        (x, y), name = points[ids == i].T, label.replace("_", " ")
        axes.scatter(x, y, s=10, color=colours[i], label=name)
        if few and len(x):
            text = axes.text(np.median(x), np.median(y), name, ha="center", va="center", fontsize="small")
            text.set_path_effects(halo)
    axes.set(xticks=[], yticks=[], title=title, xlabel="t-SNE, first axis", ylabel="t-SNE, second axis")
    if few:
        figure.legend(loc="outside right upper", title=kind, markerscale=2, fontsize="small")
    return save(figure, path)


def shares(values: Mapping[str, float], title: str, path: Path) -> Path:
    """Shares between 0 and 1 as bars, one below the other."""
    figure = Figure((6, 0.8 + 0.45 * len(values)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(values), list(values.values()), color="#3b6ea5")
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize="small")
    axes.set(title=title, xlabel="share of the variance, corrected for chance", xlim=(min(0, *values.values()), 1.08))
    axes.invert_yaxis()
    return save(figure, path)


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


def federated_rounds(
    rows: Sequence[Mapping[str, float]], name: str, trivial: Mapping[str, float], title: str, measure: str, path: Path
) -> Path:
    """Loss or a metric over rounds, of the global model and of the clients' own, as far as a method has them.

    The left panel shows the clients' training images, the right one held-out images: each client's own part, and for
    the global model all of them. Bands are the standard deviation over clients; dotted lines the trivial predictor.
    A point is an evaluation; `name` is that of the columns, `measure` what its values are called, with their unit.
    """
    figure = Figure((10, 4.6), layout="constrained")
    figure.suptitle(title)
    panels = dict(zip(("train", "local_test"), figure.subplots(1, 2, sharey=True), strict=True))
    rows = [row for row in rows if rows[0].keys() <= row.keys()]
    rounds = [row["round"] for row in rows]
    highest = []
    for (split, axes), (prefix, label, colour) in product(
        panels.items(), (("", "global model", "C0"), ("personal_", "clients' own models", "C1"))
    ):
        column = f"{prefix}{split}_{name}"
        if f"{column}_mean" in rows[0]:
            mean, std = (np.array([row[f"{column}_{what}"] for row in rows]) for what in ("mean", "std"))
            axes.plot(rounds, mean, ".-", color=colour, label=f"{label}, mean ± standard deviation over clients")
            axes.fill_between(rounds, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
            # The first evaluation is of the untrained model; with it in view, the others could not be told apart.
            highest.append(np.nanmax((mean + std)[1:], initial=0.0))
    if f"test_{name}" in rows[0]:
        label = f"global model, {IMAGES['test']}"
        panels["local_test"].plot(rounds, [row[f"test_{name}"] for row in rows], "k.--", lw=1, label=label)
    for split, axes in panels.items():
        axes.axhline(trivial.get(split, np.nan), color="gray", ls=":", label="trivial predictor")
        axes.set(xlabel="round", title=IMAGES[split])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels["train"].set(ylabel=measure, ylim=(None, 1.08 * np.nanmax([*highest, *trivial.values()])))
    lines = {line.get_label(): line for axes in panels.values() for line in axes.lines}
    figure.legend(handles=lines.values(), loc="outside lower center", ncols=2, fontsize="small")
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


def cosines(positive: np.ndarray, negative: np.ndarray, title: str, path: Path) -> Path:
    """How two sets of cosines are distributed: with the right text and with the others."""
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    bins = np.histogram_bin_edges(np.concatenate([positive, negative]), 50).tolist()
    for values, label, colour in (
        (negative, "text of another class", COLOURS["embedding"]),
        (positive, "text of its class", COLOURS["class"]),
    ):
        axes.hist(values, bins, density=True, alpha=0.55, color=colour, label=f"{label}, mean {values.mean():.3f}")
    axes.set(xlabel=title, ylabel="density", yticks=[])
    axes.legend()
    return save(figure, path)


def neighbours(accuracy: Mapping[str, Mapping[str, float]], title: str, path: Path) -> Path:
    """Bars of accuracies in [0, 1], a group per layer and a bar per kind of vector."""
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(accuracy), 1)
    layers = list(next(iter(accuracy.values()), {}))
    for i, (kind, row) in enumerate(accuracy.items()):
        bars = axes.bar(np.arange(len(layers)) + i * width, list(row.values()), width, label=kind)
        axes.bar_label(bars, fmt="%.2f", fontsize="small")
    axes.set(ylabel="accuracy", ylim=(0, 1.05), title=title)
    axes.set_xticks(np.arange(len(layers)) + (len(accuracy) - 1) * width / 2, layers)
    axes.legend(title="vector")
    return save(figure, path)
