"""How well clients of each natural group are served, such as those of each domain: the table of feature-shift papers.

FedBN (Li et al. 2021, arXiv 2102.07623, table 1) and those after it have a column for each domain, and their mean.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.clients import CLIENTS_FILE
from reports.finished import Finished, Results
from reports.labels import is_share
from reports.statistics import level_with_interval
from reports.tables import by_setting

# A run's arguments, the name of what was measured, and its mean over the clients of each group.
_Run = tuple[dict[str, Any], tuple[str, pd.Series]]
_MOST = 20  # groups that find room beside each other


def group_tables(results: Results, metric: str) -> dict[str, pd.DataFrame]:
    """By the column of the groups, a table as text: a row per task, method and setting, a column per group.

    It has the runs in which each client's images are of one group, and clients are of 2 to 20 groups. Values are the
    metric on client test (the loss, for tasks without this metric), with personal models if there are some. A column is
    the mean over a group's clients, and `mean` that over groups, each as mean and 95 % interval over seeds. The
    interval of a share stays between 0 and 1. Empty without such runs.
    """
    by_type: dict[str, list[_Run]] = {}
    for run in results["test_federated"]:
        if measured := _by_group(run, metric):
            by_type.setdefault(run.args["type"].removesuffix("_based"), []).append((run.settings, measured))
    return {f"by_{column}": _table(runs) for column, runs in by_type.items()}


def _by_group(run: Finished, metric: str) -> tuple[str, pd.Series] | None:
    """The name of what was measured, and its mean over the clients of each group; None where groups are mixed."""
    path = run.path / CLIENTS_FILE
    if not path.is_file():
        return None
    clients = pd.read_csv(path, keep_default_na=False)  # no group's name stands for nothing
    columns = (f"{whose}local_test_{name}" for name in (metric, "loss") for whose in ("personal_", ""))
    column = next(name for name in columns if name in clients)
    numbers = clients.assign(**clients[["share", column]].apply(pd.to_numeric, errors="coerce"))
    clients = numbers[numbers[column].notna()].astype({"group": str})
    of_groups = clients.groupby("group")[column].mean()
    alone = (clients["share"] == 1).all() and 2 <= len(of_groups) <= _MOST
    return (column.partition("local_test_")[2], of_groups) if alone else None


def _table(runs: list[_Run]) -> pd.DataFrame:
    rows = []
    for setting, measured in by_setting(runs, ["task", "method"]):
        metric, of_seeds = measured[0][0], pd.DataFrame([of_groups for _, of_groups in measured])
        values = {name: of_seeds[name] for name in sorted(of_seeds)} | {"mean": of_seeds.mean(axis=1, skipna=False)}
        cells = {name: level_with_interval(of, 3, is_share(metric)) for name, of in values.items()}
        rows.append(setting | {"metric": metric, "seeds": len(of_seeds)} | cells)
    return pd.DataFrame(rows).fillna("–")
