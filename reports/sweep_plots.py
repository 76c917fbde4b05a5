"""The figures of whole sweeps: loss by round, and how sensitive it is to an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from reports.curves import Dealt
from reports.statistics import interval
from reports.tables import increase
from utils.partition_plots import stack
from utils.plots import COLOURS, save
from utils.runs import SPLITS

# What is dealt, its colour and its line.
_KINDS = {
    "iid": ("IID", "#555555", "--"),
    "class_based": ("class-based", COLOURS["class"], "-"),
    "embedding_based": ("embedding-based", COLOURS["embedding"], "-"),
}
_TRIVIAL = ("trivial predictor", "#555555", ":")
_PANEL = (2.5, 1.9)  # inches
_LETTERS_AN_INCH = 10  # of a title, at least


def rounds(table: pd.DataFrame, split: str, method: str, path: Path) -> Path:
    """Loss by round, a panel a task (rows) and alpha (columns); `table` comes from `read_rounds`.

    Lines are means over seeds; their bands the spread over seeds, and the wide pale ones that over clients, as
    standard deviations. The random split and the trivial predictor know no alpha: their lines are the same in all
    panels of a task.
    """
    table = table[table["method"] == method]
    tasks = list(dict.fromkeys(table["task"]))
    alphas = sorted(table.loc[table["type"] != "iid", "alpha"].unique()) or [np.nan]
    title = f"{method}: loss by round, {SPLITS[split]}, mean over {_seeds(table)}"
    bands = [Patch(color="black", alpha=0.3, lw=0, label="± std over seeds"),
             Patch(color="black", alpha=0.12, lw=0, label="± std over clients")]  # fmt: skip
    figure, axes = _grid(len(tasks), len(alphas), title, bands)
    for row, task in enumerate(tasks):
        of_task = table[table["task"] == task]
        # The first evaluation is of the untrained model; were it in view, nothing else could be told apart.
        in_view = [_trivial(axes[row], of_task)]
        for (column, alpha), kind in product(enumerate(alphas), _KINDS):
            part = of_task[of_task["type"] == kind]
            part = part if kind == "iid" else part[part["alpha"] == alpha]
            if not part.empty:
                in_view.extend(_line(axes[row, column], part, kind))
        low, high = np.nanmin(in_view), np.nanmax(in_view)
        margin = 0.05 * (high - low)
        axes[row, 0].set(ylabel=f"{task}\nloss", ylim=(low - margin, high + margin))
    for axis, alpha in zip(axes[0], alphas, strict=True):
        axis.set_title(f"α = {alpha:g}")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    return save(figure, path, print_too=True)


def _line(axis: Any, part: pd.DataFrame, kind: str) -> tuple[float, float]:
    """A split's line with its bands; returns the lowest and highest value after the first evaluation."""
    label, colour, style = _KINDS[kind]
    seeds = part.pivot_table(index="round", columns="rand_seed", values="mean")
    clients = part.groupby("round")["std"].mean().fillna(0.0)
    mean, spread = seeds.mean(axis=1), seeds.std(axis=1, ddof=1).fillna(0.0)
    bands = [(spread, 0.3)] if kind == "iid" else [(clients, 0.12), (spread, 0.3)]
    for band, opacity in bands:
        axis.fill_between(mean.index, mean - band, mean + band, color=colour, alpha=opacity, lw=0)
    axis.plot(mean.index, mean, style, color=colour, lw=1.4, label=label)
    widest = np.max([band for band, _ in bands], axis=0)
    return float((mean - widest).iloc[1:].min()), float((mean + widest).iloc[1:].max())


def _trivial(axes: Iterable[Any], of_task: pd.DataFrame) -> float:
    """The trivial predictor's line in all panels of a task; returns its loss, a mean over runs."""
    label, colour, style = _TRIVIAL
    loss = float(of_task["trivial"].mean())
    for axis in axes:
        axis.axhline(loss, color=colour, ls=style, lw=1.2, label=label)
    return loss


