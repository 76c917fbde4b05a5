"""The likelihood of the Dirichlet-multinomial (Pólya) distribution, as a function of the concentration s alone.

`equivalent_alpha.py` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from utils.errors import UserError

if TYPE_CHECKING:
    from network.partition.heterogeneity import Counts

LEAST, MOST = 1e-6, 1e12  # between which s is searched: a client has one group, and hardly differs from an IID one
_STEPS = 37  # of the first search, at equal ratios: half a power of ten
_STEP = 1.0  # the longest first step to a similar estimate
_DROP = 1.920729  # of the log likelihood at the ends of a 95 % interval: half the quantile of chi squared at one degree
_STILL = 1e-5  # the largest relative change of p after which Newton's next step is nothing
_ROUNDS = 500  # when to stop before that


class Likelihood:
    """The likelihood of the clients' counts: how often each number of images of each group, and each size, occurs.

    For all but s, likelihoods are relative to that of IID clients, s = ∞, which keeps them exact however large s is.
    """

    def __init__(self, counts: Counts) -> None:
        from scipy.sparse import coo_array

        cells = coo_array(counts)
        used = cells.data > 0
        group, images = (values[used].astype(np.int64) for values in (cells.coords[1], cells.data))
        clients, self._client = np.unique(cells.coords[0][used], return_inverse=True)
        self.n_groups, self.n_clients, self.n_images = cells.shape[1], len(clients), int(images.sum())
        sizes = np.bincount(self._client, images).astype(np.int64) if len(images) else np.zeros(0, np.int64)
        if self.n_clients < 2:
            raise UserError(f"{self.n_clients} of the clients have images; how clients differ takes at least two")
        if len(np.unique(group)) < 2:
            raise UserError("all images are of one group, in which clients cannot differ; give groups that they have")
        if sizes.max() < 2:
            raise UserError("no client has more than one image, which tells nothing of its mixture of groups")
        base = int(images.max()) + 1  # a number for each pair of group and images: rows are slow to sort
        numbers, self._pair = np.unique(group * base + images, return_inverse=True)
        self._pairs = np.stack(np.divmod(numbers, base))
        self._sizes, self._size = np.unique(sizes, return_inverse=True)
        self.of(np.ones(self.n_clients))

    def of(self, weights: np.ndarray) -> Likelihood:
        """The same where each client occurs as often as its weight (clients,) says; itself, changed."""
        times = np.bincount(self._pair, weights[self._client], self._pairs.shape[1])
        occur = times > 0
        (self._cells_group, self._cells_n), self._cells_times = self._pairs[:, occur], times[occur]
        self._size_times = np.bincount(self._size, weights, len(self._sizes))
        self._images = np.bincount(self._cells_group, self._cells_times * self._cells_n, self.n_groups)
        self._present = self._images > 0
        return self

    @property
    def tells(self) -> bool:
        """Whether s makes a difference: there are two groups, and a client with two images."""
        return int(self._present.sum()) > 1 and bool(self._sizes[self._size_times > 0].max() > 1)

    @property
    def pooled(self) -> np.ndarray:
        """The mixture of all images, (K,)."""
        return self._images / self._images.sum()

    def population(self, s: float, start: np.ndarray) -> np.ndarray:
        """The likeliest mixture p (K,) at s, from `start`.

        By Newton's method, whose steps along the simplex have a closed form since the information is diagonal. Where a
        step would change a share by more than a factor of four, Minka's fixed point replaces it, which always climbs.
        """
        present, p = self._present, np.where(self._present, start, 0)
        p = p / p.sum()
        for _ in range(_ROUNDS):
            slope = self._by_group(_slope(s * p, self._cells_group, self._cells_n))[present] / p[present]
            curvature = self.information(s, p)[present]
            level = (slope / curvature).sum() / (1 / curvature).sum()
            new = p[present] + (slope - level) / curvature
            if not ((new > p[present] / 4) & (new < p[present] * 4)).all():
                new = p[present] * slope
            new = new / new.sum()
            change, p = np.abs(new / p[present] - 1).max(), np.zeros(self.n_groups)
            p[present] = new
            if change < _STILL:
                break
        return p

    def value(self, s: float, p: np.ndarray) -> float:
        """The logarithm of the likelihood over that of IID clients with the pooled mixture."""
        ratio = float(self._images[self._present] @ np.log(p[self._present] / self.pooled[self._present]))
        clients = float(self._cells_times @ _rise(s * p, self._cells_group, self._cells_n))
        sizes = _rise(np.array([s]), np.zeros(len(self._sizes), np.int64), self._sizes)
        return ratio + clients - float(self._size_times @ sizes)

    def information(self, s: float, p: np.ndarray) -> np.ndarray:
        """The information on each share of p (K,), were they free: s² Σ_i [ψ'(s p_k) - ψ'(s p_k + n_ik)]."""
        sums = self._by_group(_curvature(s * p, self._cells_group, self._cells_n))
        return np.divide(sums, p**2, where=p > 0, out=sums)

    def adjustment(self, s: float, p: np.ndarray) -> float:
        """Minus half the log determinant of p's information where shares add up to one, but for a constant."""
        return _adjustment(self.information(s, p)[self._present])

    def _by_group(self, values: np.ndarray) -> np.ndarray:
        """The sums over clients of a value of each cell, (K,)."""
        return np.bincount(self._cells_group, self._cells_times * values, self.n_groups)

    def iid(self) -> float:
        """The adjusted likelihood for s towards infinity."""
        return _adjustment(self._images.sum() / self.pooled[self._present])


