"""Intervals against hand calculations, exact enumeration, and their own promise: how often they cover the mean."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from reports.statistics import (
    MARGIN,
    adjusted,
    bootstrap,
    bounds,
    interval,
    p_value,
    verdict,
    with_interval,
    with_spread,
)


def test_t_interval_by_hand() -> None:
    # Deviations -2..2: variance 10/4, standard error sqrt(2.5/5) = 0.70711, t(0.975; 4) = 2.77645.
    low, high = interval([1, 2, np.nan, 3, 4, 5])
    assert (low, high) == pytest.approx((3 - 1.96324, 3 + 1.96324), abs=1e-4)


def test_bootstrap_against_all_resamples() -> None:
    values = [1.0, 2.0, 7.0]
    means = np.sort([np.mean(resample) for resample in product(values, repeat=3)])
    # Each end is the mean of the 27 at which the cumulated share passes 2.5 % and 97.5 %: 1 (1/27 = 3.7 %) and 7.
    assert bootstrap(values) == pytest.approx((means[0], means[-1]))
    assert bootstrap(values) == bootstrap(values)


def test_coverage_with_five_seeds_is_that_of_the_docstrings() -> None:
    rng, n = np.random.default_rng(0), 3000
    samples = rng.normal(1.0, 2.0, (n, 5))
    t_low, t_high = np.array([interval(sample) for sample in samples]).T
    assert ((t_low <= 1) & (t_high >= 1)).mean() == pytest.approx(0.95, abs=0.012)  # three standard errors
    for method in ("percentile", "BCa"):
        found = stats.bootstrap(
            (samples,), np.mean, axis=1, vectorized=True, n_resamples=999, method=method, rng=0
        ).confidence_interval
        assert ((found.low <= 1) & (found.high >= 1)).mean() == pytest.approx(0.83, abs=0.025)


@pytest.mark.parametrize("of", [interval, bootstrap])
@pytest.mark.parametrize("values", [[], [1.0], [np.nan, 2.0]])
def test_one_value_has_no_interval(of: object, values: list[float]) -> None:
    assert np.isnan(of(values)).all()  # type: ignore[operator]


def test_p_is_that_of_the_t_distribution() -> None:
    # Mean 3 over a standard error of 0.70711: t = 4.2426 with 4 degrees of freedom.
    assert p_value([1, 2, 3, 4, 5]) == pytest.approx(2 * stats.t.sf(4.242641, 4), rel=1e-5)
    assert np.isnan(p_value([2.0, 2.0, 2.0])) and np.isnan(p_value([2.0]))


def test_adjustment_by_hand() -> None:
    # Of four: times 4/1, 4/2, 4/3 and 4/4 by rank, and no smaller p above a larger: 0.04, 0.04, 0.04, 0.5.
    assert adjusted([0.5, 0.01, np.nan, 0.03, 0.02]) == pytest.approx([0.5, 0.04, np.nan, 0.04, 0.04], nan_ok=True)
    assert np.isnan(adjusted([np.nan])).all()


@pytest.mark.parametrize(
    "values, said",
    [
        ([1, 2, 3, 4, 5], "higher"), ([-1, -2, -3, -4, -5], "lower"),
        # 0.2 ± 2.776 * 0.860 and 0.1 ± 2.776 * 0.430: up to 2.59 and 1.29
        ([-2, -1, 0, 1, 3], "inconclusive"), ([-1, -0.5, 0, 0.5, 1.5], "no difference"),
        ([0.1, 0.2, 0.3, 0.4, 0.5], "higher"), ([-69, 79], "inconclusive (2 seeds only)"), ([0] * 5, "no difference"),
        ([4, 5, 6], "higher (3 seeds only)"), ([1], "cannot be told from 1 seed"), ([], "cannot be told from 0 seeds"),
    ],
)  # fmt: skip
def test_verdict(values: list[float], said: str) -> None:
    assert verdict(values) == said


def test_no_difference_is_what_two_one_sided_tests_say() -> None:
    rng = np.random.default_rng(0)
    said = set()
    for _ in range(300):
        values = rng.normal(rng.normal(0, 1.5), rng.uniform(0.2, 3), 5)
        above, below = (
            stats.ttest_1samp(values, of, alternative=side).pvalue < 0.025
            for of, side in ((-MARGIN, "greater"), (MARGIN, "less"))
        )
        word = verdict(values)
        said.add(word)
        if p_value(values) > 0.05:
            assert word == ("no difference" if above and below else "inconclusive")
        else:
            assert word == ("higher" if values.mean() > 0 else "lower")
    assert said == {"no difference", "inconclusive", "higher", "lower"}


def test_text() -> None:
    assert with_interval([1, 2, 3, 4, 5], 1, "+") == "+3.0 [+1.0, +5.0]"
    assert with_interval([2.0], 1) == "2.0" and with_interval([np.nan], 1) == "–"
    assert bounds((np.nan, np.nan), 1) == "–"


@pytest.mark.parametrize(
    "values, text",
    [
        ([], "–"), ([np.nan], "–"), ([2.0], "2.00"), ([2.0, np.nan], "2.00"),
        ([1.0, 2.0, 3.0], "2.00 ± 1.00"),  # deviations -1, 0, 1: the root of (1 + 0 + 1) / 2
    ],
)  # fmt: skip
def test_spread(values: list[float], text: str) -> None:
    assert with_spread(values, 2) == text
