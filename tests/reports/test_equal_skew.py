"""Costs at equal skew, where both splits' costs are known functions of the share that they set apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import PchipInterpolator

from reports.equal_skew import _beyond, equal_skew
from reports.statistics import Change

ALPHAS = (0.1, 1.0, 10.0)
SHARES = {"class_based": (0.16, 0.08, 0.04), "embedding_based": (0.32, 0.20, 0.08)}  # at these alphas
NAMES = ["task", "method", "type", "alpha", "rand_seed", "target_variance_share", "train_loss"]


def make_runs(slopes: dict[str, float], n_seeds: int = 5) -> pd.DataFrame:
    """Runs whose loss is 2 (1 + slope * share), as `reports.tables.read_runs` makes them; all seeds alike."""
    rows = [("normal", "fedavg", "iid", 0.1, seed, 0.0, 2.0) for seed in range(n_seeds)]
    for (kind, shares), seed in product(SHARES.items(), range(n_seeds)):
        rows += [
            ("normal", "fedavg", kind, alpha, seed, share, 2 * (1 + slopes[kind] * share))
            for alpha, share in zip(ALPHAS, shares, strict=True)
        ]
    return pd.DataFrame(rows, columns=NAMES).assign(train_trivial=4.0)


def drawn_runs(cost: Callable[[float], float], times: float, n_tasks: int, alphas: Sequence[float]) -> pd.DataFrame:
    """Five seeds of many tasks; the embedding partition costs `times` the class one's at an equal share, with noise."""
    rng = np.random.default_rng(0)
    rows = []
    for task, seed in product(range(n_tasks), range(5)):
        level = np.exp(0.1 * rng.normal())
        points = [("iid", 0.1, 0.001 * rng.normal(), 0.0)]
        for kind, shares in SHARES.items():
            factor = times if kind == "embedding_based" else 1.0
            for alpha, share in zip(ALPHAS, shares * np.exp(0.1 * rng.normal(size=3)), strict=True):
                points += [(kind, alpha, share, factor * cost(share))] if alpha in alphas else []
        losses = [level * (1 + of[-1]) * np.exp(0.01 * rng.normal()) for of in points]
        rows += [(f"task{task}", "fedavg", *of[:2], seed, of[2], loss) for of, loss in zip(points, losses, strict=True)]
    return pd.DataFrame(rows, columns=NAMES).assign(train_trivial=4.0)


def counted(words: pd.Series) -> dict[str, int]:
    return words.value_counts().to_dict()


@pytest.mark.parametrize(("slope", "over", "word"), [(1.0, "+0.0", "no difference"), (2.0, "+13.8", "higher")])
def test_costs_at_the_largest_share_that_both_reach(slope: float, over: str, word: str) -> None:
    # At 0.16 the class partition costs 16 %, and the embedding partition, between 0.08 and 0.2, slope times as much:
    # 1.32 / 1.16 - 1 = 13.8 %. At equal alpha it would be 32 or 64 %. The gap is 0.12 of 0.32.
    (row,) = equal_skew(make_runs({"class_based": 1.0, "embedding_based": slope})).to_dict("records")
    assert row["seeds"] == 5 and row["target share"] == "0.16 ± 0.00" and row["gap between runs"] == "38%"
    assert row["class over IID, %"].startswith("+16.0")
    assert row["embedding over IID, %"].startswith(f"+{16 * slope:.1f}")
    assert row["embedding over class, %"].startswith((over, over.replace("+", "-")))
    assert row["at equal skew"] == word


def test_no_verdict_where_the_share_lies_in_a_wide_gap() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 2.0})
    (row,) = equal_skew(runs[(runs["alpha"] == 0.1)]).to_dict("records")
    # The embedding partition's only run is at 0.32, half of which is 0.16: the gap is all of its range.
    assert (row["gap between runs"], row["at equal skew"], row["unadjusted"]) == ("100%", "withheld", "withheld")
    assert row["p, adjusted"] == "–" and row["embedding over class, %"].startswith("+13.8")


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_costs_that_are_not_linear_in_the_share_make_no_difference(power: float) -> None:
    def cost(share: float) -> float:
        return 0.6 * (share / 0.3) ** power

    table = equal_skew(drawn_runs(cost, 1.0, 30, ALPHAS))
    false = table["unadjusted"].isin(["higher", "lower"])
    assert len(table) == 30 and false.mean() <= 0.05 and not table["at equal skew"].isin(["higher", "lower"]).any()
    alone = equal_skew(drawn_runs(cost, 1.0, 10, (0.1,)))
    assert counted(alone["at equal skew"]) == {"withheld": 10} and set(alone["p, adjusted"]) == {"–"}


def test_a_true_difference_is_found() -> None:
    table = equal_skew(drawn_runs(lambda share: share, 2.0, 20, ALPHAS))
    assert counted(table["at equal skew"]) == {"higher": 20}
    table = equal_skew(drawn_runs(lambda share: 2 * share, 0.5, 20, ALPHAS))
    assert counted(table["at equal skew"]) == {"lower": 20}


def test_only_what_no_error_explains_has_a_small_p() -> None:
    changes = np.array([1.0, 1.2, 0.9, 1.1, 0.8])
    for sign in (1, -1):
        assert _beyond(sign * changes, np.full(5, 0.9)).p == pytest.approx(Change.of(changes - 0.9).p, rel=0.01)
        assert _beyond(sign * changes, np.full(5, 2.0)).p == 1.0


def test_the_error_of_the_curve_widens_the_interval() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 1.0})
    bent = runs["type"].eq("embedding_based") & runs["alpha"].eq(0.1)
    runs.loc[bent, "train_loss"] = 2 * 1.8
    (row,) = equal_skew(runs).to_dict("records")
    points, costs = [0.0, 0.08, 0.20, 0.32], [0.0, 8.0, 20.0, 80.0]
    curve, straight = float(PchipInterpolator(points, costs)(0.16)), 16.0
    over, error = 100 * (100 + curve) / 116 - 100, 100 * abs(curve - straight) / (100 + min(curve, straight))
    expected = f"{over:+.1f} [{over - error:+.1f}, {over + error:+.1f}]"
    assert row["embedding over class, %"] == expected and row["at equal skew"] in ("no difference", "inconclusive")


def test_seeds_without_both_splits_or_iid_are_left_out() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 1.0}, n_seeds=3)
    dropped = ((runs["rand_seed"] == 0) & (runs["type"] == "iid")) | (
        (runs["rand_seed"] == 1) & (runs["type"] == "embedding_based")
    )
    assert equal_skew(runs[~dropped])["seeds"].tolist() == [1]
    assert equal_skew(runs[runs["type"] != "class_based"]).empty
    nothing = runs.assign(target_variance_share=np.where(runs["type"] == "embedding_based", 0.2, -0.01))
    assert equal_skew(nothing).empty
    chance = runs.assign(target_variance_share=runs["target_variance_share"].where(runs["type"] != "iid", 0.17))
    assert equal_skew(chance).empty  # the class partitions separate less than that
    assert equal_skew(runs.assign(target_variance_share=np.nan)).empty


def test_what_has_not_been_learnt_has_no_verdict() -> None:
    runs = make_runs({"class_based": 1.0, "embedding_based": 2.0}).assign(train_trivial=1.9)
    (row,) = equal_skew(runs).to_dict("records")
    assert (row["at equal skew"], row["p, adjusted"]) == ("withheld", "–")