def sensitivity(table: pd.DataFrame, split: str, argument: str, path: Path) -> Path:
    """Loss after the last round by the values of an argument, a panel a task (columns) and method with alpha (rows).

    Points are means over seeds with their 95 % t intervals; `table` comes from `read_last`. Positive numbers stand on
    a logarithmic axis; where some value is none, all are categories. The random split knows no alpha: along that, its
    loss is the same.
    """
    dealt, iid = table[table["type"] != "iid"], table[table["type"] == "iid"]
    if argument == "alpha" and not dealt.empty:
        iid = iid.drop(columns="alpha").merge(pd.DataFrame({"alpha": dealt["alpha"].unique()}), how="cross")
    fixed = [name for name in ("method", "alpha") if name != argument]
    rows = sorted({*(iid if dealt.empty else dealt)[fixed].itertuples(index=False, name=None)})
    tasks = list(dict.fromkeys(table["task"]))
    title = f"Sensitivity to {argument}: loss after the last round, {SPLITS[split]}, mean over {_seeds(table)}"
    figure, axes = _grid(len(rows), len(tasks), title, share="col")
    for (row, values), (column, task) in product(enumerate(rows), enumerate(tasks)):
        axis, setting = axes[row, column], dict(zip(fixed, values, strict=True))
        of_iid = _with(iid, {"task": task} | {name: value for name, value in setting.items() if name != "alpha"})
        _points(axis, pd.concat([_with(dealt, {"task": task} | setting), of_iid], ignore_index=True), argument)
        _trivial([axis], table[table["task"] == task])
        axis.set(title=task if row == 0 else "", xlabel=argument if row == len(rows) - 1 else "")
        said = ", ".join(f"α = {value:g}" if name == "alpha" else value for name, value in setting.items())
        axis.set_ylabel(f"{said}\nloss" if column == 0 else "")
    return save(figure, path, print_too=True)


def _with(table: pd.DataFrame, values: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that have these values."""
    return table[(table[[*values]] == pd.Series(dict(values))).all(axis=1)]


def _points(axis: Any, part: pd.DataFrame, argument: str) -> None:
    """A panel's points with their intervals by the values of an argument, and its axis with these values."""
    labels = part[argument].map(lambda value: float(value) if _is_number(value) else str(value))
    values = sorted(labels.unique(), key=lambda label: (isinstance(label, str), label))
    logarithmic = all(not isinstance(value, str) and value > 0 for value in values)
    place = {value: value if logarithmic else rank for rank, value in enumerate(values)}
    for shift, (kind, (label, colour, style)) in zip((-1, 0, 1), _KINDS.items(), strict=True):
        groups = sorted(part.loc[part["type"] == kind, "mean"].groupby(labels), key=lambda group: place[group[0]])
        x = np.array([place[value] for value, _ in groups], float)
        y = np.array([losses.mean() for _, losses in groups])
        low, high = np.array([interval(losses) for _, losses in groups]).reshape(-1, 2).T
        error = np.nan_to_num([y - low, high - y])
        # Side by side, so that intervals do not hide each other.
        x = x * (1 + 0.03 * shift) if logarithmic else x + 0.08 * shift
        # Lines between categories would mean nothing.
        axis.errorbar(
            x, y, error, fmt="o", ls=style if logarithmic else "", ms=3.5, capsize=2, lw=1.2, color=colour, label=label
        )
    names = [value if isinstance(value, str) else f"{value:g}" for value in values]
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xticks(values, names)
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        axis.set_xlim(-0.5, len(names) - 0.5)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def distributions(dealt: Dealt, task: str, path: Path) -> Path:
    """The clusters and classes that clients have, a panel a split (rows) and alpha (columns), as stacked bars.

    `dealt` comes from `read_dealings`; a colour is a cluster or class, in their order.
    """
    kinds = [kind for kind in _KINDS if dealt.get(kind)]
    alphas = sorted({alpha for kind in kinds for alpha in dealt[kind]})
    figure, axes = _grid(len(kinds), len(alphas), f"{task}: what clients have, a colour a cluster or class", None)
    for (row, kind), (column, alpha) in product(enumerate(kinds), enumerate(alphas)):
        axis = axes[row, column]
        if alpha in dealt[kind]:
            counts, emd = dealt[kind][alpha]
            stack(axis, counts)
            axis.set_title(f"{f'α = {alpha:g}, ' if row == 0 else ''}EMD {emd:.2f}", fontsize="medium")
        axis.set(xticks=[], xlabel=f"{len(counts)} clients" if row == len(kinds) - 1 else "")
        axis.set_ylabel(f"{_KINDS[kind][0]}\nimages" if column == 0 else "")
    return save(figure, path, print_too=True)


def _grid(
    n_rows: int, n_columns: int, title: str, more: Sequence[Patch] | None = (), share: Literal["row", "col"] = "row"
) -> tuple[Figure, np.ndarray]:
    """Panels under a title and over a legend of the splits, the trivial predictor and `more`; without one for None.

    Those of a row, or of a column, share the scale of values: the ones that show the same task.
    """
    panel_width, panel_height = _PANEL
    width = max(5.0, panel_width * n_columns + 0.8)
    figure = Figure((width, panel_height * n_rows + 1.1), layout="constrained")
    figure.suptitle(fill(title, int(_LETTERS_AN_INCH * width)), fontsize="large")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=share)
    for axis in axes.flat:
        axis.grid(alpha=0.25, lw=0.6)
        axis.tick_params(labelsize="small")
    if more is not None:
        handles = [axes[0, 0].plot([], [], style, color=colour, label=label)[0]
                   for label, colour, style in (*_KINDS.values(), _TRIVIAL)]  # fmt: skip
        figure.legend(handles=[*handles, *more], loc="outside lower center", ncols=3, fontsize="small")
    return figure, axes


