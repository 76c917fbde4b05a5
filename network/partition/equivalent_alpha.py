"""How non-IID given clients are: the concentration of the Dirichlet distribution that their counts look drawn from.

If client i's mixture of groups is drawn from Dir(s p) with the population's mixture p, its n_i images have counts n_ik
of the Dirichlet-multinomial (Pólya) distribution, whose log likelihood is, but for a constant, a sum over clients:

    ln Γ(s) - ln Γ(s + n_i) + Σ_k [ln Γ(s p_k + n_ik) - ln Γ(s p_k)]

(Minka 2000, "Estimating a Dirichlet distribution", section 3). The estimate of s is the α of the rules that draw
mixtures from Dir(α p): Hsu et al. 2019 (arXiv 1909.06335) and this project's `paper`, `equal_size` and `dirichlet_hsu`.
A Dirichlet distribution stays one with the same s where groups are merged, so that s does not depend on the number of
groups where the model holds.

The population's mixture is not known, but estimated from the same counts. With the pooled mixture in its place, s is
overestimated (by a third with five clients), and intervals are too short. So p is estimated together with s (its
likeliest value for every s, section 4 there), and its degrees of freedom are taken off by the adjustment of Cox and
Reid 1987 (Journal of the Royal Statistical Society B 49): minus half the log determinant of p's information.

>>> rng = np.random.default_rng(0)
>>> mixtures = rng.dirichlet(0.5 * np.full(4, 0.25), 100)
>>> estimate = equivalent_alpha(rng.multinomial(50, mixtures))
>>> bool(estimate.low < 0.5 < estimate.high)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from utils.errors import UserError

if TYPE_CHECKING:
    from network.partition.heterogeneity import Counts

_LEAST, _MOST = 1e-6, 1e12  # between which s is searched: a client has one group, and hardly differs from an IID one
_STEPS = 37  # of the first search, at equal ratios: half a power of ten
_NEAR, _FEW_STEPS = 30.0, 7  # how far from another estimate, by ratio, and in how many steps, a similar one is searched
_DROP = 1.920729  # of the log likelihood at the ends of a 95 % interval: half the quantile of chi squared at one degree
_SETTLED, _ROUNDS = 1e-9, 500  # the largest change of p at which its fixed point is reached, and when to stop before
_TESTED = 2000  # clients, at most, on which the fit is tested
_LOG_STEP, _TAIL = 0.2, 40.0  # of the integral over log t: e^-40 is left out; the trapezoid's error is smaller
_FAR = 1e6  # beyond this s, the first term of the expansion in 1 / s is exact to five digits


@dataclass(frozen=True)
class Estimate:
    """The concentration s of the Dirichlet distribution that clients' mixtures look drawn from.

    `alpha` is the estimate, from 0 (each client has one group) to infinity (the likelihood does not fall towards IID);
    `low` and `high` are the ends of its interval of 95 % by profile likelihood, 0 and infinity where there is none.
    `population` (K,) is the mixture of all clients that was estimated with it, in which clients with few images count
    as far as they tell of it, 0 for groups that nobody has. `clients` and `images` are the numbers used.
    """

    alpha: float
    low: float
    high: float
    population: np.ndarray
    clients: int
    images: int


def equivalent_alpha(counts: Counts) -> Estimate:
    """The estimate from the images of each client and group, (clients, K) whole numbers, dense or sparse.

    Clients without images do not count.

    Raises:
        UserError: where fewer than two clients have images, where all images are of one group, or where no client has
            more than one image: any s is as likely as any other then.
    """
    likelihood = _Likelihood(counts)
    curve = _Curve(likelihood)
    log_s = curve.highest(np.linspace(math.log(_LEAST), math.log(_MOST), _STEPS))
    low, high = curve.ends(log_s)
    population = likelihood.population(math.exp(log_s), likelihood.pooled)
    alpha = 0.0 if log_s == curve.least else math.inf if log_s == curve.most else math.exp(log_s)
    return Estimate(alpha, low, high, population, likelihood.n_clients, likelihood.n_images)


def bootstrap(counts: Counts, estimate: Estimate, seed: int, draws: int = 200) -> tuple[float, float]:
    """The ends of a 95 % percentile interval of an estimate's `alpha`, over clients drawn with replacement.

    It holds where mixtures are no Dirichlet's, but is too short with few clients. A draw that tells nothing of s, as
    where all its clients are one, is drawn again.
    """
    likelihood = _Likelihood(counts)
    rng, n = np.random.default_rng(seed), likelihood.n_clients
    found: list[float] = []
    while len(found) < draws:
        if likelihood.of(np.bincount(rng.integers(0, n, n), minlength=n)).tells:
            found.append(_near(likelihood, estimate.alpha))
    low, high = np.quantile(found, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


def misfit(counts: Counts, seed: int, draws: int = 99) -> float:
    """The p-value of the hypothesis that the clients' mixtures are drawn from one Dirichlet distribution.

    A parametric bootstrap: counts of clients of the same sizes are drawn from the estimate, estimated again, and
    compared by the largest over groups of |ln v_k|, where v_k is the mean over clients of the squared residual of n_ik
    over its variance under the model. It is small where some group varies more, or less, between clients than the
    others do: in a Dirichlet distribution one number fixes the spread of all. Of many clients, 2,000 drawn by the seed
    are tested. Errors as for `equivalent_alpha`.
    """
    from scipy.sparse import csr_array

    rng, table = np.random.default_rng(seed), csr_array(counts)
    rows = np.flatnonzero(np.asarray(table.sum(axis=1)) > 0)
    if len(rows) > _TESTED:
        rows = np.sort(rng.choice(rows, _TESTED, replace=False))
    table = table[rows].toarray()
    estimate, sizes = equivalent_alpha(table), table.sum(axis=1)
    seen = _largest_residual(table, estimate.alpha)
    beyond = 0
    for _ in range(draws):
        drawn = draw_counts(estimate, sizes, rng)
        likelihood = _Likelihood(drawn) if (drawn.sum(axis=0) > 0).sum() > 1 else None
        alpha = _near(likelihood, estimate.alpha) if likelihood else estimate.alpha
        beyond += _largest_residual(drawn, alpha) >= seen
    return (1 + beyond) / (1 + draws)


def _largest_residual(counts: np.ndarray, s: float) -> float:
    """The largest over groups of |ln v_k|, see `misfit`, at the pooled mixture."""
    sizes, totals = counts.sum(axis=1, keepdims=True), counts.sum(axis=0)
    p = totals[totals > 0] / totals.sum()
    over = 1.0 if math.isinf(s) else (sizes + s) / (1 + s)
    squares = np.square(counts[:, totals > 0] - sizes * p) / (sizes * p * (1 - p) * over)
    return float(np.abs(np.log(np.maximum(squares.mean(axis=0), 1e-12))).max())


def draw_counts(estimate: Estimate, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts (clients, K) of clients of these sizes (clients,), drawn from an estimate's distribution."""
    from network.partition.shares import log_dirichlet

    present = estimate.population > 0
    drawn = np.zeros((len(sizes), len(present)), np.int64)
    concentration = np.clip(estimate.alpha, _LEAST, _MOST) * estimate.population[present]
    mixtures = np.exp(log_dirichlet(concentration, len(sizes), rng))
    drawn[:, present] = rng.multinomial(sizes, mixtures / mixtures.sum(axis=1, keepdims=True))
    return drawn


