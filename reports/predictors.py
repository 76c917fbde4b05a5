"""Which measure of a partition predicts, before training, how much that partition will cost.

    python -m reports.predictors results/sample_rooms results/nyu_photos --table_path results/predictors

uses the finished runs of several result folders together; a task on other images counts as another task. The cost is
that on client train; `--cost test_loss` takes that on global test, or any other loss of the
runs by its column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import permutation_test, rankdata

from reports.compare import settings
from reports.console import report_table
from reports.finished import Results
from reports.statistics import increase
from reports.tables import CANDIDATES, MEASURES, NOT_IID, OVER_IID, read_runs
from utils.errors import UserError, run_script
from utils.runs import MEASURED_ON
from utils.settings import REQUIRED, Settings, setting

OWN = "train_loss"  # the column of the loss on client train
_LEAST = 8  # runs: with fewer, a rank correlation says nothing
_PERMUTATIONS = 9999


def split_costs(runs: pd.DataFrame, cost: str = OWN) -> pd.DataFrame:
    """What each run of a partition costs, in percent over the IID run of its seed and setting.

    A row per run: `task`, `type`, `cell` (task, partition, alpha and whatever else assigns the data, as text), the
    `CANDIDATES` of its partition, and `increase`. `runs` comes from `read_runs`; `cost` is the column of the loss,
    usually that on client train.
    """
    columns = ["task", "type", "cell", *CANDIDATES, "increase"]
    return pd.DataFrame(_rows(runs, cost), columns=columns).dropna(subset="increase")


def _rows(runs: pd.DataFrame, cost: str) -> Iterator[dict[str, float | str]]:
    for fixed, part, iid in settings(runs):
        measured = part.reindex(columns=list(MEASURES))
        dispersion, of_iid = iid.reindex(part["rand_seed"], columns=["gradient_dispersion", cost]).to_numpy(float).T
        measured[OVER_IID] = measured["gradient_dispersion"].to_numpy() / dispersion
        costs = increase(part[cost].to_numpy(float), of_iid)
        labels = {"task": fixed["task"], "type": fixed["type"]}
        labels["cell"] = ", ".join(f"{name} {value}" for name, value in fixed.items() if name in {"task", *NOT_IID})
        for row, value in zip(measured.to_dict("records"), costs, strict=True):
            yield labels | row | {"increase": value}


def predictors(table: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """How well each measure ranks the costs of partitions (from `split_costs`), as text, the best first.

    Columns: Spearman's rank correlation over all runs, for which the measure must be comparable between tasks; its
    range when any one task is left out, empty where there is only one; its mean within tasks; and p of `permuted`.
    Empty for fewer than eight runs.
    """
    rows: list[dict[str, Any]] = []
    for name, label in CANDIDATES.items():
        if name not in table:
            continue
        known = table.dropna(subset=[name])
        tasks = list(dict.fromkeys(known["task"]))
        if len(known) < _LEAST:
            continue
        without = [_of(known[known["task"] != task], name) for task in tasks if len(tasks) > 1]
        within = [_of(known[known["task"] == task], name) for task in tasks]
        about = {"measure": label, "runs": len(known), "cells": known["cell"].nunique(), "tasks": len(tasks)}
        about |= {"rank correlation": _of(known, name)}
        about |= {"without one task": f"{min(without):.2f} to {max(without):.2f}" if without else ""}
        p = permuted(known[name], known["increase"], known["cell"], seed)
        rows.append(about | {"within tasks": f"{np.mean(within):.2f}", "p": f"{p:.4f}"})
    rows.sort(key=lambda row: -abs(row["rank correlation"]))
    return pd.DataFrame([row | {"rank correlation": f"{row['rank correlation']:.2f}"} for row in rows])


def permuted(first: ArrayLike, second: ArrayLike, cells: ArrayLike, seed: int = 0) -> float:
    """Two-sided p of a permutation test that two measurements of runs are unrelated, which permutes whole cells.

    The runs of a cell (task, partition and alpha) differ in their seeds alone and are nearly copies of each other:
    permuted one by one, unrelated measurements would have p <= 0.05 in about every third case. So the correlation of
    the cells' mean ranks is tested, with all pairings of up to seven cells, and 9999 drawn ones of more. Few cells have
    no small p: it is at least 2 / 24 with four, and 2 / 720 with six.
    """
    ranks = pd.DataFrame({"first": rankdata(first), "second": rankdata(second)}).groupby(np.asarray(cells)).mean()
    if len(ranks) < 2:
        return 1.0
    test = permutation_test(
        (ranks["first"],),
        partial(_correlation, second=ranks["second"]),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=_PERMUTATIONS,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation; 0 if one of the two is constant."""
    return float(_correlation(rankdata(first), rankdata(second)))