def _adjustment(information: np.ndarray) -> float:
    """Minus half the log determinant of a diagonal information, restricted to shares that add up to one."""
    return -0.5 * float(np.log(information).sum() + np.log((1 / information).sum()))


# Sums over j < n of terms in a[of], for the n of each cell, from gamma functions or, where these cancel, series.
_SERIES = 1e-3  # of a: what n is below


def _rise(a: np.ndarray, of: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of ln(1 + j / a)."""
    from scipy.special import gammaln

    a_of = a[of]
    exact = gammaln(a_of + n) - gammaln(a)[of] - n * np.log(a_of)
    return _or_series(exact, a_of, n, lambda a, j, jj, jjj: j / a - jj / (2 * a**2) + jjj / (3 * a**3))


def _slope(a: np.ndarray, of: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of a / (a + j)."""
    from scipy.special import digamma

    a_of = a[of]
    exact = a_of * (digamma(a_of + n) - digamma(a)[of])
    return _or_series(exact, a_of, n, lambda a, j, jj, jjj: n - j / a + jj / a**2 - jjj / a**3)


def _curvature(a: np.ndarray, of: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of a² / (a + j)²."""
    a_of = a[of]
    values = _trigamma(np.concatenate([np.where(a > 0, a, 1), a_of + n]))
    exact = a_of * a_of * (values[of] - values[len(a) :])
    return _or_series(exact, a_of, n, lambda a, j, jj, jjj: n - 2 * j / a + 3 * jj / a**2 - 4 * jjj / a**3)


def _trigamma(x: np.ndarray) -> np.ndarray:
    """ψ'(x), several times as fast as SciPy's: by recurrence to x + 8 and the series there.

    Abramowitz and Stegun 6.4.6 and 6.4.12. The relative error is below 1e-10.
    """
    far = 1 / (x + 8)
    square = far * far
    series = far * (1 + far * (1 / 2 + far * (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30)))))
    return series + (1 / np.square(np.add.outer(np.arange(8), x))).sum(axis=0)


def _or_series(exact: np.ndarray, a: np.ndarray, n: np.ndarray, series: Callable[..., np.ndarray]) -> np.ndarray:
    """The exact sums or, where these cancel, series from a and the sums over j < n of j, j² and j³."""
    cancel = n < _SERIES * a
    if not cancel.any():
        return exact
    first = n * (n - 1.0) / 2
    return np.where(cancel, series(a, first, first * (2 * n - 1) / 3, first**2), exact)


class Curve:
    """The adjusted profile likelihood of s, over its logarithm."""

    least, most = math.log(LEAST), math.log(MOST)

    def __init__(self, likelihood: Likelihood, mixture: np.ndarray) -> None:
        self._likelihood, self._mixture = likelihood, mixture
        self._known: dict[float, float] = {}

    def __call__(self, log_s: float) -> float:
        if log_s not in self._known:
            s = math.exp(log_s)
            self._mixture = self._likelihood.population(s, self._mixture)  # the next search begins where this one ends
            adjustment = self._likelihood.adjustment(s, self._mixture)
            self._known[log_s] = self._likelihood.value(s, self._mixture) + adjustment
        return self._known[log_s]

    def highest(self) -> float:
        """Where it is highest, or one of its ends."""
        at = np.linspace(self.least, self.most, _STEPS)
        best = int(np.argmax([self(log_s) for log_s in at]))
        if best == len(at) - 1 or self._likelihood.iid() >= self(at[best]):
            return self.most
        if best == 0:
            return self.least
        return self._between(at[best - 1], at[best + 1])

    def near(self, log_s: float, step: float) -> float:
        """Where it is highest, to a tenth of a step or so, searched from a place on; or one of its ends.

        By a parabola through the highest place and those beside it; where these are further away than a step, from its
        highest place anew.
        """
        length = step = min(step, _STEP)
        left, middle, right = (min(max(x, self.least), self.most) for x in (log_s - step, log_s, log_s + step))
        while max(self(left), self(right)) > self(middle):
            length *= 2
            if self(right) > self(left):
                left, middle, right = middle, right, min(right + length, self.most)
            else:
                left, middle, right = max(left - length, self.least), left, middle
        if left < middle < right:
            before = (middle - left) * (self(middle) - self(right))
            after = (right - middle) * (self(middle) - self(left))
            move = (after * (right - middle) - before * (middle - left)) / (2 * max(before + after, LEAST))
            middle = max(middle, middle + move, key=self)
            if length > step:  # and so higher than where the search began
                return self.near(middle, step)
        return self.most if self._likelihood.iid() >= self(middle) else middle

    def _between(self, left: float, right: float) -> float:
        """Where it is highest between two places."""
        from scipy.optimize import minimize_scalar

        options = {"xatol": 1e-5}
        return float(minimize_scalar(lambda x: -self(x), bounds=(left, right), method="bounded", options=options).x)

    def ends(self, log_s: float) -> tuple[float, float]:
        """The ends of the 95 % interval of s around its highest place; 0 and infinity where it does not fall so far."""
        from scipy.optimize import brentq

        bar = max(self(log_s), self._likelihood.iid() if log_s == self.most else -math.inf) - _DROP

        def over(x: float) -> float:
            """How far it is above the bar."""
            return self(x) - bar

        low = 0.0 if over(self.least) >= 0 else math.exp(brentq(over, self.least, log_s, xtol=1e-4))
        if self._likelihood.iid() >= bar:
            return low, math.inf
        return low, math.exp(brentq(over, log_s, self.most, xtol=1e-4))
