"""The equivalent α against independent likelihoods, closed forms, and draws whose α is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_array
from scipy.special import gammaln

from network.partition.equivalent_alpha import (
    Estimate,
    _near,
    bootstrap,
    draw_counts,
    equivalent_alpha,
    merged,
    misfit,
    per_class_alpha,
)
from network.partition.polya import Likelihood
from utils.errors import UserError


def drawn(alpha: float, n_clients: int, n_images: int, n_groups: int, seed: int) -> np.ndarray:
    """Counts of clients whose mixtures are drawn from Dir(alpha p), with an uneven p."""
    rng = np.random.default_rng(seed)
    population = rng.dirichlet(np.full(n_groups, 5.0))
    estimate = Estimate(alpha, alpha, alpha, population, n_clients, n_clients * n_images)
    return draw_counts(estimate, np.full(n_clients, n_images), rng)


def log_likelihood(counts: np.ndarray, s: float, p: np.ndarray) -> float:
    """The Pólya distribution's, but for a constant, as in the module's head."""
    clients = gammaln(s) - gammaln(s + counts.sum(axis=1))
    return float(clients.sum() + (gammaln(s * p + counts) - gammaln(s * p)).sum())


def test_the_estimate_is_the_optimum_of_a_likelihood_written_independently() -> None:
    counts = drawn(1.5, 12, 40, 3, seed=3)

    def profile(log_s: float) -> float:
        """Over p by a general optimiser, minus half the log determinant of its numerical Hessian on the simplex."""
        s = math.exp(log_s)

        def negative(free: np.ndarray) -> float:
            p = np.append(free, 1 - free.sum())
            return -log_likelihood(counts, s, p) if (p > 0).all() else 1e9

        start = (counts.sum(axis=0) / counts.sum())[:2]
        best = minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11}).x
        step = 1e-4 * np.eye(2)
        hessian = [
            [
                negative(best + a + b) - negative(best + a - b) - negative(best - a + b) + negative(best - a - b)
                for b in step
            ]
            for a in step
        ]
        return -negative(best) - 0.5 * math.log(np.linalg.det(np.array(hessian) / 4e-8))

    best = minimize_scalar(lambda x: -profile(x), bounds=(-2, 3), method="bounded", options={"xatol": 1e-6})
    estimate = equivalent_alpha(counts)
    assert estimate.alpha == pytest.approx(math.exp(best.x), rel=2e-4)
    for end in (estimate.low, estimate.high):  # half of chi squared's 95 % quantile at one degree: 3.8415 / 2
        assert profile(math.log(end)) == pytest.approx(-best.fun - 1.9207, abs=2e-3)


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_intervals_hold_the_alpha_that_counts_were_drawn_with(alpha: float) -> None:
    estimates = [equivalent_alpha(drawn(alpha, 20, 50, 4, seed)) for seed in range(40)]
    assert sum(each.low <= alpha <= each.high for each in estimates) >= 34  # of 38 expected
    assert np.median([each.alpha for each in estimates]) == pytest.approx(alpha, rel=0.25)


def test_merging_groups_leaves_alpha() -> None:
    counts = drawn(2.0, 300, 60, 16, seed=1)
    for n_groups in (2, 4, 8):
        fewer = merged(counts, n_groups, seed=0)
        assert fewer.shape == (300, n_groups) and (fewer.sum(axis=1) == 60).all()
        estimate = equivalent_alpha(fewer)
        assert estimate.low < 2.0 < estimate.high


def test_disjoint_clients_have_alpha_0_and_equal_ones_infinity() -> None:
    disjoint = equivalent_alpha(np.diag([30, 30, 30]))
    assert disjoint.alpha == disjoint.low == 0 and disjoint.high < 0.5
    equal = equivalent_alpha(np.tile([40, 60], (5, 1)))
    assert math.isinf(equal.alpha) and math.isinf(equal.high) and equal.low > 10


def test_clients_and_groups_without_images_change_nothing() -> None:
    counts = drawn(0.5, 10, 30, 4, seed=2)
    wider = np.zeros((12, 6), int)
    wider[1:11, [0, 1, 3, 5]] = counts
    estimate, same = equivalent_alpha(counts), equivalent_alpha(csr_array(wider))
    assert (same.alpha, same.clients, same.images) == (estimate.alpha, 10, 300)
    assert same.population == pytest.approx(
        [*estimate.population[:2], 0, estimate.population[2], 0, estimate.population[3]]
    )


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ([[3, 4]], "1 of the clients have images"),
        ([[0, 0], [0, 0]], "0 of the clients"),
        ([[3, 0], [5, 0]], "one group"),
        ([[1, 0], [0, 1]], "more than one image"),
    ],
)
def test_what_tells_nothing_is_refused(counts: list[list[int]], error: str) -> None:
    with pytest.raises(UserError, match=error):
        equivalent_alpha(np.array(counts))


def test_per_class_alpha_of_equal_groups_is_a_share_of_s() -> None:
    for s in (0.01, 1.0, 50.0, 1e7):
        assert per_class_alpha(s, np.full(5, 0.2)) == pytest.approx(s / 5, rel=1e-6)
    assert (per_class_alpha(0.0, np.full(2, 0.5)), per_class_alpha(math.inf, np.full(2, 0.5))) == (0.0, math.inf)


@pytest.mark.parametrize("alpha", [0.3, 3.0])
def test_per_class_alpha_of_uneven_groups_is_that_of_simulated_clients(alpha: float) -> None:
    population = np.array([0.7, 0.2, 0.1])
    shares = np.random.default_rng(0).gamma(alpha, size=(400_000, 3)) * population
    alike = (np.square(shares).sum(axis=1) / shares.sum(axis=1)).mean() / shares.sum(axis=1).mean()
    chance = np.square(population).sum()
    s = (1 - chance) / (alike - chance) - 1
    assert per_class_alpha(s, population) == pytest.approx(alpha, rel=0.02)
    assert per_class_alpha(1.01e6, population) == pytest.approx(
        per_class_alpha(0.99e6, population) * 1.01 / 0.99, rel=1e-3
    )


def test_mixtures_that_are_no_dirichlets_are_told() -> None:
    counts = drawn(1.0, 30, 40, 4, seed=4)
    assert misfit(counts, seed=0, draws=39) > 0.05
    even = np.column_stack([np.full(30, 40), counts])  # a group of which each client has the same share
    assert misfit(even, seed=0, draws=39) < 0.05


def test_bootstrapped_intervals_lie_about_the_estimate_and_depend_on_the_seed_alone() -> None:
    counts = drawn(1.0, 25, 40, 4, seed=5)
    estimate = equivalent_alpha(counts)
    low, high = bootstrap(counts, estimate, seed=0, draws=60)
    assert estimate.low / 2 < low < estimate.alpha < high < 2 * estimate.high
    assert bootstrap(counts, estimate, seed=0, draws=60) == (low, high)


@pytest.mark.parametrize("start", [0.0, 0.01, 1.0, 300.0, math.inf])
def test_a_similar_estimate_is_the_same_from_wherever_it_is_searched(start: float) -> None:
    for counts in (drawn(0.5, 10, 30, 4, seed=2), drawn(20.0, 10, 30, 4, seed=2)):
        likelihood, estimate = Likelihood(counts), equivalent_alpha(counts)
        other = replace(estimate, alpha=start, low=min(start, 1.0) / 10, high=10 * max(start, 1.0))
        of_a_step = 0.1  # of one
        assert math.log(_near(likelihood, other)) == pytest.approx(math.log(estimate.alpha), abs=of_a_step)
    for counts, alpha in ((np.diag([30, 30]), 0.0), (np.tile([40, 60], (5, 1)), math.inf)):
        assert _near(Likelihood(counts), replace(other, population=np.full(2, 0.5))) == alpha


def test_intervals_hold_alpha_where_sizes_differ_by_orders_of_magnitude() -> None:
    sizes, inside = np.geomspace(2, 20_000, 25).astype(int), 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = Estimate(0.5, 0.5, 0.5, np.array([0.6, 0.3, 0.1]), 25, int(sizes.sum()))
        estimate = equivalent_alpha(draw_counts(truth, sizes, rng))
        inside += estimate.low <= 0.5 <= estimate.high
    assert inside >= 16  # of 19 expected