def _correlation(first: ArrayLike, second: ArrayLike, axis: int = -1) -> Any:
    """Pearson's correlation of `first` (..., n) with `second` (n) along the last axis; 0 if either is constant."""
    parts = [of - of.mean(axis=axis, keepdims=True) for of in (np.asarray(first, float), np.asarray(second, float))]
    scale = np.linalg.norm(parts[0], axis=axis) * np.linalg.norm(parts[1])
    return (parts[0] * parts[1]).sum(axis=axis) / np.where(scale > 1e-9, scale, np.inf)  # ranks differ by more


def _of(part: pd.DataFrame, name: str) -> float:
    return rank_correlation(part[name], part["increase"])


@dataclass(frozen=True)
class PredictorSettings(Settings):
    """Which runs are read, and what the measures are to predict."""

    heading: ClassVar[str] = "options"

    result_path: Sequence[Path] = setting(
        REQUIRED, "result folders, each of one data set", Path, nargs="+", positional=True
    )
    cost: str = setting(
        OWN,
        "loss that a partition raises: train_loss (client train), local_test_loss, test_loss or, of runs "
        "with non-participating clients, unseen_train_loss and unseen_test_loss",
        metavar="COLUMN",
    )
    table_path: Path = setting(Path("results/predictors"), "folder for table and figure", Path)


def main() -> None:
    """Read the runs of all result folders, and write the table and its figure."""
    args = PredictorSettings.from_args(__doc__.split("\n")[0])
    from reports.figures.predictors import costs_by_measure

    costs = together(args.result_path, args.cost)
    table = predictors(costs)
    if table.empty:
        raise UserError(f"fewer than {_LEAST} runs of partitions with an IID run of their seed")
    report_table("which measure of a partition predicts its cost", table, args.table_path / "predictors")
    figure = costs_by_measure(costs, args.table_path / "predictors.png", measured_on(args.cost))
    print(f"table and figure in {args.table_path}: {figure}")


def measured_on(cost: str) -> str:
    """The images that a column of losses is of, in words: "client train" of train_loss."""
    part = cost.removesuffix("_loss")
    return MEASURED_ON.get(part, part.replace("_", " "))


def together(folders: Sequence[Path], cost: str = OWN) -> pd.DataFrame:
    """The `split_costs` of one or more result folders; with several, tasks are named `<folder>: <task>`.

    Folders of one name have as much of their paths in it as tells them apart. UserError for a folder that is given
    twice, without finished runs, or without the loss `cost`.
    """
    parts = []
    for folder, name in zip(folders, folder_names(folders), strict=True):
        runs = read_runs(Results(folder))
        if runs.empty:
            raise UserError(f"no finished run of test_fed.py in {folder}")
        if cost not in runs or runs[cost].isna().all():
            known = ", ".join(name for name in runs if name.endswith("_loss") and runs[name].notna().any())
            raise UserError(f"no run in {folder} has the loss {cost!r}; give --cost one of {known}")
        costs = split_costs(runs, cost)
        if len(folders) > 1:
            costs[["task", "cell"]] = f"{name}: " + costs[["task", "cell"]]
        parts.append(costs)
    return pd.concat(parts, ignore_index=True)


def folder_names(folders: Sequence[Path]) -> list[str]:
    """The ends of the folders' paths by which each differs from all others."""
    paths = [folder.resolve().parts for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{folder} is given twice; give each result folder once")
    ends = [[path[-n:] for n in range(1, len(path) + 1)] for path in paths]
    alone = [next((end for end in of if sum(end in other for other in ends) == 1), of[-1]) for of in ends]
    return ["/".join(end) for end in alone]


if __name__ == "__main__":
    run_script(main)
