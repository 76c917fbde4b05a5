"""Which measure of a partition tells before training how much a split will cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import permutation_test, rankdata

from reports.tables import SKEW, increase, settings

_LEAST = 8  # runs, below which a rank correlation says nothing
_PERMUTATIONS = 9999


def split_costs(runs: pd.DataFrame) -> pd.DataFrame:
    """What each run of a split costs on the clients' own data, in percent over the IID run of its seed and setting.

    A row per run: `task`, the measures of its partition (those of `SKEW`), and `increase`. `runs` as `read_runs` makes.
    """
    return pd.DataFrame(_rows(runs), columns=["task", *SKEW, "increase"]).dropna(subset="increase")


def _rows(runs: pd.DataFrame) -> Iterator[dict[str, float | str]]:
    for fixed, part, iid in settings(runs, ["task", "method", "type", "alpha"]):
        of_iid = iid["train_loss"].reindex(part["rand_seed"]).to_numpy()
        measured = part[[name for name in SKEW if name in part]].to_dict("records")
        for row, value in zip(measured, increase(part["train_loss"].to_numpy(), of_iid), strict=True):
            yield {"task": fixed["task"]} | row | {"increase": value}


def predictors(table: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """How well each measure ranks the costs of splits (from `split_costs`), as text, the best first.

    Spearman's rank correlation over all runs, which asks that the measure compares between tasks; its range when any
    one task is left out; its mean within tasks; and p of a permutation test of no relation (two-sided, 9999 pairings).
    Runs of one seed share clusters, so that p is a little too small. Empty for fewer than eight runs or one task.
    """
    rows: list[dict[str, Any]] = []
    for name, label in SKEW.items():
        known = table.dropna(subset=[name])
        tasks = list(dict.fromkeys(known["task"]))
        if len(known) < _LEAST or len(tasks) < 2:
            continue
        increases = known["increase"]
        without = [_of(known[known["task"] != task], name) for task in tasks]
        within = [_of(known[known["task"] == task], name) for task in tasks]
        test = permutation_test(
            (rankdata(known[name]),), partial(rank_correlation, increases), permutation_type="pairings",
            n_resamples=_PERMUTATIONS, rng=np.random.default_rng(seed),
        )  # fmt: skip
        rows.append({
            "measure": label, "runs": len(known), "tasks": len(tasks), "rank correlation": float(test.statistic),
            "without one task": f"{min(without):.2f} to {max(without):.2f}", "within tasks": f"{np.mean(within):.2f}",
            "p": f"{test.pvalue:.4f}",
        })  # fmt: skip
    rows.sort(key=lambda row: -abs(row["rank correlation"]))
    return pd.DataFrame([row | {"rank correlation": f"{row['rank correlation']:.2f}"} for row in rows])


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's; 0 where one of them is the same everywhere."""
    ranks = np.stack([rankdata(first), rankdata(second)])
    return float(np.corrcoef(ranks)[0, 1]) if (np.ptp(ranks, axis=1) > 0).all() else 0.0


def _of(part: pd.DataFrame, name: str) -> float:
    return rank_correlation(part[name], part["increase"])
