"""Figures of budgets: learning curves by round and by batch, and accuracy against how uneven a partition is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reports.labels import is_share, task_label
from reports.statistics import interval, share_interval
from utils.figures import mark_cut, palette, save
from utils.runs import MEASURED_ON

_PANEL = (4.2, 3.2)  # inches
_LETTERS_AN_INCH = 14  # at least, in a legend
_NARROW, _LOW = 2.3, 2.1  # of a panel among several
_AXES = {"round": "round", "batches": "batches, largest clients"}
_CENTRAL = "central training"


def learning_curves(progress: pd.DataFrame, metric: str, path: Path) -> Path:
    """The metric by round and, below, by batch: a column of panels per partition; `progress` is from `read_progress`.

    There is a line per method and setting: the mean over seeds, with its 95 % interval as a band, which of a share
    stays between 0 and 1. A dashed line shows central training's value. The panels of a task share their scale.
    """
    tasks = list(dict.fromkeys(progress["task"]))
    splits = progress[["type", "alpha"]].drop_duplicates().sort_values(["type", "alpha"], kind="stable")
    columns = [*splits.itertuples(index=False, name=None)]
    size = (max(_NARROW * len(columns) + 0.9, 5.0), 2 * _LOW * len(tasks) + 1.0)
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(2 * len(tasks), len(columns), squeeze=False)
    names = list(dict.fromkeys(progress["line"]))
    colours, lines = dict(zip(names, palette(len(names)), strict=True)), {}
    band = share_interval if is_share(metric) else interval
    for row, (task, (unit, label)) in enumerate(product(tasks, _AXES.items())):
        of_task = progress[progress["task"] == task]
        for axis, (split, alpha) in zip(axes[row], columns, strict=True):
            axis.sharey(axes[row - row % 2, 0])
            axis.axhline(of_task["central"].mean(), color="#555555", ls="--", lw=1.0, label=_CENTRAL)
            same = of_task["alpha"].isna() if np.isnan(alpha) else of_task["alpha"] == alpha
            for name, part in of_task[same & (of_task["type"] == split)].groupby("line", sort=False):
                # The batches of a round differ between seeds; the line goes through the means of both coordinates.
                by_round = part.groupby("round")
                at, mean = by_round[unit].mean(), by_round["value"].mean()
                low, high = zip(*by_round["value"].agg(band), strict=True)
                axis.fill_between(at, low, high, color=colours[name], alpha=0.15, lw=0)
                lines[name] = axis.plot(at, mean, ".-", color=colours[name], lw=1.3, ms=4, label=name)[0]
            title = split if np.isnan(alpha) else f"{split}\nα = {alpha:g}"
            axis.set(title=title if row == 0 else "", xlabel=label)
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize="small", labelleft=axis is axes[row, 0])
        axes[row, 0].set_ylabel(f"{task_label(task)}\n{metric}")
    figure.suptitle(f"{metric} on {MEASURED_ON['test']}")
    if progress["central"].notna().any():
        lines[_CENTRAL] = axes[0, 0].lines[0]
    _legend(figure, lines)
    return save(figure, path)


def against_emd(last: pd.DataFrame, metric: str, path: Path) -> Path:
    """The last round's metric against its partition's earth mover's distance, by task; `last` is from `relative`.

    There is a line per setting through its alphas: means over seeds with their 95 % t intervals, divided by central
    training's value where that is known, as in figure 4 of arXiv 2003.08082.
    """
    tasks = list(dict.fromkeys(last["task"]))
    column = "relative" if last["relative"].notna().all() else "value"
    figure = Figure((_PANEL[0] * len(tasks) + 0.6, _PANEL[1] + 1.0), layout="constrained")
    names = list(dict.fromkeys(last["setting"]))
    colours, lines = dict(zip(names, palette(len(names)), strict=True)), {}
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        reached: list[tuple[float, float, float]] = []
        for setting, part in last[last["task"] == task].groupby("setting", sort=False):
            points = part.groupby("alpha", dropna=False).agg(emd=("emd", "mean"), mean=(column, "mean"))
            points["half"] = part.groupby("alpha", dropna=False)[column].agg(lambda of: np.diff(interval(of))[0] / 2)
            points = points.sort_values("emd")
            reached += zip(points["emd"], points["mean"] - points["half"], points["mean"] + points["half"], strict=True)
            look = {"color": colours[setting], "lw": 1.2, "marker": "o", "ms": 3.5, "capsize": 2}
            lines[setting] = axis.errorbar(points["emd"], points["mean"], points["half"], label=setting, **look)
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
    _legend(figure, lines)
    return save(figure, path)


def _legend(figure: Figure, lines: Mapping[str, Any]) -> None:
    """Draw the legend below the panels, in two columns if they fit, with labels wrapped to the figure's width."""
    letters = int(_LETTERS_AN_INCH * figure.get_figwidth())
    n_columns = 2 if max(map(len, lines)) < letters // 2 - 8 else 1
    labels = [fill(label, letters) for label in lines]
    figure.legend([*lines.values()], labels, loc="outside lower center", ncols=n_columns, fontsize="x-small")
