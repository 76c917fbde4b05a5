"""Figures of budgets: learning curves by round and by batch, and accuracy against how uneven a split is."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reports.figures.style import IMAGES, mark_cut, palette, save
from reports.labels import task_label
from reports.statistics import interval

_PANEL = (4.2, 3.2)  # inches
_LETTERS_AN_INCH = 14  # at least, in a legend
_AXES = {"round": "round", "batches": "batches of the rounds' largest clients"}


def learning_curves(progress: pd.DataFrame, metric: str, path: Path) -> Path:
    """The metric by round (left) and by batch (right), one row of panels per task; `progress` is from `read_progress`.

    There is a line per setting and alpha: the mean over seeds, with its 95 % t interval as a band. A dashed line shows
    central training's value.
    """
    tasks = list(dict.fromkeys(progress["task"]))
    figure = Figure((2 * _PANEL[0], _PANEL[1] * len(tasks) + 0.8), layout="constrained")
    axes = figure.subplots(len(tasks), 2, squeeze=False, sharey="row")
    lines = {}
    colours = _colours(progress, ["setting", "alpha"])
    for row, task in enumerate(tasks):
        of_task = progress[progress["task"] == task]
        for column, (unit, label) in enumerate(_AXES.items()):
            axis = axes[row, column]
            axis.axhline(of_task["central"].mean(), color="#555555", ls="--", lw=1.0)
            for key, part in of_task.groupby(["setting", "alpha"], sort=False, dropna=False):
                # The batches of a round differ between seeds; the line goes through the means of both coordinates.
                by_round = part.groupby("round")
                at, mean = by_round[unit].mean(), by_round["value"].mean()
                low, high = zip(*by_round["value"].agg(interval), strict=True)
                name = _name(*key)
                axis.fill_between(at, low, high, color=colours[name], alpha=0.2, lw=0)
                lines[name] = axis.plot(at, mean, color=colours[name], lw=1.3, label=name)[0]
            axis.set(xlabel=label, ylabel=f"{task_label(task)}\n{metric}, {IMAGES['test']}" if column == 0 else "")
            axis.grid(alpha=0.3)
    _legend(figure, list(lines.values()), list(lines))
    return save(figure, path)


def against_emd(last: pd.DataFrame, metric: str, path: Path) -> Path:
    """The last round's metric against the split's earth mover's distance, a panel per task; `last` is from `relative`.

    There is a line per setting through its alphas: means over seeds with their 95 % t intervals, divided by central
    training's value where that is known, as in figure 4 of arXiv 2003.08082.
    """
    tasks = list(dict.fromkeys(last["task"]))
    column = "relative" if last["relative"].notna().all() else "value"
    figure = Figure((_PANEL[0] * len(tasks) + 0.6, _PANEL[1] + 1.0), layout="constrained")
    colours, lines = _colours(last, ["setting"]), {}
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        reached: list[tuple[float, float, float]] = []
        for setting, part in last[last["task"] == task].groupby("setting", sort=False):
            points = part.groupby("alpha", dropna=False).agg(emd=("emd", "mean"), mean=(column, "mean"))
            points["half"] = part.groupby("alpha", dropna=False)[column].agg(lambda of: np.diff(interval(of))[0] / 2)
            points = points.sort_values("emd")
            reached += zip(points["emd"], points["mean"] - points["half"], points["mean"] + points["half"], strict=True)
            lines[setting] = axis.errorbar(
                points["emd"],
                points["mean"],
                points["half"],
                marker="o",
                ms=3.5,
                capsize=2,
                lw=1.2,
                color=colours[setting],
                label=setting,
            )
        if column == "relative":
            axis.axhline(1.0, color="#555555", ls="--", lw=1.0)
        axis.set(
            title=task_label(task),
            xlabel="earth mover's distance to the population",
            ylim=(0, None),
            ylabel=f"{metric} over central training's" if column == "relative" else metric,
        )
        for place, low, high in reached:
            mark_cut(axis, "y", place, low, high)
        axis.grid(alpha=0.3)
    _legend(figure, list(lines.values()), list(lines))
    return save(figure, path)


def _legend(figure: Figure, handles: list, labels: list[str]) -> None:
    """Draw the legend below the panels, in two columns if they fit, with labels wrapped to the figure's width."""
    letters = int(_LETTERS_AN_INCH * figure.get_figwidth())
    n_columns = 2 if max(map(len, labels)) < letters // 2 - 8 else 1
    wrapped = [fill(label, letters) for label in labels]
    figure.legend(handles, wrapped, loc="outside lower center", ncols=n_columns, fontsize="x-small")


def _name(setting: str, alpha: float) -> str:
    return setting if np.isnan(alpha) else f"{setting}, α = {alpha:g}"


def _colours(table: pd.DataFrame, columns: list[str]) -> dict[str, tuple[float, float, float, float]]:
    """A colour for each line, by its name."""
    keys = table[columns].drop_duplicates().itertuples(index=False, name=None)
    names = [_name(*key) if len(key) > 1 else key[0] for key in keys]
    return dict(zip(names, palette(len(names)), strict=True))
