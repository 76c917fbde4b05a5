"""What every split costs over the IID split: by classes, by clusters of any features, and by natural groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.learnt import NO, learnt
from reports.statistics import MARGIN, increase, judged_rows, mean_text, with_interval, with_spread
from reports.tables import BETWEEN_CLIENTS, SKEW, assigned_by_alpha, between_methods, by_seed, settings, trivial_text
from utils.runs import MEASURED_ON

OVER_IID = f"loss over IID's (margin ±{MARGIN:g} %)"


def splits_over_iid(runs: pd.DataFrame) -> pd.DataFrame:
    """What each split costs: a row per task, method, split, alpha, other setting and part of the data (`images`).

    Columns: task, method, split (the `--type` without `_based`), alpha (nan where it is not used), `more` (a dictionary
    of the `reports.tables.varying_arguments`, as text), images, model, seeds, arrays over these seeds with the losses
    `loss` and `iid`, and the constant baseline's on the images of either (`trivial`, `iid_trivial`), the mean of the
    task's `metric` under the split (`of_split`) and under IID (`of_iid`), whether the IID runs have `learnt` the task,
    and `skew`, a dictionary of the split's mean skew by its label. Seeds without an IID run have nan there. Rows are in
    the order of task, method, split and alpha. Empty if all runs are of IID splits. `runs` comes from
    `reports.tables.read_runs`.
    """
    rows: list[dict[str, Any]] = []
    for fixed, part, iid in settings(runs, ["task", "method", "type", "alpha"]):
        of, kind, alpha = by_seed(part), fixed.pop("type"), fixed.pop("alpha")
        shown = SKEW | BETWEEN_CLIENTS
        labels = {name: fixed.pop(name) for name in ("task", "method")}
        labels |= {
            "split": kind.removesuffix("_based"),
            "alpha": alpha if assigned_by_alpha(of, kind) else np.nan,
            "more": fixed,
            "skew": {label: of[name].mean() for name, label in shown.items() if of[name].notna().any()},
            "seeds": [*of.index],
            "metric": of["metric"].iloc[0],
        }
        same = iid.reindex(of.index)
        for images in MEASURED_ON:
            if of[f"{images}_loss"].notna().any():
                losses = {"loss": of[f"{images}_loss"], "iid": same[f"{images}_loss"]}
                losses |= {"trivial": of[f"{images}_trivial"], "iid_trivial": same[f"{images}_trivial"]}
                rows.append(
                    labels
                    | {name: values.to_numpy(float) for name, values in losses.items()}
                    | {"images": images, "model": of[f"{images}_model"].iloc[0], "learnt": learnt(iid, images)}
                    | {f"of_{name}": of[f"{images}_metric"].mean() for name, of in (("split", of), ("iid", same))}
                )
    return pd.DataFrame(rows)


def _named(row: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    """The setting, model and data of a row in the words of tables."""
    alpha = "" if np.isnan(row["alpha"]) else f"{row['alpha']:g}"
    cells = {name: row[name] for name in ("task", "method", "split")} | {"alpha": alpha} | row["more"]
    cells |= {"model": row["model"], "data": MEASURED_ON[row["images"]], "learnt": row["learnt"]}
    return {name: value for name, value in cells.items() if name not in left_out}


def splits_table(table: pd.DataFrame) -> pd.DataFrame:
    """All of it as text: a row for each, with losses (mean ± standard deviation), the metric, and the skew.

    The increase over IID has its 95 % interval and a verdict, whose p is adjusted over all rows; there is none where
    the IID runs have not learnt the task.
    """
    rows = []
    for row in table.to_dict("records"):
        change = increase(row["loss"], row["iid"])
        cells = (
            _named(row)
            | {
                "seeds": len(row["seeds"]),
                "trivial": trivial_text(4, row["iid_trivial"], row["trivial"]),
                "IID": with_spread(row["iid"], 4),
                "loss": with_spread(row["loss"], 4),
                "over IID, %": with_interval(change, 1, "+"),
                "metric": row["metric"],
                "metric, IID": f"{row['of_iid']:.3g}",
                "metric, split": f"{row['of_split']:.3g}",
            }
            | {label: f"{value:.2f}" for label, value in row["skew"].items()}
        )
        rows.append((cells, change, row["learnt"] == NO))
    return judged_rows(OVER_IID, rows).fillna("").replace("nan", "–")


def increases(table: pd.DataFrame) -> pd.DataFrame:
    """The increases alone, as text: a row per task, method, split and part of the data, a column per alpha.

    Values are in percent over the IID split's loss, means over seeds with their 95 % intervals; those of splits in
    which alpha has no part, such as natural groups, stand in a column of their own. The IID split's and the constant
    baseline's loss stand beside them for scale.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    columns = {alpha: _of_alpha(alpha) for alpha in sorted(table["alpha"].unique(), key=lambda a: (np.isnan(a), a))}
    for row in table.to_dict("records"):
        labels = _named(row, "alpha")
        cells = rows.setdefault(tuple(labels.values()), labels | _scale(row))
        cells[_of_alpha(row["alpha"])] = with_interval(increase(row["loss"], row["iid"]), 1, "+")
    text = pd.DataFrame(rows.values()).fillna("")
    return text[[*(name for name in text if name not in columns.values()), *columns.values()]]


def _scale(row: Mapping[str, Any]) -> dict[str, str]:
    """The losses of the IID split and, on the same images, of the constant baseline."""
    return {"trivial": mean_text(row["iid_trivial"], 3), "IID": with_spread(row["iid"], 3)}


def _of_alpha(alpha: float) -> str:
    return "without α, %" if np.isnan(alpha) else f"α = {alpha:g}, %"


def methods(table: pd.DataFrame) -> pd.DataFrame:
    """Losses by method, as text: mean ± standard deviation over seeds, three columns per task.

    A row per part of the data, method, split, alpha and other setting. Arguments that tell a task's methods apart, such
    as the learning rate of each, stand beside the task's losses. Empty where no task has two methods.
    """
    if table.empty or table.groupby("task")["method"].nunique().max() < 2:
        return pd.DataFrame()
    more = pd.DataFrame(table["more"].tolist(), table.index)
    rates = between_methods(table[["task", "method"]].join(more), [*more])
    rows: dict[tuple, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        labels = _named(row, "task", "learnt", *rates)
        cells, task = rows.setdefault(tuple(labels.values()), labels), row["task"]
        cells |= {f"{task}, {name}": row["more"][name] for name in rates if row["more"][name]}
        cells[f"{task}, trivial"] = trivial_text(4, row["iid_trivial"], row["trivial"])
        cells[f"{task}, IID"] = with_spread(row["iid"], 4) + " (not learnt)" * (row["learnt"] == NO)
        cells[f"{task}, loss"] = with_spread(row["loss"], 4)
    order = [*MEASURED_ON.values()].index
    return pd.DataFrame(sorted(rows.values(), key=lambda cells: order(cells["data"]))).fillna("")
