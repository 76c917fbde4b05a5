"""Figure of what partitions cost against measures of their partitions."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from network.partition.groups import partition_label
from reports.labels import task_label
from reports.tables import CANDIDATES
from utils.figures import palette, save
from utils.runs import MEASURED_ON

_FAR = 100.0  # percent; larger costs are drawn on a logarithmic scale
_WIDE = 3.0  # a measure with larger values is drawn on a logarithmic axis


def costs_by_measure(costs: pd.DataFrame, path: Path, measured_on: str = MEASURED_ON["train"]) -> Path:
    """What each run costs against each measure of its partition: a panel per measure, a colour per task.

    `costs` comes from `reports.predictors.split_costs`; measures that no run has are left out. The scale of costs is
    logarithmic beyond 100 %. The title says which images they are `measured_on`.
    """
    names = [name for name in CANDIDATES if costs[name].notna().any()]
    tasks = list(dict.fromkeys(costs["task"]))
    markers = dict(zip(sorted(set(costs["type"])), cycle("o^sDvP"), strict=False))
    figure = Figure((2.7 * len(names) + 0.6, 3.6), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axis, name in zip(axes, names, strict=True):
        for task, colour in zip(tasks, palette(len(tasks)), strict=True):
            for split, marker in markers.items():
                part = costs[(costs["task"] == task) & (costs["type"] == split)]
                axis.plot(part[name], part["increase"], marker, color=colour, ms=4, alpha=0.7)
        axis.axhline(0, color="black", lw=0.8)
        axis.set(xlabel=CANDIDATES[name], xscale="log" if costs[name].max() > _WIDE else "linear")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.25, lw=0.6)
    if costs["increase"].max() > _FAR:
        axes[0].set_yscale("symlog", linthresh=_FAR)
    axes[0].set_ylabel("increase over IID, %")
    handles: list[Artist] = [
        Patch(color=colour, label=_named(task)) for task, colour in zip(tasks, palette(len(tasks)), strict=True)
    ]
    handles += [
        Line2D([], [], color="grey", ls="", marker=marker, label=partition_label(split))
        for split, marker in markers.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize="small")
    figure.suptitle(f"What a partition costs on {measured_on} data, against measures of its partition before training")
    return save(figure, path)


def _named(task: str) -> str:
    """A task's title, after its folder's name if there are several folders."""
    folder, _, name = task.rpartition(": ")
    return f"{folder}: {task_label(name)}" if folder else task_label(name)