def merged(counts: Counts, n_groups: int, seed: int) -> np.ndarray:
    """The counts (clients, n_groups) where groups are merged at random into so many of about equal size.

    Groups, in random order, go one after another to the smallest of the merged ones.
    """
    from scipy.sparse import csc_array

    table = csc_array(counts)
    sizes = np.asarray(table.sum(axis=0))
    of, total = np.zeros((len(sizes), n_groups)), np.zeros(n_groups)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        smallest = int(np.argmin(total))
        of[group, smallest], total[smallest] = 1, total[smallest] + sizes[group]
    return (table @ of).astype(np.int64)


def per_class_alpha(s: float, population: np.ndarray) -> float:
    """The α of rules in which clients get shares ~ Dir(α) of each group, as spread as mixtures of Dir(s p).

    NIID-Bench (arXiv 2102.02079), Flower's `DirichletPartitioner`, FedLab. Compared by the probability that two images
    of one client are of one group. With mixtures of Dir(s p) it is Σ p_k² + (1 - Σ p_k²) / (s + 1). Of many clients
    with gamma shares g_k ~ Γ(α) of each group it is

        E[Σ_k (p_k g_k)² / Σ_l p_l g_l] / E[Σ_l p_l g_l] = (α + 1) ∫ Σ_k p_k² (1 + p_k t)^-2 Π_l (1 + p_l t)^-α dt

    over t from 0 to infinity, since 1 / x is the integral of exp(-x t). Where all K groups are equally large, α is
    s / K. It holds for shares without balancing (`--balanced False`, Flower's default, ByzFL, NVFlare). NIID-Bench's
    rule and Flower's `self_balancing` even out the clients' sizes, which leaves some without the later groups.

    Args:
        s: from 0 to infinity.
        population: (K,) the groups' shares.
    """
    from scipy.optimize import brentq

    p = population[population > 0]
    if not 0 < s < math.inf:
        return s
    chance = float(np.square(p).sum())
    if s > _FAR:  # Var θ_k = p_k² (1 - 2 p_k + Σ p²) / α to first order
        return s * (chance - 2 * float((p**3).sum()) + chance**2) / (1 - chance)

    def excess(log_alpha: float) -> float:
        """By how much clients of this α are more alike than those of Dir(s p)."""
        alpha = math.exp(log_alpha)
        log_t = np.arange(-_TAIL - max(0.0, log_alpha), _TAIL - math.log(p.min()), _LOG_STEP)
        terms = np.exp(log_t)[:, None] * p
        alike = np.square(p / (1 + terms)).sum(axis=1) * np.exp(log_t - alpha * np.log1p(terms).sum(axis=1))
        return (alpha + 1) * _LOG_STEP * float(alike.sum()) - chance - (1 - chance) / (s + 1)

    return math.exp(brentq(excess, math.log(s / len(p)) - _TAIL, math.log(s) + _TAIL, xtol=1e-9))


