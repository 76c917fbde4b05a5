"""Figures of how non-IID clients are by the equivalent α of groupings, and of what partitions cost by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator

from utils.figures import mark_cut, palette, save

if TYPE_CHECKING:
    from network.partition.own_clients import Measured

_FAR = 100.0  # percent; larger costs are drawn on a logarithmic scale
_FURTHEST = 1e3  # α is drawn up to here at least, and IID's line beside the largest that is drawn


def equivalent_alphas(measured: Sequence[Measured], path: Path) -> Path:
    """α with its interval of 95 % on a logarithmic axis, a row a grouping, and IID's line at its right end.

    An estimate of 0 or infinity has no point; its interval runs to the edge, where an arrow head marks that it is cut.
    """
    bounds = [limit for one in measured for limit in (one.estimate.alpha, one.estimate.low, one.estimate.high)]
    finite = [limit for limit in bounds if 0 < limit < np.inf]
    least, most = min([*finite, 0.05]) / 2, max([*finite, _FURTHEST / 2]) * 2
    figure = Figure((7, 1.5 + 0.45 * len(measured)), layout="constrained")
    axis = figure.subplots()
    axis.set(xscale="log", xlim=(least, most * 3), ylim=(len(measured) - 0.5, -0.5))
    axis.axvline(most, color="grey", ls="--", lw=1)
    axis.annotate("IID", (most, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", color="dimgrey")
    for row, grouping in enumerate(measured):
        low, high = grouping.estimate.low, grouping.estimate.high
        axis.plot([max(low, least), min(high, most)], [row, row], color="#0072b2", lw=2)
        if 0 < grouping.estimate.alpha < np.inf:
            fill = "#0072b2" if grouping.fits else "white"
            axis.plot(grouping.estimate.alpha, row, "o", color="#0072b2", mfc=fill)
        if low < least:
            mark_cut(axis, "x", row, low, least)
        if high > most:
            axis.plot(most, row, ">", color="#0072b2", ms=6)
    axis.set_yticks(range(len(measured)), [f"{grouping.name} ({grouping.groups} groups)" for grouping in measured])
    axis.set_xlabel("α of Dir(α p), with its 95 % interval; hollow: no Dirichlet distribution's")
    axis.grid(axis="x", alpha=0.25, lw=0.6)
    clients = {grouping.estimate.clients for grouping in measured}
    figure.suptitle(f"How non-IID {max(clients)} clients are, by what their images are grouped by")
    return save(figure, path)


def costs_by_alpha(costs: pd.DataFrame, cost: str, path: Path, measures: Mapping[str, str], measured_on: str) -> Path:
    """What each run costs against each measure of its partition: a row of panels per task, colours by partition.

    `costs` comes from `reports.equivalent_alphas.costs`, of which `cost` is the column; `measures` are its columns and
    their labels. An infinite α is drawn at IID's line.
    """
    tasks = list(dict.fromkeys(costs["task"]))
    figure = Figure((3.2 * len(measures) + 2.2, 2.9 * len(tasks) + 0.6), layout="constrained")
    for task, axes in zip(tasks, figure.subplots(len(tasks), len(measures), squeeze=False, sharey="row"), strict=True):
        _row(axes, costs[costs["task"] == task], cost, measures)
        axes[0].set_ylabel(f"{task}\nincrease over IID, %")
        axes[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")
    figure.suptitle(f"What a partition costs on {measured_on} images; dashed: like IID clients")
    return save(figure, path)


def _row(axes: Sequence[Axes], costs: pd.DataFrame, cost: str, measures: Mapping[str, str]) -> None:
    """The runs of one task, a panel per measure."""
    splits = list(dict.fromkeys(costs["type"]))
    for axis, (name, label) in zip(axes, measures.items(), strict=True):
        values = costs[name]
        logarithmic = bool((values > 1).any())  # shares are at most 1
        most = 3 * max([*values[np.isfinite(values)], _FURTHEST])
        values = values.clip(upper=most) if logarithmic else values
        for split, colour in zip(splits, palette(len(splits)), strict=True):
            own = costs["type"] == split
            axis.plot(values[own], costs[cost][own], "o", color=colour, ms=4, alpha=0.8, label=split)
        axis.set(xlabel=label, xscale="log" if logarithmic else "linear")
        if logarithmic:
            axis.axvline(most, color="grey", ls="--", lw=1)
        axis.axhline(0, color="black", lw=0.8)
        axis.grid(alpha=0.25, lw=0.6)
    if costs[cost].max() > _FAR:
        axes[0].set_yscale("symlog", linthresh=_FAR)
        axes[0].yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=_FAR, subs=[1, 2, 5]))
        axes[0].yaxis.set_major_formatter("{x:g}")
        axes[0].set_ylim(top=1.5 * costs[cost].max())
