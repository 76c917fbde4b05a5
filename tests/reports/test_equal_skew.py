"""Costs at equal skew, where both splits' costs are known functions of the share that they set apart."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from reports.equal_skew import equal_skew

SHARES = {"class_based": {0.1: 0.16, 10.0: 0.04}, "embedding_based": {0.1: 0.32, 10.0: 0.08}}


def make_runs(slopes: dict[str, float], n_seeds: int = 5) -> pd.DataFrame:
    """Runs whose loss is 2 (1 + slope * share), as `reports.tables.read_runs` makes them; all seeds alike."""
    fixed = {"task": "normal", "method": "fedavg"}
    rows = [
        fixed | {"type": "iid", "alpha": 0.1, "rand_seed": seed, "train_loss": 2.0, "target_variance_share": 0.0}
        for seed in range(n_seeds)
    ]
    for (kind, shares), seed in product(SHARES.items(), range(n_seeds)):
        rows += [
            fixed
            | {"type": kind, "alpha": alpha, "rand_seed": seed, "target_variance_share": share}
            | {"train_loss": 2 * (1 + slopes[kind] * share)}
            for alpha, share in shares.items()
        ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("slope", "over", "word"), [(1.0, "+0.0", "no difference"), (2.0, "+13.8", "higher")])
def test_costs_at_the_largest_share_that_both_reach(slope: float, over: str, word: str) -> None:
    # At 0.16 the class split costs 16 %, and the embedding split, between 0.08 and 0.32, slope times as much:
    # 1.32 / 1.16 - 1 = 13.8 %. At equal alpha it would be 32 or 64 %.
    (row,) = equal_skew(make_runs({"class_based": 1.0, "embedding_based": slope})).to_dict("records")
    assert row["seeds"] == 5 and row["target share"] == "0.16 ± 0.00"
    assert row["class over IID, %"].startswith("+16.0")
    assert row["embedding over IID, %"].startswith(f"+{16 * slope:.1f}")
    assert row["embedding over class, %"].startswith(over) and row["at equal skew"] == word


def test_below_the_least_share_of_a_split_the_iid_run_is_the_other_end() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 1.0})
    runs.loc[runs["type"] == "class_based", "target_variance_share"] = 0.02
    runs.loc[runs["type"] == "class_based", "train_loss"] = 2.1
    (row,) = equal_skew(runs).to_dict("records")
    # A quarter of the way from nothing to 8 % at 0.08.
    assert row["embedding over IID, %"].startswith("+2.0") and row["class over IID, %"].startswith("+5.0")


def test_seeds_without_both_splits_or_iid_are_left_out() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 1.0}, n_seeds=3)
    dropped = ((runs["rand_seed"] == 0) & (runs["type"] == "iid")) | (
        (runs["rand_seed"] == 1) & (runs["type"] == "embedding_based")
    )
    assert equal_skew(runs[~dropped])["seeds"].tolist() == [1]
    assert equal_skew(runs[runs["type"] != "class_based"]).empty
    nothing = runs.assign(target_variance_share=np.where(runs["type"] == "embedding_based", 0.2, -0.01))
    assert equal_skew(nothing).empty
