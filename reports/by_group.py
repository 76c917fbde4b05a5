"""How well clients of each natural group are served, such as those of each domain: the table of feature-shift papers.

FedBN (Li et al. 2021, arXiv 2102.07623, table 1) and those after it have a column for each domain, and their mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.clients import CLIENTS_FILE
from reports.finished import Finished, finished_runs
from reports.statistics import bounds, finite, interval
from reports.tables import as_text, differing
from utils.runs import ASIDE

_MOST = 20  # groups that find room beside each other
_KEYS = ["task", "method"]


def group_tables(result_path: Path, metric: str) -> dict[str, pd.DataFrame]:
    """By the column of the groups, a table as text: a row per task, method and setting, a column per group.

    It has the runs in which each client's images are of one group, and clients are of 2 to 20 groups. Values are those
    of the metric on the clients' held-out images (of the loss, for tasks without this metric), with the clients' own
    models where there are some: the mean over each group's clients, and in `mean` that over groups, each as mean and
    95 % interval over seeds. Empty without such runs.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for run in finished_runs(result_path / "test_federated", "last"):
        for measured, of_groups in _by_group(run, metric):
            args = {name: value for name, value in run.args.items() if name not in ASIDE}
            row = args | {"metric": measured, "groups": of_groups}
            found.setdefault(run.args["type"].removesuffix("_based"), []).append(row)
    return {f"by_{column}": _table(pd.DataFrame(rows)) for column, rows in found.items()}


def _by_group(run: Finished, metric: str) -> Iterator[tuple[str, pd.Series]]:
    """The name of what was measured, and its mean over the clients of each group; nothing of other runs."""
    path = run.path / CLIENTS_FILE
    if not path.is_file():
        return
    clients = pd.read_csv(path, keep_default_na=False)  # no group's name stands for nothing
    columns = (f"{whose}local_test_{name}" for name in (metric, "loss") for whose in ("personal_", ""))
    column = next(name for name in columns if name in clients)
    numbers = clients.assign(**clients[["share", column]].apply(pd.to_numeric, errors="coerce"))
    clients = numbers[numbers[column].notna()].astype({"group": str})
    of_groups = clients.groupby("group")[column].mean()
    if (clients["share"] == 1).all() and 2 <= len(of_groups) <= _MOST:
        yield column.partition("local_test_")[2], of_groups


def _table(runs: pd.DataFrame) -> pd.DataFrame:
    varying = differing(runs, [name for name in runs if name not in {*_KEYS, "rand_seed", "metric", "groups"}], _KEYS)
    rows = []
    for setting, part in runs.assign(**runs[varying].map(as_text)).groupby([*_KEYS, *varying], sort=False):
        by_group = pd.DataFrame(part["groups"].tolist())
        values = {name: by_group[name] for name in sorted(by_group)} | {"mean": by_group.mean(axis=1, skipna=False)}
        said = dict(zip([*_KEYS, *varying], setting, strict=True))
        said |= {"metric": part["metric"].iloc[0], "seeds": part["rand_seed"].nunique()}
        rows.append(said | {name: _with_interval(of_seeds) for name, of_seeds in values.items()})
    return pd.DataFrame(rows).fillna("–")


def _with_interval(values: pd.Series) -> str:
    numbers = finite(values)
    if not len(numbers):
        return "–"
    mean = f"{np.mean(numbers):.3f}"
    return mean if len(numbers) == 1 else f"{mean} {bounds(interval(numbers), 3)}"
