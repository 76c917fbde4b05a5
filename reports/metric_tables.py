"""Every metric of a task in one table: the constant baseline, the central model and the federated runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from datasets.tasks import TASKS
from network.attacks import ATTACKS
from network.partition.rules import uses_alpha
from network.partition.settings import AssignSettings, PartitionSettings
from reports.files import write_table
from reports.finished import Results
from reports.statistics import with_spread
from reports.tables import NOT_IID, as_text, between_methods, differing, groups
from utils.runs import COLUMNS, MEASURED_ON
from utils.stage import key

_MODELS = {"global": "", "personal": ", own models", "received": ", received"}
_IID = "IID"
_SPLITS = (_IID, "class", "embedding")  # the first in order; natural groups follow
_ROW = ["data", "model", "type", "alpha"]
_NO_ARGUMENT = {"task", *_ROW, "seed", "values"}  # columns of `read_metrics`
_TRIVIAL, _CENTRAL = "constant baseline", "central"
_ZERO = [task.zero for task in TASKS.values() if task.zero]  # what predictions of zeros are called
# The arguments that a constant baseline's values depend on: what images and targets are, and which clients there are.
_OF_IMAGES = {"image_size", "depth_target", "published_quirks", "classes", "test_mode"}
_OF_PARTICIPANTS = _OF_IMAGES | {"train_clients"}
_OF_CLIENTS = _OF_IMAGES.union(
    NOT_IID,
    (option.name for settings in (AssignSettings, PartitionSettings) for option in fields(settings)),
    {"evaluate_clients", "attack"}.union(*(attack.arguments for attack in ATTACKS.values())),
)


def read_metrics(results: Results) -> pd.DataFrame:
    """The loss and the metrics of all finished runs, one row per run, model and part of the data.

    Columns `task`, `data`, `model`, `type`, `alpha` (nan where it is not used) and `seed` say what is measured,
    `values` is a dictionary of the loss and the metrics. The rest are the run's other arguments, as text. Empty without
    runs.
    """
    rows = []
    for _, args, summary, _ in results["train_centralized"]:
        of_all = args.get("train_clients", "all") == "all"
        only = _OF_IMAGES if of_all else _OF_PARTICIPANTS
        rows.append(_row(args, summary["trivial"], data="test", model=_TRIVIAL, only=only))
        for name, values in summary.get("zero", {}).items():
            rows.append(_row(args, values, data="test", model=name, only=_OF_IMAGES))
        rows.append(_row(args, summary["test"], data="test", model=_CENTRAL))
    for _, args, summary, _ in results["test_federated"]:
        rows.extend(_federated_rows(args, summary["last"], summary["trivial"]))
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    return table.drop_duplicates([name for name in table if name != "values"], keep="last").reset_index(drop=True)


def write_metrics(results: Results, folder: Path) -> None:
    """Write each task's `metric_table`."""
    metrics = read_metrics(results)
    for task in dict.fromkeys(metrics.get("task", [])):
        write_table(metric_table(metrics, task), folder / f"metrics_{task}")


def metric_table(metrics: pd.DataFrame, task: str) -> pd.DataFrame:
    """One task's table as text: a row per part of the data, model and partition, mean ± standard deviation over seeds.

    Arguments that differ between the runs of a model become columns, so that no two settings are ever mixed, and so do
    those that tell methods apart.
    """
    part = metrics[metrics["task"] == task]
    values = pd.DataFrame(metrics["values"].tolist()).loc[part.index].dropna(axis=1, how="all")
    # A constant baseline says the clients' arguments only where it is that of clients.
    compared = part.assign(assigned=part["type"] != "")
    arguments_of_methods = [name for name in part if name not in _NO_ARGUMENT]
    of_runs = part[(part["type"] != "") & (part["model"] != _TRIVIAL)].rename(columns={"model": "method"})
    shown = {
        *differing(compared, arguments_of_methods, ["model", "data", "assigned"]),
        *between_methods(of_runs, arguments_of_methods),
    }
    arguments = [name for name in arguments_of_methods if name in shown]
    order = {name: rank for rank, name in enumerate([*MEASURED_ON, _TRIVIAL, *_ZERO, _CENTRAL, "", *_SPLITS])}
    part = part.sort_values(
        _ROW,
        key=lambda column: column if column.name == "alpha" else column.map(lambda v: (order.get(v, 99), v)),
        na_position="first",
        kind="stable",
    )
    rows = []
    for row, group in groups(part, [*_ROW, *arguments]):
        row["data"], row["alpha"] = MEASURED_ON[row["data"]], "" if pd.isna(row["alpha"]) else f"{row['alpha']:g}"
        # One value per seed: the constant baseline's comes with every run.
        by_seed = values.loc[group.index].groupby(group["seed"]).mean()
        rows.append(row | {"seeds": len(by_seed)} | {name: with_spread(by_seed[name], 4) for name in by_seed})
    return pd.DataFrame(rows).fillna("")


def _federated_rows(
    args: Mapping[str, Any], last: Mapping[str, float], trivial: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    split = _IID if args["type"] == "iid" else args["type"].removesuffix("_based")
    alpha = args["alpha"] if uses_alpha(args["type"], args.get("partition")) else None
    for data, values in trivial.items():
        # A mean over clients depends on which images they have; the common images are the same under every partition,
        # but for the images of non-participating clients, which the predictor is not made from.
        if data == "test" and not args.get("non_participating_clients"):
            yield _row(args, values, data=data, model=_TRIVIAL, only=_OF_IMAGES)
        else:
            yield _row(args, values, data=data, model=_TRIVIAL, split=split, alpha=alpha, only=_OF_CLIENTS)
    names = list(trivial["test"])
    for (whose, data), column in COLUMNS.items():
        values = {name: last[column.format(name)] for name in names if column.format(name) in last}
        if any(pd.notna(value) for value in values.values()):
            yield _row(args, values, data=data, model=args["method"] + _MODELS[whose], split=split, alpha=alpha)


def _row(
    args: Mapping[str, Any],
    values: Mapping[str, float],
    *,
    data: str,
    model: str,
    split: str = "",
    alpha: float | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """One row, with the run's arguments or only those that are `only`."""
    others = key(args).keys() - {"task", "method", "type", "alpha", "rand_seed"}
    names = others if only is None else others.intersection(only)
    row = {"task": args["task"], "data": data, "model": model, "type": split, "alpha": alpha, "seed": args["rand_seed"]}
    return row | {name: as_text(value) for name, value in args.items() if name in names} | {"values": values}
