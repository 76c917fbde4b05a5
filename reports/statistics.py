"""What few seeds can tell: intervals of a mean, and whether a difference exceeds their spread or is negligible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import expit, logit, stdtr, stdtrit

LEAST_SEEDS = 5  # with fewer, tables say so beside every verdict
MARGIN = 2.0  # percent; smaller differences count as none
LEVEL = 0.05  # a larger p tells no difference
WITHHELD = "withheld"  # in place of a verdict on what says nothing
_CONFIDENCE = 0.95


def finite(values: ArrayLike) -> np.ndarray:
    """The finite ones among these numbers, float64."""
    numbers = np.asarray(values, float)
    return numbers[np.isfinite(numbers)]


def interval(values: ArrayLike) -> tuple[float, float]:
    """95 % confidence interval of the mean by Student's t, nan for fewer than two finite values.

    It assumes that the seeds' values are normal, and for normal values it covers the mean 95 times in 100 with any
    number of seeds. That is why verdicts use it: with five seeds, `bootstrap` covers the mean only about 83 times.
    """
    numbers = finite(values)
    if len(numbers) < 2:
        return np.nan, np.nan
    half = stdtrit(len(numbers) - 1, (1 + _CONFIDENCE) / 2) * _standard_error(numbers)
    return float(numbers.mean() - half), float(numbers.mean() + half)


def _standard_error(numbers: np.ndarray) -> float:
    """Of the mean of a sample: of what `scipy.stats` does with it, most time goes into looking at the arguments."""
    return float(numbers.std(ddof=1) / np.sqrt(len(numbers)))


def increase(loss: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The relative increase in percent, for each seed: float64 of the losses' shape, nan where one of them is.

    Where a loss is not positive, ratios say nothing, or the opposite (-1.1 is 10 % "more" than -1). Then all seeds'
    differences are divided by the mean absolute reference instead, which keeps their signs.
    """
    if not (np.minimum(loss, reference) <= 0).any():
        return 100.0 * (loss / reference - 1.0)
    scale = np.nanmean(np.abs(reference))
    return 100.0 * (loss - reference) / (scale if scale > 0 else np.nan)


def share_interval(values: ArrayLike) -> tuple[float, float]:
    """95 % interval of a mean share, such as an accuracy, within [0, 1]; nan for fewer than two finite values.

    Student's t interval of the logit of the mean, whose standard error is that of the mean over m (1 - m), by the delta
    method. A mean of 0 or 1, which has no logit, has no spread either.
    """
    numbers = finite(values)
    low, high = interval(numbers)
    mean = float(numbers.mean()) if len(numbers) else np.nan
    if not np.isfinite(low) or mean in (0.0, 1.0):
        return low, high
    half, centre = (high - low) / 2 / (mean * (1 - mean)), logit(mean)
    return float(expit(centre - half)), float(expit(centre + half))


def mean_change(changes: ArrayLike, axis: int | None = None) -> Any:
    """The mean of changes in percent, taken over the logarithms of their ratios 1 + change / 100 and shown as percent.

    +100 % and -50 % cancel each other: a mean does not depend on which of two losses is the reference. Changes of
    -100 % or less, which only `increase` of losses that are not positive gives, have no logarithm; with
    one of them the mean is arithmetic.
    """
    scaled, back = _on_log_scale(np.asarray(changes, float))
    return back(scaled.mean(axis))


def _on_log_scale(changes: np.ndarray) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """100 times the logarithms of ratios given as changes in percent, and the way back."""
    if (changes <= -100).any():
        return changes, lambda scaled: scaled
    return 100 * np.log1p(changes / 100), lambda scaled: 100 * np.expm1(scaled / 100)


def bootstrap(changes: ArrayLike) -> tuple[float, float]:
    """95 % percentile bootstrap interval of `mean_change` over seeds (Efron 1979), nan for fewer than two finite ones.

    It assumes no distribution, but uses only values that have been seen: five seeds have 126 different resamples, none
    of which leaves their range. With so few seeds it is too narrow, also with bias correction and acceleration (BCa):
    either covers the mean of normal values about 83 times in 100 with five seeds, and 93 times with thirty.
    """
    numbers, back = _on_log_scale(finite(changes))
    if len(numbers) < 2:
        return np.nan, np.nan
    interval = stats.bootstrap(
        (numbers,), np.mean, confidence_level=_CONFIDENCE, method="percentile", n_resamples=9999, rng=0
    ).confidence_interval
    return float(back(interval.low)), float(back(interval.high))


