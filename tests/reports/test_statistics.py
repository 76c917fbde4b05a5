"""Intervals against hand calculations, exact enumeration, and their own promise: how often they cover the mean."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from reports.statistics import (
    MARGIN,
    Change,
    adjusted,
    bootstrap,
    bounds,
    interval,
    judged_rows,
    level_with_interval,
    mean_change,
    p_text,
    share_interval,
    verdict,
    with_spread,
)


def test_a_level_has_the_interval_of_its_mean_and_no_logarithm() -> None:
    assert level_with_interval([1, 2, 3, 4, 5], 1) == "3.0 [1.0, 5.0]"  # half: 2.776 * 1.581 / sqrt(5)
    assert level_with_interval([-1, 0, 1], 2) == "0.00 [-2.48, 2.48]"  # half: 4.303 / sqrt(3)
    assert level_with_interval([2.0, np.nan], 1) == "2.0" and level_with_interval([np.nan], 1) == "–"


def test_t_interval_by_hand() -> None:
    # Deviations -2..2: variance 10/4, standard error sqrt(2.5/5) = 0.70711, t(0.975; 4) = 2.77645.
    low, high = interval([1, 2, np.nan, 3, 4, 5])
    assert (low, high) == pytest.approx((3 - 1.96324, 3 + 1.96324), abs=1e-4)


def test_bootstrap_against_all_resamples() -> None:
    values = [1.0, 2.0, 7.0]
    means = np.sort([np.mean(resample) for resample in product(values, repeat=3)])
    # Each end is the mean of the 27 at which the cumulated share passes 2.5 % and 97.5 %: 1 (1/27 = 3.7 %) and 7, on
    # whatever scale the mean is taken.
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
    # Logarithms with mean 3 over a standard error of 0.70711: t = 4.2426 with 4 degrees of freedom.
    changes = 100 * np.expm1(np.array([1, 2, 3, 4, 5]) / 100)
    assert Change.of(changes).p == pytest.approx(2 * stats.t.sf(4.242641, 4), rel=1e-5)
    assert np.isnan(Change.of([2.0, 2.0, 2.0]).p) and np.isnan(Change.of([2.0]).p)


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
        ([4, 5, 6], "higher (3 seeds only)"), ([1], "cannot be judged from 1 seed"),
        ([], "cannot be judged from 0 seeds"),
    ],
)  # fmt: skip
def test_verdict(values: list[float], said: str) -> None:
    assert word_of(values) == said


def interval_of(values: list[float] | np.ndarray) -> tuple[float, float]:
    change = Change.of(values)
    return change.low, change.high


def word_of(values: list[float] | np.ndarray) -> str:
    return verdict(Change.of(values))


def test_no_difference_is_what_two_one_sided_tests_say() -> None:
    rng = np.random.default_rng(0)
    said = set()
    for _ in range(300):
        logs = rng.normal(rng.normal(0, 1.5), rng.uniform(0.2, 3), 5)
        above, below = (
            stats.ttest_1samp(logs, 100 * np.log1p(of / 100), alternative=side).pvalue < 0.025
            for of, side in ((-MARGIN, "greater"), (MARGIN, "less"))
        )
        changes = 100 * np.expm1(logs / 100)
        word = word_of(changes)
        said.add(word)
        if Change.of(changes).p > 0.05:
            assert word == ("no difference" if above and below else "inconclusive")
        else:
            assert word == ("higher" if logs.mean() > 0 else "lower")
    assert said == {"no difference", "inconclusive", "higher", "lower"}


def test_p_of_many_tests_decides_before_the_interval() -> None:
    above, below, about = (
        Change.of([0] * 5)._replace(low=low, high=high) for low, high in ((0.5, 9.0), (-1.5, -0.1), (-1.0, 9.0))
    )
    assert [verdict(above, p) for p in (0.05, 0.051, np.nan)] == ["higher", "inconclusive", "higher"]
    assert [verdict(below, p) for p in (0.01, 0.06)] == ["lower", "no difference"]
    assert verdict(about, 0.01) == "inconclusive"


@pytest.mark.parametrize(("alike", "expected"), [(None, 0.46), (0.5, 0.40)])
def test_of_twelve_rows_without_a_difference_the_adjusted_words_are_rarely_false(
    alike: float | None, expected: float
) -> None:
    """Twelve independent rows, and those of the first command: three tasks, and two of them together, on three kinds of
    images, whose differences correlate within a task."""
    rng, n = np.random.default_rng(0), 200
    false = {"word": 0, "unadjusted": 0}
    for _ in range(n):
        logs = rng.normal(0, 3, (3, 4, 5))
        if alike is not None:
            logs = np.sqrt(alike) * rng.normal(0, 3, (1, 4, 5)) + np.sqrt(1 - alike) * logs
            logs[:, 3] = logs[:, :2].mean(axis=1)
        columns = judged_rows("word", [({}, Change.of(100 * np.expm1(of / 100)), False) for of in logs.reshape(12, 5)])
        for name in false:
            false[name] += bool({"higher", "lower"} & set(columns[name]))
    # By three standard errors; of independent rows 1 - 0.95^12 and, adjusted, 0.05.
    assert false["unadjusted"] / n == pytest.approx(expected, abs=0.106)
    assert false["word"] / n < 0.05 + 0.046


def test_means_of_changes_are_of_ratios() -> None:
    # Twice and half cancel each other; ratios 1.1 and 1.21 have the geometric mean 1.1^1.5 = 1.15369.
    assert mean_change([100.0, -50.0]) == pytest.approx(0.0)
    assert mean_change([10.0, 21.0]) == pytest.approx(15.369, abs=1e-3)
    low, high = interval_of([10.0, 21.0])
    half = 12.7062 * np.log(1.1) / 2  # the logarithms 1 and 2 times ln 1.1: standard error half of it
    assert (low, high) == pytest.approx([100 * np.expm1(1.5 * np.log(1.1) + side * half) for side in (-1, 1)], rel=1e-4)
    # Without a logarithm the mean is arithmetic.
    assert mean_change([-150.0, 50.0]) == -50.0 and interval_of([-150.0, -100.0])[1] == pytest.approx(-125 + 317.655)


def test_the_verdict_does_not_depend_on_the_reference() -> None:
    mirrored = {"higher": "lower", "lower": "higher"}
    rng = np.random.default_rng(0)
    words = set()
    for _ in range(200):
        ratios = np.exp(rng.normal(0.4, 0.6, 5))
        word, other = word_of(100 * (ratios - 1)), word_of(100 * (1 / ratios - 1))
        assert other == mirrored.get(word, word)
        words.add(word)
    assert words == {"higher", "inconclusive"}


def test_intervals_cover_the_mean_of_skewed_ratios() -> None:
    # Losses with lognormal noise: without a difference, the mean ratio is exp(s^2), far above 1, and its t interval
    # covers it in about 78 % of cases; the mean of the logarithms is 0, and its interval covers it in 95 %.
    rng, n, s = np.random.default_rng(0), 2000, 0.8
    losses = np.exp(s * rng.normal(size=(2, n, 5)))
    changes = 100 * (losses[0] / losses[1] - 1)
    low, high = np.array([interval_of(of) for of in changes]).T
    assert ((low <= 0) & (high >= 0)).mean() == pytest.approx(0.95, abs=0.015)
    assert (low > 0).mean() == pytest.approx(0.025, abs=0.011) and (high < 0).mean() == pytest.approx(0.025, abs=0.011)
    low, high = np.array([interval(of) for of in changes]).T
    true = 100 * np.expm1(s**2)
    assert ((low <= true) & (high >= true)).mean() < 0.85


def test_intervals_are_too_narrow_where_the_logarithms_are_skewed() -> None:
    # What docs/sweeps.md says of exponential noise of the log ratio: 12 instead of 5 % do not cover the mean.
    rng = np.random.default_rng(0)
    low, high = np.array([interval_of(of) for of in 100 * np.expm1(rng.exponential(0.1, (3000, 5)) - 0.1)]).T
    assert ((low > 0) | (high < 0)).mean() == pytest.approx(0.12, abs=0.018)


def test_text() -> None:
    assert str(Change.of([1, 2, 3, 4, 5])) == "+3.0 [+1.0, +5.0]"
    assert str(Change.of([2.0])) == "+2.0" and str(Change.of([np.nan])) == "–"
    assert bounds((np.nan, np.nan)) == "–"


@pytest.mark.parametrize(
    "values, text",
    [
        ([], "–"), ([np.nan], "–"), ([2.0], "2.00"), ([2.0, np.nan], "2.00"),
        ([1.0, 2.0, 3.0], "2.00 ± 1.00"),  # deviations -1, 0, 1: the root of (1 + 0 + 1) / 2
    ],
)  # fmt: skip
def test_spread(values: list[float], text: str) -> None:
    assert with_spread(values, 2) == text


def test_an_interval_of_shares_stays_among_shares() -> None:
    values = [0.9, 0.95, 1.0]
    low, high = share_interval(values)
    # Mean 0.95, standard error 0.05 / √3, over 0.95 * 0.05, times t(0.975; 2) = 4.3027: 2.6149 about the logit 2.9444.
    assert (low, high) == pytest.approx(
        (1 / (1 + np.exp(2.6149 - 2.9444)), 1 / (1 + np.exp(-2.6149 - 2.9444))), abs=1e-4
    )
    assert interval(values)[1] > 1
    # Near the middle, with little spread, it is Student's.
    assert share_interval([0.49, 0.5, 0.51]) == pytest.approx(interval([0.49, 0.5, 0.51]), abs=1e-4)
    assert share_interval([1.0, 1.0]) == (1.0, 1.0) and np.isnan(share_interval([0.5])).all()
    assert level_with_interval([0.0, 0.2], 3, share=True) == "0.100 [0.000, 1.000]"


def test_no_p_is_zero_in_a_table() -> None:
    assert [p_text(p) for p in (np.nan, 0.25, 0.001, 0.0009, 0.0)] == ["–", "0.250", "0.001", "< 0.001", "< 0.001"]