def _seeds(table: pd.DataFrame) -> str:
    n = table["rand_seed"].nunique()
    return f"{n} seed{'s' * (n > 1)}"


def comparison(table: pd.DataFrame, path: Path) -> Path:
    """Relative loss increase over the IID split by task, method, alpha and data split.

    A panel a task and data split; for each method and alpha a bar for class-based and one for embedding-based
    partitions with the standard deviation over seeds, and a dot a seed. `table` comes from `reports.tables.compare`.
    """
    tasks, splits = list(dict.fromkeys(table["task"])), [name for name in SPLITS if name in set(table["split"])]
    settings = list(dict.fromkeys(zip(table["method"], table["alpha"], strict=True)))
    height = max(1.5, 0.34 * len(settings) + 0.5)
    figure = Figure((3.4 * len(tasks) + 1.6, height * len(splits) + 1.0), layout="constrained")
    axes = figure.subplots(len(splits), len(tasks), squeeze=False, sharey=True)
    for (row, split), (column, task) in product(enumerate(splits), enumerate(tasks)):
        axis = axes[row, column]
        part = table[(table["split"] == split) & (table["task"] == task)]
        for y, (method, alpha) in enumerate(settings):
            for record in part[(part["method"] == method) & (part["alpha"] == alpha)].to_dict("records"):
                _increase_bars(axis, y, record)
        axis.axvline(0, color="black", lw=0.8)
        axis.set_yticks(range(len(settings)), [f"{method}, α = {alpha:g}" for method, alpha in settings])
        axis.set_ylim(len(settings) - 0.4, -0.6)
        if row == 0:
            axis.set_title(task)
        if column == 0:
            axis.set_ylabel(SPLITS[split])
        if row == len(splits) - 1:
            axis.set_xlabel("loss over IID split, %")
    handles = [Patch(color=colour, label=f"{kind}-based") for kind, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return save(figure, path)


def _increase_bars(axis: Any, y: float, record: Mapping[str, Any]) -> None:
    """The two bars of one setting, around height `y`."""
    for offset, (kind, colour) in zip((-0.18, 0.18), COLOURS.items(), strict=True):
        values = increase(record[kind], record["iid"])
        values = values[np.isfinite(values)]  # seeds without an IID run have nothing to stand over
        if len(values):
            error = values.std(ddof=1) if len(values) > 1 else 0.0
            axis.barh(y + offset, values.mean(), 0.34, xerr=error, capsize=2, color=colour)
            axis.plot(values, np.full(len(values), y + offset), ".", color="black", ms=4)