class Change(NamedTuple):
    """A mean change in percent over seeds: what tables, figures and verdicts say of it.

    As text it is `mean [low, high]`, only the mean for one seed, and a dash for none.
    """

    values: np.ndarray | pd.Series  # of each seed, nan where it has none
    mean: float  # their `mean_change`
    low: float  # its 95 % interval: `interval` on the scale of the mean, as percent
    high: float
    p: float  # of Student's t test that the mean is 0, two-sided; nan for fewer than two changes, or equal ones

    @classmethod
    def of(cls, values: ArrayLike) -> Change:
        """The change whose values over seeds are these, in percent."""
        numbers, back = _on_log_scale(finite(values))
        mean, p = float(back(numbers.mean())) if len(numbers) else np.nan, np.nan
        low, high = (float(back(end)) for end in interval(numbers))
        if len(numbers) > 1 and np.ptp(numbers):
            with np.errstate(divide="ignore", invalid="ignore"):  # squares of the least differences are 0
                p = float(2 * stdtr(len(numbers) - 1, -abs(numbers.mean()) / _standard_error(numbers)))
        return cls(values if isinstance(values, pd.Series) else np.asarray(values, float), mean, low, high, p)

    @property
    def seeds(self) -> int:
        """The number of seeds that have a value."""
        return len(finite(self.values))

    def __str__(self) -> str:
        mean = f"{self.mean:+.1f}" if self.seeds else "–"
        return mean if self.seeds < 2 else f"{mean} {bounds((self.low, self.high))}"


def adjusted(p_values: ArrayLike) -> np.ndarray:
    """p-values of many tests, adjusted to the false discovery rate (Benjamini and Hochberg 1995); nan stays nan."""
    values = np.asarray(p_values, float)
    tested = np.isfinite(values)
    if tested.any():
        values = values.copy()
        values[tested] = stats.false_discovery_control(values[tested])
    return values


def p_text(p: float) -> str:
    """A p-value in a table: three decimals, none of which is 0.000, and a dash where there is no test."""
    return "–" if np.isnan(p) else f"{p:.3f}" if p >= 0.001 else "< 0.001"


def verdict(change: Change, p: float = np.nan, above: str = "higher", below: str = "lower") -> str:
    """The verdict by the 95 % interval of a mean change in percent and, if given, by its p of several tests.

    `above` or `below` if the whole interval lies on that side of 0 and p is at most `LEVEL`; otherwise "no difference"
    if the interval lies within ± `MARGIN`, and "inconclusive" if it reaches further; with a remark for fewer than
    `LEAST_SEEDS` seeds. Without p (nan) the interval alone decides. Two one-sided tests that the mean lies beyond the
    margin (Schuirmann 1987, doi 10.1007/BF01068419) reject at 2.5 % each exactly where the 95 % interval lies within
    it. The usual 5 % each would need the 90 % interval; here one interval, the one in the tables, answers both
    questions.
    """
    if (n := change.seeds) < 2:
        return f"cannot be judged from {n} seed{'s' * (n != 1)}"
    is_clear = not p > LEVEL  # nan is not more
    neither = "no difference" if change.low > -MARGIN and change.high < MARGIN else "inconclusive"
    word = above if is_clear and change.low > 0 else below if is_clear and change.high < 0 else neither
    return word if n >= LEAST_SEEDS else f"{word} ({n} seeds only)"


def judged_rows(name: str, rows: Sequence[tuple[Mapping[str, Any], Change, bool]], *sides: str) -> pd.DataFrame:
    """A table of rows with a test in each, given as its cells, the change, and whether its verdict is withheld.

    The last columns are the verdict `name`, its p, and the verdict without it. p is adjusted over all rows, because of
    many tests without a difference some would find one by chance. `sides` are the words `above` and `below` of
    `verdict`. Rows whose verdict is withheld are no tests.
    """
    tests = [None if withheld else change for _, change, withheld in rows]
    p_adjusted = adjusted([change.p if change else np.nan for change in tests])

    def words(p_values: np.ndarray) -> list[str]:
        """Each row's verdict, by these p."""
        return [verdict(of, p, *sides) if of else WITHHELD for of, p in zip(tests, p_values, strict=True)]

    columns = {name: words(p_adjusted), "p, adjusted": [*map(p_text, p_adjusted)]}
    return pd.DataFrame([cells for cells, *_ in rows]).assign(**columns, unadjusted=words(np.full(len(rows), np.nan)))


def level_with_interval(values: ArrayLike, digits: int, share: bool = False) -> str:
    """`mean [low, high]` of what is no change, with its t interval; only the mean for one value, a dash for none.

    The interval of a `share` stays within [0, 1], see `share_interval`.
    """
    numbers = finite(values)
    mean, of = mean_text(numbers, digits), share_interval if share else interval
    return mean if len(numbers) < 2 else f"{mean} {bounds(of(numbers), f'.{digits}f')}"


def with_spread(values: ArrayLike, digits: int) -> str:
    """`mean ± standard deviation` (of a sample); only the mean for one value, a dash for none."""
    numbers = finite(values)
    mean = mean_text(numbers, digits)
    return mean if len(numbers) < 2 else f"{mean} ± {numbers.std(ddof=1):.{digits}f}"


def mean_text(values: ArrayLike, digits: int) -> str:
    """The mean alone, of what stands for scale beside other numbers; a dash for none."""
    numbers = finite(values)
    return f"{numbers.mean():.{digits}f}" if len(numbers) else "–"


def bounds(of: tuple[float, float], form: str = "+.1f") -> str:
    """`[low, high]`, by default of changes in percent, or a dash if there is no interval."""
    return f"[{of[0]:{form}}, {of[1]:{form}}]" if np.isfinite(of).all() else "–"