class _Likelihood:
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

    def of(self, weights: np.ndarray) -> _Likelihood:
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

        By Newton's method, whose steps along the simplex have a closed form since the information is diagonal; where
        one would change a share by more than a factor of four, by Minka's fixed point, which always climbs.
        """
        p, present = start, self._present
        for _ in range(_ROUNDS):
            slope = self._by_group(_slope(s * p[self._cells_group], self._cells_n))[present] / p[present]
            curvature = self.information(s, p)[present]
            level = (slope / curvature).sum() / (1 / curvature).sum()
            new = p[present] + (slope - level) / curvature
            if not ((new > p[present] / 4) & (new < p[present] * 4)).all():
                new = p[present] * slope
            new = new / new.sum()
            change, p = np.abs(new - p[present]).max(), np.zeros(self.n_groups)
            p[present] = new
            if change < _SETTLED:
                break
        return p

    def value(self, s: float, p: np.ndarray) -> float:
        """The logarithm of the likelihood over that of IID clients with the pooled mixture."""
        ratio = float(self._images[self._present] @ np.log(p[self._present] / self.pooled[self._present]))
        clients = float(self._cells_times @ _rise(s * p[self._cells_group], self._cells_n))
        return ratio + clients - float(self._size_times @ _rise(np.full(len(self._sizes), s), self._sizes))

    def information(self, s: float, p: np.ndarray) -> np.ndarray:
        """The information on each share of p (K,), were they free: s² Σ_i [ψ'(s p_k) - ψ'(s p_k + n_ik)]."""
        a = s * p[self._cells_group]
        sums = self._by_group(_curvature(a, self._cells_n))
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


# Sums over j < n that are differences of gamma functions; where these cancel, for large a, of their series.
_SERIES = 1e-3  # of a: what n is below


def _rise(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of ln(1 + j / a)."""
    from scipy.special import gammaln

    first, second, third = _powers(n)
    series = first / a - second / (2 * a**2) + third / (3 * a**3)
    return np.where(n < _SERIES * a, series, gammaln(a + n) - gammaln(a) - n * np.log(a))


def _slope(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of a / (a + j)."""
    from scipy.special import digamma

    first, second, third = _powers(n)
    series = n - first / a + second / a**2 - third / a**3
    return np.where(n < _SERIES * a, series, a * (digamma(a + n) - digamma(a)))


def _curvature(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The sums of a² / (a + j)²."""
    from scipy.special import polygamma

    first, second, third = _powers(n)
    series = n - 2 * first / a + 3 * second / a**2 - 4 * third / a**3
    return np.where(n < _SERIES * a, series, a * a * (polygamma(1, a) - polygamma(1, a + n)))


def _powers(n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sums over j < n of j, j² and j³."""
    n = n.astype(np.float64)
    first = n * (n - 1) / 2
    return first, first * (2 * n - 1) / 3, first**2


class _Curve:
    """The adjusted profile likelihood of s, over its logarithm."""

    least, most = math.log(_LEAST), math.log(_MOST)

    def __init__(self, likelihood: _Likelihood) -> None:
        self._likelihood, self._mixture = likelihood, likelihood.pooled

    def __call__(self, log_s: float) -> float:
        s = math.exp(log_s)
        self._mixture = self._likelihood.population(s, self._mixture)  # the next search begins where this one ends
        return self._likelihood.value(s, self._mixture) + self._likelihood.adjustment(s, self._mixture)

    def highest(self, at: np.ndarray, precision: float = 1e-5) -> float:
        """Where it is highest, from the values `at` increasing places; the first or last of these where it is there."""
        from scipy.optimize import minimize_scalar

        best = int(np.argmax([self(log_s) for log_s in at]))
        if best == len(at) - 1 or (at[-1] == self.most and self._likelihood.iid() >= self(at[best])):
            return float(at[-1])
        if best == 0:
            return float(at[0])
        bounds = at[best - 1], at[best + 1]
        return float(
            minimize_scalar(lambda x: -self(x), bounds=bounds, method="bounded", options={"xatol": precision}).x
        )

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


def _near(likelihood: _Likelihood, alpha: float) -> float:
    """The likeliest s of counts that are like others, whose estimate is `alpha`: coarser, and so faster."""
    if 0 < alpha < math.inf:
        reach = math.log(_NEAR)
        at = np.linspace(
            max(math.log(alpha) - reach, _Curve.least), min(math.log(alpha) + reach, _Curve.most), _FEW_STEPS
        )
    else:
        at = np.linspace(_Curve.least, _Curve.most, _STEPS // 2 + 1)
    log_s = _Curve(likelihood).highest(at, precision=1e-2)
    return 0.0 if log_s == _Curve.least else math.inf if log_s == _Curve.most else math.exp(log_s)
