"""What every partition costs over the IID partition: by classes, by clusters of any features, and by natural groups.

And what the partition by clusters of embeddings costs over that by classes, which stand beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.compare import SETTING, Reference, compare, labels, of_random, setting, settings_of
from reports.learnt import NO
from reports.statistics import MARGIN, Change, increase, judged_rows, mean_text, with_spread
from reports.tables import BETWEEN_CLIENTS, COMPARED, SKEW, between_methods, in_settings
from utils.runs import MEASURED_ON

OVER_IID = f"loss over IID's (margin ±{MARGIN:g} %)"


def splits_over_iid(runs: pd.DataFrame) -> pd.DataFrame:
    """What each partition costs: `compare` over the reference `iid`; alpha is nan where it has no part in it.

    Empty if all runs are of IID partitions. `runs` comes from `reports.tables.read_runs`.
    """
    runs, keys = in_settings(runs, SETTING)
    table = compare(runs[runs["type"] != "iid"], keys, {"iid": of_random(runs, keys)})
    return table if table.empty else table.assign(alpha=table["alpha"].where(table["has_alpha"]))


def side_by_side(runs: pd.DataFrame) -> pd.DataFrame:
    """The embedding-based partition beside the class-based one, as `compare` over the references `iid` and `class`.

    What `compare` has of the embedding-based partition's runs is in `embedding`, `embedding_value` and
    `embedding_means`; `class_over_iid` is the other's `Change` over IID. Seeds without both partitions are left out.
    Empty if no setting has both.
    """
    runs, keys = in_settings(runs, SETTING)
    alike = [name for name in keys if name != "type"]
    assigned = runs[runs["type"].isin(f"{split}_based" for split in COMPARED)]
    both = assigned[assigned.groupby([*alike, "rand_seed"], dropna=False)["type"].transform("nunique") == 2]
    of_class = both["type"] == "class_based"
    table = compare(both[~of_class], keys, {"iid": of_random(runs, keys), "class": Reference(both[of_class], alike)})
    named = {"loss": "embedding"} | {name: f"embedding_{name}" for name in ("value", "means")}
    table = table.rename(columns=named).drop(columns=["type", "has_alpha"], errors="ignore")
    over_iid = [Change.of(increase(row["class"], row["iid"])) for row in table.to_dict("records")]
    return table.assign(class_over_iid=over_iid)


def _named(row: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    """The `labels` of a row of `splits_over_iid`, with alpha as text."""
    return labels({**row, "alpha": "" if np.isnan(row["alpha"]) else f"{row['alpha']:g}"}, *left_out)


def splits_table(table: pd.DataFrame) -> pd.DataFrame:
    """All of it as text: a row for each, with losses (mean ± standard deviation), the metric, and the skew.

    The increase over IID has its 95 % interval and a verdict, whose p is adjusted over all rows; there is none where
    the IID runs have not learnt the task.
    """
    rows, shown = [], SKEW | BETWEEN_CLIENTS
    for row in table.to_dict("records"):
        cells = _named(row) | _losses(row, "iid", "loss") | {"over IID, %": str(row["over_iid"])}
        cells |= {"metric": row["metric"], "metric, IID": f"{row['iid_value']:.3g}"}
        cells |= {"metric, partition": f"{row['value']:.3g}"}
        cells |= {label: f"{mean:.2f}" for name, label in shown.items() if (mean := row["means"][name]) == mean}
        rows.append((cells, row["over_iid"], row["learnt"] == NO))
    return judged_rows(OVER_IID, rows).fillna("").replace("nan", "–")


def increases(table: pd.DataFrame) -> pd.DataFrame:
    """The increases alone, as text: a row per task, method, partition and part of the data, a column per alpha.

    Values are in percent over the IID partition's loss, means over seeds with their 95 % intervals; those of partitions
    in which alpha has no part, such as natural groups, stand in a column of their own. The IID partition's and the
    constant baseline's loss stand beside them for scale.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    columns = {alpha: _of_alpha(alpha) for alpha in sorted(table["alpha"].unique(), key=lambda a: (np.isnan(a), a))}
    for row in table.to_dict("records"):
        about = _named(row, "alpha")
        cells = rows.setdefault(tuple(about.values()), about | _scale(row))
        cells[_of_alpha(row["alpha"])] = str(row["over_iid"])
    text = pd.DataFrame(rows.values()).fillna("")
    return text[[*(name for name in text if name not in columns.values()), *columns.values()]]


