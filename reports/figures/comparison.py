"""What every partition costs over IID, as bars. Their ends are the 95 % t intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from network.partition.groups import partition_label
from reports.compare import settings_of
from reports.labels import in_order, method_label, task_label
from reports.learnt import NO
from reports.statistics import finite
from reports.tables import in_words, telling
from utils.figures import COLOURS, INTERVAL, mark_cut, palette, save
from utils.runs import MEASURED_ON
from utils.words import counted

_PALE = 0.35  # opacity of what says nothing
_BAR, _APART = 0.36, 0.3  # a bar's height, and between settings, in units of an axis
_INCHES = 0.47  # per unit


def comparison(table: pd.DataFrame, path: Path) -> Path:
    """Relative loss increase over the IID partition, a panel per task (rows) and part of the data (columns).

    There is a bar for each partition of each setting, with a dot per seed and the interval of the mean. Settings
    without IID runs are left out, unless none has some. Each panel has its own axis, which shows all its seeds: one may
    rise twenty times as far as another. Intervals that reach further are cut off and end in an arrow head. Bars of
    models that have not learnt their task under IID are pale. `table` comes from `reports.splits.splits_over_iid`.
    """
    with_iid = [np.isfinite(losses).any() for losses in table["iid"]]
    table = table[with_iid] if any(with_iid) else table
    table = table.assign(setting=_setting_names(table))
    tasks, parts = in_order(table["task"]), [name for name in MEASURED_ON if name in set(table["images"])]
    places, ticks = _places(table)
    colours = _colours(table["type"])
    height = _INCHES * (max(places.values()) + 1) + 0.5
    width = max(2.6 * len(parts) + 2.4, 6.6)  # what title and legend take
    figure = Figure((width, height * len(tasks) + 1.2), layout="constrained")
    axes = figure.subplots(len(tasks), len(parts), squeeze=False, sharey=True)
    for row, task in enumerate(tasks):
        for axis, images in zip(axes[row], parts, strict=True):
            shown = table[(table["task"] == task) & (table["images"] == images)].to_dict("records")
            _panel(axis, [(places[entry["setting"], entry["type"]], entry) for entry in shown], colours)
            axis.set_yticks([*ticks.values()], [*ticks])
            axis.set(ylim=(max(places.values()) + 0.5, -0.5), title=fill(MEASURED_ON[images], 20) if row == 0 else "")
            axis.set_xlabel("increase, %" if row == len(tasks) - 1 else "")
        axes[row, 0].set_ylabel(fill(task_label(task), 18))
    n_seeds = max(map(len, table["iid"]))
    figure.suptitle(f"Increase of the loss over the IID partition, mean over {counted(n_seeds, 'seed')}")
    figure.legend(handles=_handles(table, colours), loc="outside lower center", ncols=3, fontsize="small")
    return save(figure, path)


def _setting_names(table: pd.DataFrame) -> list[str]:
    """The method, alpha and what else differs of each row, in lines that leave room for the bars."""
    settings_of_rows = settings_of(table)
    shown = [
        name for name in telling(settings_of_rows, list(settings_of_rows)) if name not in {"task", "method", "type"}
    ]
    settings = [in_words({name: record[name] for name in shown}) for record in settings_of_rows.to_dict("records")]
    methods = map(method_label, table["method"])
    return [fill(", ".join(filter(None, named)), 30) for named in zip(methods, settings, strict=True)]


def _places(table: pd.DataFrame) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """The height of each setting's and partition's bar, those of a setting together, and that of its name."""
    places: dict[tuple[str, str], float] = {}
    ticks: dict[str, float] = {}
    at = 0.0
    for setting, part in table.groupby("setting", sort=False):
        splits = [*dict.fromkeys(part["type"])]
        # A name of several lines needs the room of as many bars.
        room = max(len(splits) * _BAR, 0.45 * (1 + str(setting).count("\n")))
        start = at + (room - len(splits) * _BAR) / 2
        places |= {(str(setting), split): start + rank * _BAR for rank, split in enumerate(splits)}
        ticks[str(setting)] = start + (len(splits) - 1) * _BAR / 2
        at += room + _APART
    return places, ticks


def _colours(splits: Sequence[str]) -> dict[str, Any]:
    """A colour for each split: those that all figures have, and others for the rest."""
    rest = [split for split in dict.fromkeys(splits) if split not in COLOURS]
    others = dict(zip(rest, palette(2 + len(rest))[2:], strict=True))
    return {split: COLOURS.get(split, others.get(split)) for split in dict.fromkeys(splits)}


def _panel(axis: Axes, bars: Sequence[tuple[float, Mapping[str, Any]]], colours: Mapping[str, Any]) -> None:
    """Draw a panel's bars at their heights; its axis shows 0 and all seeds."""
    bars = [(place, row) for place, row in bars if row["over_iid"].seeds]  # others have no IID run
    for place, row in bars:
        _bar(axis, place, row, colours[row["type"]])
    seen = [0.0, *(value for _, row in bars for value in finite(row["over_iid"].values))]
    axis.axvline(0, color="black", lw=0.8)
    axis.grid(axis="x", alpha=0.25, lw=0.6)
    axis.set_axisbelow(True)
    margin = 0.06 * (max(seen) - min(seen)) or 1.0
    axis.set_xlim(min(seen) - margin, max(seen) + margin)
    for place, row in bars:
        mark_cut(axis, "x", place, row["over_iid"].low, row["over_iid"].high)


def _bar(axis: Axes, place: float, row: Mapping[str, Any], colour: Any) -> None:
    """Draw the bar of one partition, with its interval and its seeds."""
    change, opacity = row["over_iid"], _PALE if row["learnt"] == NO else 1.0
    error, values = np.nan_to_num([[change.mean - change.low], [change.high - change.mean]]), finite(change.values)
    drawn = {"color": colour, "alpha": opacity, "error_kw": {"lw": 1, "alpha": opacity}}
    axis.barh(place, change.mean, 0.94 * _BAR, xerr=error, capsize=2, **drawn)
    axis.plot(values, np.full(len(values), place), ".", color="black", ms=3, alpha=opacity)


def _handles(table: pd.DataFrame, colours: Mapping[str, Any]) -> list[Artist]:
    """The legend's entries."""
    handles: list[Artist] = [Patch(color=colour, label=_label(split)) for split, colour in colours.items()]
    handles.append(Line2D([], [], color="black", ls="", marker=".", label="one seed"))
    if max(map(len, table["iid"])) > 1:
        handles.append(Line2D([], [], color="black", marker="|", ms=8, label=INTERVAL))
    if (table["learnt"] == NO).any():
        handles.append(Patch(color="black", alpha=_PALE, label="pale: not learnt under IID, no verdict"))
    return handles


def _label(split: str) -> str:
    return partition_label(f"{split}_based")
