"""Figures of non-participating clients: how they fare as they adapt, in one run, and both gaps over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reports.labels import in_order, method_label, task_label
from reports.statistics import Change
from utils.figures import COLOURS, palette, save

_PARTS = {
    "unseen_test": ("client test", "C0", "o-"),
    "unseen_rest": ("training images that they do not adapt on", "C1", "s--"),
    "unseen_adapted_on": ("the images that they adapt on", "C2", ".:"),
}
_GREYS = {"iid": "#777777"}
GAPS = {"out-of-sample": "out-of-sample gap", "participation": "participation gap"}


def adaptation(
    rows: Sequence[Mapping[str, float]],
    last: Mapping[str, float],
    trivial: Mapping[str, Mapping[str, float]],
    title: str,
    measure: str,
    path: Path,
) -> Path:
    """The loss of non-participating clients over their steps of adaptation, mean and standard deviation over clients.

    Args:
        rows: of `network.engine.adaptation.Adaptation.run`.
        last: the columns of the federation's last round, for the participants' loss on their held-out images.
        trivial: the constant baseline's values by partition.
        title: of the figure.
        measure: what the loss is called, with its unit.
        path: of the PNG.
    """
    figure = Figure((7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    at = range(len(rows))
    for part, (name, colour, style) in _PARTS.items():
        mean, std = (np.array([row[f"{part}_loss_{what}"] for row in rows]) for what in ("mean", "std"))
        if np.isfinite(mean).any():
            axes.plot(at, mean, style, color=colour, label=f"non-participating clients, {name}")
            low = np.where(mean >= 0, np.maximum(mean - std, 0), mean - std)  # no client's loss is below 0
            axes.fill_between(at, low, mean + std, color=colour, alpha=0.15, lw=0)
    whose = "personal_" if "personal_local_test_loss_mean" in last else ""
    axes.axhline(last[f"{whose}local_test_loss_mean"], color="black", ls="--", lw=1, label="participants, client test")
    guess = trivial["unseen_test"]["loss"]
    axes.axhline(guess, color="gray", ls=":", label="constant baseline, non-participating clients")
    axes.set_xticks(at, [f"{row['steps']:g}" for row in rows])  # evenly spaced: few steps count as much as many
    axes.set(xlabel="steps of adaptation", ylabel=measure)
    figure.suptitle(
        f"Non-participating clients that adapt: mean ± standard deviation over clients\n{title}", fontsize="medium"
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return save(figure, path)


def gaps(table: pd.DataFrame, path: Path) -> Path:
    """Both gaps in percent, a row per task and method: on the left before, on the right the one left after adaptation.

    Points are means over seeds with their 95 % interval; `table` comes from `reports.gaps.gaps`.
    """
    rows = [
        (task, method)
        for task in in_order(table["task"])
        for method in dict.fromkeys(table["method"])
        if ((table["task"] == task) & (table["method"] == method)).any()
    ]
    steps = sorted({n for after in table["after"] for n in after})
    settings = list(dict.fromkeys(zip(table["type"], table["alpha"], table["more"], strict=True)))
    colours = dict(zip(settings, _colours(settings), strict=True))
    n_columns = 2 if steps else 1
    figure = Figure((5.2 * n_columns, 2.5 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots(len(rows), n_columns, squeeze=False, sharey="row")
    for row, (task, method) in enumerate(rows):
        part = table[(table["task"] == task) & (table["method"] == method)].to_dict("records")
        for i, record in enumerate(part):
            setting = record["type"], record["alpha"], record["more"]
            label = ", ".join(str(word) for word in setting if word != "")
            apart = 0.7 * ((i + 0.5) / len(part) - 0.5)
            of_gaps = [record["out-of-sample"], record["participation"]]
            _points(axes[row, 0], np.arange(2) + apart, of_gaps, colours[setting], label, "o")
            if steps:
                left = [record["participation"], *(record["after"].get(n, Change.of([])) for n in steps)]
                _points(axes[row, 1], np.arange(len(left)) + 0.3 * apart, left, colours[setting], label, "o-")
        axes[row, 0].set_xticks(range(2), list(GAPS.values()))
        axes[row, 0].set(ylabel=f"{task_label(task)}\n{method_label(method)}\n%", xlim=(-0.5, 1.5))
        if steps:
            axes[row, 1].set_xticks(range(1 + len(steps)), ["0", *map(str, steps)])
            axes[row, 1].set_xlabel("steps of adaptation" if row == len(rows) - 1 else "")
        for axis in axes[row]:
            axis.axhline(0, color="black", lw=0.8)
    if steps:
        axes[0, 1].set_title("participation gap", fontsize="medium")
    figure.suptitle("Loss of new images and of new clients, over the images before; mean and 95 % interval over seeds")
    lines = {text: handle for axis in axes.flat for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, fontsize="small")
    return save(figure, path)


def _points(axis: Any, at: np.ndarray, changes: Sequence[Change], colour: Any, label: str, style: str) -> None:
    """Mean changes in percent at these places, each with its interval where there is one."""
    seen = [(place, change) for place, change in zip(at, changes, strict=True) if change.seeds]
    axis.plot([place for place, _ in seen], [of.mean for _, of in seen], style, color=colour, ms=5, label=label)
    for place, (_, mean, low, high, _) in seen:
        if np.isfinite([low, high]).all():
            axis.errorbar(place, mean, [[mean - low], [high - mean]], color=colour, capsize=2, lw=1)


def _colours(settings: Sequence[tuple[str, str, str]]) -> list[Any]:
    """The usual colour of each partition where it has one setting only, otherwise as many as there are settings."""
    known = {**COLOURS, **_GREYS}
    splits = [split for split, *_ in settings]
    if len(set(splits)) == len(splits) and set(splits) <= known.keys():
        return [known[split] for split in splits]
    return list(palette(len(settings)))