def _scale(row: Mapping[str, Any]) -> dict[str, str]:
    """The losses of the IID partition and, on the same images, of the constant baseline."""
    return {"constant baseline": mean_text(row["iid_trivial"], 3), "IID": with_spread(row["iid"], 3)}


def _of_alpha(alpha: float) -> str:
    return "without α, %" if np.isnan(alpha) else f"α = {alpha:g}, %"


def methods(table: pd.DataFrame) -> pd.DataFrame:
    """Losses by method, as text: mean ± standard deviation over seeds, three columns per task.

    A row per part of the data, method, partition, alpha and other setting. Arguments that tell a task's methods apart,
    such as the learning rate of each, stand beside the task's losses. Empty where no task has two methods.
    """
    if table.empty or table.groupby("task")["method"].nunique().max() < 2:
        return pd.DataFrame()
    settings = settings_of(table)
    rates = between_methods(settings, [name for name in settings if name not in SETTING])
    rows: dict[tuple, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        about = _named(row, "task", "learnt", *rates)
        cells, task = rows.setdefault(tuple(about.values()), about), row["task"]
        cells |= {f"{task}, {name}": row["more"][name] for name in rates if row["more"][name]}
        cells[f"{task}, constant baseline"] = trivial_text(4, row["iid_trivial"], row["trivial"])
        cells[f"{task}, IID"] = with_spread(row["iid"], 4) + " (not learnt)" * (row["learnt"] == NO)
        cells[f"{task}, loss"] = with_spread(row["loss"], 4)
    order = [*MEASURED_ON.values()].index
    return pd.DataFrame(sorted(rows.values(), key=lambda cells: order(cells["data"]))).fillna("")


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The comparison as text: losses with mean ± standard deviation over seeds, increases with their 95 % intervals."""
    rows = []
    for row in table.to_dict("records"):
        skew = {
            f"{label} class / embedding": f"{row['class_means'][name]:.2f} / {row['embedding_means'][name]:.2f}"
            for name, label in SKEW.items()
            if np.isfinite(row["class_means"][name])
        }
        rows.append(labels(row) | _losses(row, "iid", "class", "embedding") | _increases(row) | skew)
    return pd.DataFrame(rows)


def _losses(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The number of seeds, the constant baseline's loss, and those in these columns, the last of which is the row's."""
    of_trivial = [row[f"{name}_trivial"] for name in names[:-1]]
    cells = {"seeds": len(row["seeds"]), "constant baseline": trivial_text(4, *of_trivial, row["trivial"])}
    return cells | {"IID" if name == "iid" else name: with_spread(row[name], 4) for name in names}


def in_short(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The comparison in narrow tables, one per method, model and part of the data, each with its title.

    As text, in 100 columns: the constant baseline's and the runs' loss, both under the IID partition, and the increases
    in percent with 95 % intervals; an asterisk marks what has not been learnt under IID. Where there are more methods
    than tasks, it is one per task. Global test comes last, where a reader of the console looks first.
    """
    order = {images: rank for rank, images in enumerate(sorted(MEASURED_ON, key=lambda images: images == "test"))}
    last = table.sort_values("images", key=lambda column: column.map(order), kind="stable")
    apart = "task" if table["method"].nunique() > table["task"].nunique() else "method"
    for (images, named, model), part in last.groupby(["images", apart, "model"], sort=False):
        rows = [
            {name: value for name, value in setting(row).items() if name not in {apart, "alpha"}}
            | {
                "α": f"{row['alpha']:g}",
                "constant baseline, IID": mean_text(row["iid_trivial"], 3),
                "IID": mean_text(row["iid"], 3) + "*" * (row["learnt"] == NO),
            }
            | _increases(row)
            for row in part.to_dict("records")
        ]
        yield f"{named}, {model} model, {MEASURED_ON[images]}", pd.DataFrame(rows)


def _increases(row: Mapping[str, Any]) -> dict[str, str]:
    """What both partitions cost over IID, and one over the other."""
    over = {"class over IID": row["class_over_iid"], "embedding over IID": row["over_iid"]}
    over |= {"embedding over class": row["over_class"]}
    return {f"{name}, %": str(change) for name, change in over.items()}


def trivial_text(digits: int, *of_splits: np.ndarray) -> str:
    """The constant baseline's mean losses under these partitions: one where they agree, else all, in their order.

    Partitions without runs are left out.
    """
    means = [mean_text(np.asarray(values), digits) for values in of_splits if np.isfinite(values).any()]
    return " / ".join(means if len({*means}) > 1 else means[:1]) or "–"
