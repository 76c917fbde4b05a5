"""Runs beside the reference runs of the same seeds, such as those of IID clients: one form for all tables of costs.

Runs are grouped by their setting; each is paired with the reference run of its seed whose setting is alike; and what is
said of a setting is the increase of the loss over that of the partners, seed by seed. Its mean, 95 % interval and
verdict are those of `reports.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from network.partition.rules import uses_alpha
from reports.learnt import learnt
from reports.statistics import Change, increase
from reports.tables import MEASURES, NOT_IID, SPENT, groups, in_settings
from utils.runs import MEASURED_ON

SETTING = ("task", "method", "type", "alpha")


class Reference(NamedTuple):
    """What runs are compared with: reference runs, and the columns in which a run and its partner are alike."""

    runs: pd.DataFrame
    alike: Sequence[str]
    loosely: bool = False  # alike is also what only one of the two has a value of; a choice of partners is none

    def partners(self, setting: Mapping[str, Any]) -> pd.DataFrame:
        """The reference runs for this setting, by seed."""
        agree = [
            self.runs[name].isin([value, ""]) | (value == "") if self.loosely else self.runs[name] == value
            for name, value in ((name, setting[name]) for name in self.alike)
        ]
        found = self.runs[np.logical_and.reduce(agree)]
        return by_seed(found[:0] if self.loosely and not found["rand_seed"].is_unique else found)


def of_random(runs: pd.DataFrame, keys: Sequence[str]) -> Reference:
    """The IID runs, whatever their values of arguments that a random partition does not use, such as alpha."""
    return Reference(runs[runs["type"] == "iid"], [name for name in keys if name not in NOT_IID])


def by_seed(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a setting by seed, in order; the last one where a seed was run twice."""
    return runs.drop_duplicates("rand_seed", keep="last").set_index("rand_seed").sort_index()


def settings(
    runs: pd.DataFrame, by: Sequence[str] = SETTING
) -> Iterator[tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]]:
    """Yields each setting with its runs of partitions other than IID, and the IID runs, by seed, beside them."""
    runs, keys = in_settings(runs, by)
    iid = of_random(runs, keys)
    for fixed, part in groups(runs[runs["type"] != "iid"], keys, in_order=True):
        yield fixed, part, iid.partners(fixed)


def compare(
    runs: pd.DataFrame, keys: Sequence[str], over: Mapping[str, Reference], in_order: bool = True
) -> pd.DataFrame:
    """The runs of each setting beside those of each reference: a row per setting and part of the data with a loss.

    Columns: task, method, type (the `--type` without `_based`) and alpha, as far as they are `keys`, whether alpha (in
    `has_alpha`) has a part in the partition, `more` (a dictionary of the other `keys`), `images` (which part of the
    data), model (whose losses: of the global model or of personal ones), `metric` (its name), seeds; arrays over these
    seeds: `loss`, and `trivial`, the constant baseline's; `value`, the mean of the metric, and `means`, a dictionary of
    those of a partition's measures and of what privacy was spent. Of each reference, by its name in `over`, such as
    `iid`: `iid` (the losses), `iid_trivial`, `iid_value` and `iid_means` of the same seeds, nan for those without a
    partner, and `over_iid`, the `Change` of the loss over theirs. `learnt` says whether the runs of the reference `iid`
    have learnt the task.

    Args:
        runs: as `reports.tables.read_runs` makes them, those to be compared.
        keys: the columns whose values are a setting, those of `SETTING` first.
        over: the references.
        in_order: of the keys' values; otherwise settings come in the order of their first runs.
    """
    rows = []
    for setting, part in groups(runs, keys, in_order):
        of, more = by_seed(part), {name: value for name, value in setting.items() if name not in SETTING}
        partners = {name: reference.partners(setting) for name, reference in over.items()}
        beside = {name: found.reindex(of.index) for name, found in partners.items()}
        labels = {name: setting[name] for name in SETTING if name in setting} | {"more": more}
        if kind := setting.get("type"):
            labels |= {"type": kind.removesuffix("_based"), "has_alpha": assigned_by_alpha(of, kind)}
        labels |= {"seeds": [*of.index], "means": _means(of)}
        labels |= {f"{name}_means": _means(found) for name, found in beside.items()}
        for images in MEASURED_ON:
            if of[f"{images}_loss"].isna().all():
                continue
            row = labels | {"images": images, "model": of[f"{images}_model"].iloc[0], "metric": of["metric"].iloc[0]}
            row |= _measured(of, images, "loss", "")
            for name, found in beside.items():
                row |= _measured(found, images, name, f"{name}_")
                row[f"over_{name}"] = Change.of(increase(row["loss"], row[name]))
            rows.append(row | ({"learnt": learnt(partners["iid"], images)} if "iid" in partners else {}))
    return pd.DataFrame(rows)


def _measured(runs: pd.DataFrame, images: str, name: str, prefix: str) -> dict[str, Any]:
    """What these runs have measured on a part of the data, in the columns of `compare`."""
    arrays = {name: f"{images}_loss", f"{prefix}trivial": f"{images}_trivial"}
    values = {of: runs[column].to_numpy(float) for of, column in arrays.items()}
    return values | {f"{prefix}value": runs[f"{images}_metric"].mean()}


def _means(runs: pd.DataFrame) -> dict[str, float]:
    """Those of a partition's measures, and of what privacy was spent."""
    return {column: runs[column].mean() for column in (*MEASURES, *SPENT.values()) if column in runs}


def assigned_by_alpha(runs: pd.DataFrame, kind: str) -> bool:
    """Whether alpha has a part in what these runs of a `--type` have assigned."""
    return any(uses_alpha(kind, rule) for rule in runs.get("partition", [None]))


def labels(row: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    """The setting, model and data of a row of `compare`, in the words of tables."""
    cells = setting(row) | {"model": row["model"], "data": MEASURED_ON[row["images"]], "learnt": row["learnt"]}
    return {name: value for name, value in cells.items() if name not in left_out}


def setting(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task, method, partition, alpha and further arguments of a row of `compare`."""
    return {name: row[name] for name in SETTING if name in row} | row["more"]


def settings_of(table: pd.DataFrame) -> pd.DataFrame:
    """The `setting` of each row, empty text where it has no such argument: a table with the same index."""
    return pd.DataFrame([setting(row) for row in table.to_dict("records")], table.index).fillna("")
