"""Figures of whole sweeps: loss by round, how sensitive it is to an argument, and what partitions cost.

Error bars and bands always show the 95 % interval of the mean over seeds, by Student's t.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from network.partition.groups import EMBEDDING, partition_label
from reports.curves import Assigned
from reports.figures.partitions import stack
from reports.labels import in_order, method_label, task_label
from reports.statistics import interval
from utils.errors import UserError
from utils.figures import COLOURS, INTERVAL, palette, save
from utils.runs import MEASURED_ON

# By split: label, colour, line style and marker.
_LOOKS = {
    "iid": ("IID", "#555555", "--", "s"),
    "class_based": ("class-based partition", COLOURS["class"], "-", "o"),
    "embedding_based": ("embedding-based partition", COLOURS["embedding"], "-", "^"),
}
_TRIVIAL = ("constant baseline", "#555555", ":")
_BAR = Line2D([], [], color="black", ls="", marker="|", ms=10, label=INTERVAL)
_PANEL = (2.5, 1.9)  # inches
_CATEGORY = 0.24  # inches between categories under an axis, at least
_LETTERS_AN_INCH = 10  # at least, in a title
_ABREAST = 4  # panels of one task
_MOST_MARKERS = 30  # per line; more would hide it
_MOST_IN_LEGEND = 24


def rounds(table: pd.DataFrame, images: str, method: str, path: Path) -> Path:
    """Loss by round, a panel per task (rows) and alpha (columns); `table` comes from `read_rounds`.

    Lines are means over seeds. The IID partition and the constant baseline do not depend on alpha: their lines are the
    same in all panels of a task.
    """
    table = table[table["method"] == method]
    tasks = in_order(table["task"])
    alphas = sorted(table.loc[table["type"] != "iid", "alpha"].unique()) or [np.nan]
    title = f"{method_label(method)}: loss by round\n{MEASURED_ON[images]}, mean over {_seeds(table)}"
    figure, axes = _grid(len(tasks), len(alphas), title, _legend(table, band=True))
    for row, task in enumerate(tasks):
        of_task = table[table["task"] == task]
        # The first evaluation is of the untrained model; if it were in view, all other values would look alike.
        in_view = [_trivial(axes[row], of_task)]
        for (column, alpha), split in product(enumerate(alphas), _LOOKS):
            part = of_task[of_task["type"] == split]
            part = part if split == "iid" else part[part["alpha"] == alpha]
            if not part.empty:
                in_view.extend(_line(axes[row, column], part, split))
        low, high = np.nanmin(in_view), np.nanmax(in_view)
        margin = 0.05 * (high - low or abs(high) or 1.0)  # where nothing changes, there is room, too
        axes[row, 0].set(ylim=(low - margin, high + margin))
        axes[row, 0].set_ylabel(f"{task_label(task)}\n{of_task['measure'].iloc[0]}")
    for axis, alpha in zip(axes[0], alphas, strict=True):
        axis.set_title("" if np.isnan(alpha) else f"α = {alpha:g}")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    for axis in axes.flat:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return save(figure, path)


def _line(axis: Any, part: pd.DataFrame, split: str) -> list[float]:
    """Draw a partition's line with its band; returns the range to be in view: all seeds after the first evaluation."""
    label, colour, style, marker = _LOOKS[split]
    seeds = part.pivot_table(index="round", columns="rand_seed", values="loss")
    low, high = np.array([interval(losses) for losses in seeds.to_numpy()]).T
    axis.fill_between(seeds.index, low, high, color=colour, alpha=0.2, lw=0)
    look = {"color": colour, "lw": 1.2, "marker": marker, "ms": 2.5, "markevery": 1 + len(seeds) // _MOST_MARKERS}
    axis.plot(seeds.index, seeds.mean(axis=1), style, label=label, **look)
    return [float(seeds.iloc[1:].min(axis=None)), float(seeds.iloc[1:].max(axis=None))]


def _trivial(axes: Iterable[Any], of_task: pd.DataFrame) -> float:
    """Draw the constant baseline's line in all panels of a task; returns its loss, a mean over runs."""
    label, colour, style = _TRIVIAL
    loss = float(of_task["trivial"].mean())
    for axis in axes:
        axis.axhline(loss, color=colour, ls=style, lw=1.2, label=label)
    return loss


def sensitivity(table: pd.DataFrame, images: str, argument: str, path: Path) -> Path:
    """Loss after the last round by the values of an argument, a panel per task and method with alpha.

    Points are means over seeds; `table` comes from `read_last`. Positive numbers are drawn on a logarithmic axis; if
    some value is not a positive number, all are categories. The IID partition does not depend on alpha: there, its loss
    is constant.
    """
    name = "α" if argument == "alpha" else argument
    title = f"Loss after the last round by {name}\n{MEASURED_ON[images]}, mean over {_seeds(table)}"
    return save(_panels(table, argument, title, name, table[argument].nunique(dropna=False))[0], path)


def privacy(table: pd.DataFrame, images: str, path: Path) -> Path:
    """Loss after the last round against epsilon, a panel per task and method with alpha.

    Points are means over seeds; `table` comes from `reports.curves.read_private`. Runs without noise, whose epsilon is
    infinite, stand at the right edge. The IID partition's loss is the same in all rows of a method.
    """
    finite = table.loc[np.isfinite(table["epsilon"]), "epsilon"]
    if finite.empty:
        raise UserError("no run has noise, so that epsilon is infinite; give --noise_multiplier to some")
    least, most = finite.min(), finite.max()
    edge = most * max(most / least, 10.0) ** 0.25  # of the axis, where infinity stands
    table = table.assign(epsilon=table["epsilon"].where(np.isfinite(table["epsilon"]), edge))
    deltas = " or ".join(f"{delta:.2g}" for delta in sorted(table["delta"].unique()))
    title = f"Loss after the last round by ε at δ = {deltas}\n{MEASURED_ON[images]}, mean over {_seeds(table)}"
    figure, panels = _panels(table, "epsilon", title, "ε")
    for axis in panels:
        axis.xaxis.set_major_locator(LogLocator(numticks=5))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        shown = [place for place in axis.get_xticks() if least / 2 < place < edge / 1.5]
        axis.set_xticks([*shown, edge], [*(f"{place:g}" for place in shown), "∞"])
    return save(figure, path)


def _panels(
    table: pd.DataFrame, argument: str, title: str, xlabel: str, n_values: int = 0
) -> tuple[Figure, list[Axes]]:
    """The losses by an argument, a panel for each setting (rows) and task (columns); one task's stand side by side.

    A setting is what the runs have as "method" and "alpha", but for the argument; IID runs do not count beside others,
    since their alpha says nothing. Returns the figure and its panels.
    """
    fixed = [name for name in ("method", "alpha") if name != argument]
    assigned, iid = table[table["type"] != "iid"], table[table["type"] == "iid"]
    if argument == "alpha" and not assigned.empty:
        iid = iid.drop(columns="alpha").merge(pd.DataFrame({"alpha": assigned["alpha"].unique()}), how="cross")
    settings = sorted({*(table if assigned.empty else assigned)[[*fixed]].itertuples(index=False, name=None)})
    rows = [dict(zip(fixed, values, strict=True)) for values in settings]
    tasks = in_order(table["task"])
    alone = len(tasks) == 1
    n_columns = min(len(rows), _ABREAST) if alone else len(tasks)
    row_tasks = [*product(rows, tasks)]
    n_rows = -(-len(row_tasks) // n_columns)
    figure, axes = _grid(n_rows, n_columns, title, _legend(table), "all" if alone else "col", n_values)
    for place, (axis, (row, task)) in enumerate(zip(axes.flat, row_tasks, strict=False)):
        labels = [f"α = {value:g}" if name == "alpha" else method_label(value) for name, value in row.items()]
        titles = [task_label(task), ", ".join(labels)]
        above, beside = reversed(titles) if alone else titles
        measure = table.loc[table["task"] == task, "measure"].iloc[0]
        axis.set(title=above if alone or place < n_columns else "")
        axis.set_ylabel(f"{beside}\n{measure}" if place % n_columns == 0 else "" if alone else measure)
        axis.set_xlabel(xlabel if place + n_columns >= len(row_tasks) else "")
        of_iid = _with(iid, {"task": task} | {name: value for name, value in row.items() if name != "alpha"})
        _points(axis, pd.concat([_with(assigned, {"task": task} | row), of_iid], ignore_index=True), argument)
        _trivial([axis], table[table["task"] == task])
    for axis in axes.flat[len(row_tasks) :]:
        axis.remove()
    return figure, [*axes.flat[: len(row_tasks)]]


def _with(table: pd.DataFrame, values: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that have these values."""
    return table[(table[[*values]] == pd.Series(dict(values))).all(axis=1)]


def _points(axis: Any, part: pd.DataFrame, argument: str) -> None:
    """Draw a panel's points with their intervals by the values of an argument, and label its axis with the values."""
    labels = part[argument].map(lambda value: float(value) if _is_number(value) else str(value))
    values = sorted(labels.unique(), key=lambda label: (isinstance(label, str), label))
    logarithmic = all(not isinstance(value, str) and value > 0 for value in values)
    place = {value: value if logarithmic else rank for rank, value in enumerate(values)}
    for shift, (split, (label, colour, style, marker)) in zip((-1, 0, 1), _LOOKS.items(), strict=True):
        groups = sorted(part.loc[part["type"] == split, "loss"].groupby(labels), key=lambda group: place[group[0]])
        x = np.array([place[value] for value, _ in groups], float)
        y = np.array([losses.mean() for _, losses in groups])
        low, high = np.array([interval(losses) for _, losses in groups]).reshape(-1, 2).T
        error = np.nan_to_num([y - low, high - y])
        # Side by side, so that intervals do not hide each other.
        x = x * (1 + 0.03 * shift) if logarithmic else x + 0.08 * shift
        look = {"color": colour, "lw": 1.2, "ms": 3.5, "capsize": 2}
        # Categories are not joined by lines.
        axis.errorbar(x, y, error, fmt=marker, ls=style if logarithmic else "", label=label, **look)
    names = [value if isinstance(value, str) else _short(value) for value in values]
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xticks(values, names)
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        names = [method_label(name) for name in names] if argument == "method" else names
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        axis.set_xlim(-0.5, len(names) - 0.5)


def _short(value: float) -> str:
    """A number under an axis, which has no room for many zeros."""
    return np.format_float_scientific(value, trim="-", exp_digits=1) if 0 < value < 1e-3 else f"{value:g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def distributions(assigned: Assigned, task: str, path: Path) -> Path:
    """The groups that clients have, a panel per partition (rows) and alpha (columns), as stacked bars.

    Partitions without an alpha stand in the last column. The target share in titles is the share of the target's
    variance that lies between clients. `assigned` comes from `read_assigned`; each row has a legend of its colours if
    they are few.
    """
    splits = [*(split for split in _LOOKS if split in assigned), *sorted(assigned.keys() - _LOOKS.keys())]
    alphas = sorted({alpha for of_split in assigned.values() for alpha in of_split}, key=lambda a: (a is None, a))
    figure, axes = _grid(len(splits), len(alphas), f"{task_label(task)}: images of each client by group")
    for row, split in enumerate(splits):
        for axis, alpha in zip(axes[row], alphas, strict=True):
            if alpha in assigned[split]:
                counts, share = assigned[split][alpha]
                stack(axis, counts)
                prefix = "" if alpha is None else f"α = {alpha:g}, "
                axis.set_title(f"{prefix}target share {share:.2f}", fontsize="medium")
            axis.set(xticks=[], xlabel=f"{len(counts)} clients" if row == len(splits) - 1 else "")
        axes[row, 0].set_ylabel(f"{partition_label(split)}\nimages")
        if (n_groups := counts.shape[1]) <= _MOST_IN_LEGEND:
            handles = [Patch(color=colour, label=str(group)) for group, colour in enumerate(palette(n_groups))]
            axes[row, -1].legend(
                handles=handles,
                title="cluster" if split == EMBEDDING else split.removesuffix("_based").replace("_", " "),
                loc="center left",
                bbox_to_anchor=(1.02, 0.5),
                fontsize="xx-small",
                title_fontsize="small",
                ncols=1 + (n_groups > 8),
            )
    return save(figure, path)


def _grid(
    n_rows: int,
    n_columns: int,
    title: str,
    handles: Sequence[Artist] = (),
    share: Literal["row", "col", "all"] = "row",
    n_values: int = 0,
) -> tuple[Figure, np.ndarray]:
    """A grid of panels between a title and a legend of `handles`.

    The panels of a row, of a column, or all, whichever show the same task, share their scale of values. They have room
    for the names of `n_values` under their axis.
    """
    panel_width, panel_height = _PANEL
    width = max(5.0, max(panel_width, _CATEGORY * n_values) * n_columns + 0.8)
    figure = Figure((width, panel_height * n_rows + 1.1), layout="constrained")
    lines = [fill(line, int(_LETTERS_AN_INCH * width)) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize="large")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=share)
    for axis in axes.flat:
        axis.grid(alpha=0.25, lw=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize="small")
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3 if width > 6.2 else 2, fontsize="small")
    return figure, axes


def _legend(table: pd.DataFrame, band: bool = False) -> list[Artist]:
    """The legend's entries: a table's partitions, the constant baseline and, with several seeds, the interval."""
    splits = [_LOOKS[split] for split in _LOOKS if split in set(table["type"])]
    handles: list[Artist] = [
        Line2D([], [], color=colour, ls=style, marker=marker, ms=4, label=label)
        for label, colour, style, marker in splits
    ]
    label, colour, style = _TRIVIAL
    handles.append(Line2D([], [], color=colour, ls=style, label=label))
    if table["rand_seed"].nunique() > 1:
        handles.append(Patch(color="black", alpha=0.2, lw=0, label=INTERVAL) if band else _BAR)
    return handles


def _seeds(table: pd.DataFrame) -> str:
    n = table["rand_seed"].nunique()
    return f"{n} seed{'s' * (n > 1)}"
