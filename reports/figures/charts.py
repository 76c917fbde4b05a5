"""Figures of single runs. Each function draws one and saves it; nothing is shown on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import MaxNLocator

from reports.figures.style import COLOURS, palette, save
from utils.runs import MEASURED_ON

_NAMED = 40  # classes whose names fit below a histogram or a matrix
_IN_LEGEND = 32


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
    """Training and validation loss over epochs, with the constant baseline's loss on global test.

    `measure` is what the loss is called, with its unit.
    """
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    epochs = [row["epoch"] for row in history]
    for key, label in (("train_loss", "training"), ("val_loss", "validation")):
        axes.plot(epochs, [row[key] for row in history], ".-", label=f"{label} images")
    axes.axhline(trivial, color="gray", ls=":", label="constant baseline, global test")
    axes.set(xlabel="epoch", ylabel=measure, title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return save(figure, path)


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


def tsne(points: np.ndarray, ids: np.ndarray, labels: Sequence[str], named: str, title: str, path: Path) -> Path:
    """Points of the plane (n, 2), coloured by their ids (n,), with a legend and labels where there is room for them.

    A label stands at the median of its points; `named` is what it is of, a cluster or class.
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
        figure.legend(loc="outside right upper", title=named, markerscale=2, fontsize="small")
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


def federated_rounds(
    rows: Sequence[Mapping[str, float]], name: str, trivial: Mapping[str, float], title: str, measure: str, path: Path
) -> Path:
    """Loss or a metric over rounds, of the global model and of personal ones, as far as a method has them.

    The left panel shows client train, the right one client test and, for the global model, global test; both have
    non-participating clients, if there are any. Bands are the standard deviation
    over clients; dotted lines the constant baseline.
    A point is an evaluation; `name` is that of the columns, `measure` what its values are called, with their unit.
    """
    figure = Figure((10, 4.6), layout="constrained")
    figure.suptitle(title)
    panels = dict(zip(("train", "local_test"), figure.subplots(1, 2, sharey=True), strict=True))
    rows = [row for row in rows if rows[0].keys() <= row.keys()]
    rounds = [row["round"] for row in rows]
    highest = []
    for (images, axes), (prefix, label, colour) in product(
        panels.items(), (("", "global model", "C0"), ("personal_", "personal models", "C1"))
    ):
        column = f"{prefix}{images}_{name}"
        if f"{column}_mean" in rows[0]:
            mean, std = (np.array([row[f"{column}_{what}"] for row in rows]) for what in ("mean", "std"))
            axes.plot(rounds, mean, ".-", color=colour, label=f"{label}, mean ± standard deviation over clients")
            axes.fill_between(rounds, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
            # The first evaluation is of the untrained model; with it in view, the others could not be told apart.
            highest.append(np.nanmax((mean + std)[1:], initial=0.0))
    for split, axes in panels.items():
        column = f"unseen_{split.removeprefix('local_')}_{name}_mean"
        if column in rows[0]:
            values = np.array([row[column] for row in rows])
            axes.plot(rounds, values, ".:", color="C2", label="non-participating clients, received model, mean")
            highest.append(np.nanmax(values[1:], initial=0.0))
    if f"test_{name}" in rows[0]:
        label = f"global model, {MEASURED_ON['test']}"
        values = np.array([row[f"test_{name}"] for row in rows])
        panels["local_test"].plot(rounds, values, "k.--", lw=1, label=label)
        highest.append(np.nanmax(values[1:], initial=0.0))
    for images, axes in panels.items():
        axes.axhline(trivial.get(images, np.nan), color="gray", ls=":", label="constant baseline")
        axes.set(xlabel="round", title=MEASURED_ON[images])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels["train"].set(ylabel=measure, ylim=(None, 1.08 * np.nanmax([*highest, *trivial.values()])))
    lines = {line.get_label(): line for axes in panels.values() for line in axes.lines}
    figure.legend(handles=lines.values(), loc="outside lower center", ncols=2, fontsize="small")
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


def neighbours(accuracy: Mapping[str, Mapping[str, float]], commonest: float, title: str, path: Path) -> Path:
    """Bars of accuracies in [0, 1], a group per layer and a bar per kind of vector.

    A line shows `commonest`, the accuracy of who always says the commonest class.
    """
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(accuracy), 1)
    layers = list(next(iter(accuracy.values()), {}))
    for i, (vector, row) in enumerate(accuracy.items()):
        bars = axes.bar(np.arange(len(layers)) + i * width, list(row.values()), width, label=vector)
        axes.bar_label(bars, fmt="%.2f", fontsize="small")
    axes.axhline(commonest, color="gray", ls=":", label="none: the commonest class")
    axes.set(ylabel="accuracy", ylim=(0, 1.05), title=title)
    axes.set_xticks(np.arange(len(layers)) + (len(accuracy) - 1) * width / 2, layers)
    axes.legend(title="vector")
    return save(figure, path)
