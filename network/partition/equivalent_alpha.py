"""How non-IID given clients are: the concentration of the Dirichlet distribution that their counts look drawn from.

If client i's mixture of groups is drawn from Dir(s p) with the population's mixture p, its n_i images have counts n_ik
of the Dirichlet-multinomial (Pólya) distribution. Its log likelihood is, up to a constant, a sum over clients:

    ln Γ(s) - ln Γ(s + n_i) + Σ_k [ln Γ(s p_k + n_ik) - ln Γ(s p_k)]

(Minka 2000, "Estimating a Dirichlet distribution", section 3). The estimate of s is the α of the rules that draw
mixtures from Dir(α p): Hsu et al. 2019 (arXiv 1909.06335) and this project's `paper`, `equal_size` and `dirichlet_hsu`.
With merged groups, a Dirichlet distribution keeps its s. So s does not depend on the number of groups if the model
holds.

The population's mixture is not known, but estimated from the same counts. With the pooled mixture in its place, s is
overestimated (by a third with five clients), and intervals are too short. So p is estimated together with s: its
likeliest value for every s (section 4 there). The adjustment of Cox and Reid 1987 (Journal of the Royal Statistical
Society B 49), minus half the log determinant of p's information, accounts for its degrees of freedom.

Limits: s has a meaning if clients' mixtures are one Dirichlet distribution's (`misfit` tests it, and `merged` shows
whether s depends on the number of groups). The estimate needs at least two clients, two groups and two images of one
client. If each client has one group, the likelihood rises towards s = 0. If clients differ no more than IID ones, it
rises towards infinity. The interval is then open at that end. Clients of a partition share a fixed population, so they
vary less than independent draws, most of all few clients that take whole groups.

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

from network.partition.polya import LEAST, MOST, Curve, Likelihood

if TYPE_CHECKING:
    from network.partition.heterogeneity import Counts

_TESTED = 1000  # clients, at most, on which the fit is tested
_LOG_STEP, _TAIL = 0.2, 40.0  # of the integral over log t: e^-40 is left out; the trapezoid's error is smaller
_FAR = 1e6  # beyond this s, the first term of the expansion in 1 / s is exact to five digits


@dataclass(frozen=True)
class Estimate:
    """The concentration s of the Dirichlet distribution that clients' mixtures look drawn from.

    `alpha` is the estimate, from 0 (each client has one group) to infinity (the likelihood does not fall towards IID);
    `low` and `high` are the ends of its interval of 95 % by profile likelihood, 0 and infinity where there is none.
    `population` (K,) is the mixture of all clients, estimated together with it: clients with few images count less;
    0 for groups that nobody has. `clients` and `images` are the numbers used.
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
        UserError: if fewer than two clients have images, all images are of one group, or no client has more than one
            image. Any s is then as likely as any other.
    """
    likelihood = Likelihood(counts)
    curve = Curve(likelihood, likelihood.pooled)
    log_s = curve.highest()
    low, high = curve.ends(log_s)
    population = likelihood.population(math.exp(log_s), likelihood.pooled)
    return Estimate(_alpha(log_s), low, high, population, likelihood.n_clients, likelihood.n_images)


def bootstrap(counts: Counts, estimate: Estimate, seed: int, draws: int = 200) -> tuple[float, float]:
    """The ends of a 95 % percentile interval of an estimate's `alpha`, over clients drawn with replacement.

    It holds where mixtures are no Dirichlet's, but is too short with few clients. A draw that tells nothing of s, as
    where all its clients are one, is drawn again.
    """
    likelihood = Likelihood(counts)
    rng, n = np.random.default_rng(seed), likelihood.n_clients
    estimates: list[float] = []
    while len(estimates) < draws:
        if likelihood.of(np.bincount(rng.integers(0, n, n), minlength=n)).tells:
            estimates.append(_near(likelihood, estimate))
    low, high = np.quantile(estimates, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


def misfit(counts: Counts, seed: int, draws: int = 99) -> float:
    """The p-value of the hypothesis that the clients' mixtures are drawn from one Dirichlet distribution.

    A parametric bootstrap draws counts of clients of the same sizes from the estimate and estimates again. The draws
    are compared by the largest over groups of |ln v_k|. There v_k is the mean over clients of the squared residual of
    n_ik over its variance under the model. p is small if some group varies more, or less, between clients than the
    others do: in a Dirichlet distribution one number fixes the spread of all. Of many clients, 1,000 drawn by the seed
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
        likelihood = Likelihood(drawn) if (drawn.sum(axis=0) > 0).sum() > 1 else None
        alpha = _near(likelihood, estimate) if likelihood else estimate.alpha
        beyond += _largest_residual(drawn, alpha) >= seen
    return (1 + beyond) / (1 + draws)


def _largest_residual(counts: np.ndarray, s: float) -> float:
    """The largest over groups of |ln v_k|, see `misfit`, at the pooled mixture."""
    sizes, totals = counts.sum(axis=1, keepdims=True), counts.sum(axis=0)
    some = (totals > 0) & (totals < totals.sum())
    p = totals[some] / totals.sum()
    over = 1.0 if math.isinf(s) else (sizes + s) / (1 + s)
    squares = np.square(counts[:, some] - sizes * p) / (sizes * p * (1 - p) * over)
    return float(np.abs(np.log(np.maximum(squares.mean(axis=0), 1e-12))).max(initial=0))


def draw_counts(estimate: Estimate, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts (clients, K) of clients of these sizes (clients,), drawn from an estimate's distribution."""
    from network.partition.shares import log_dirichlet

    present = estimate.population > 0
    drawn = np.zeros((len(sizes), len(present)), np.int64)
    concentration = np.clip(estimate.alpha, LEAST, MOST) * estimate.population[present]
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


def _near(likelihood: Likelihood, estimate: Estimate) -> float:
    """The likeliest s of counts that are like those of an estimate, to a twentieth of its standard error or so."""
    low, alpha, high = (math.log(min(max(x, LEAST), MOST)) for x in (estimate.low, estimate.alpha, estimate.high))
    return _alpha(Curve(likelihood, estimate.population).near(alpha, (high - low) / 4))


def _alpha(log_s: float) -> float:
    """The estimate at a place of the curve: 0 and infinity at its ends."""
    return 0.0 if log_s == Curve.least else math.inf if log_s == Curve.most else math.exp(log_s)
