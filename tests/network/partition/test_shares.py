"""Dirichlet draws, client sizes and whole counts against formulas, linear programs and a plain sequential draw."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import logsumexp

from network.partition.shares import _log_sum, fill, fit, log_dirichlet, renormalised, rounded, solve_sizes
from utils.errors import UserError

CAPACITIES, SEEDS = st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 5)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 10.0])
def test_dirichlet_has_the_mean_and_variance_of_the_formula(alpha: float) -> None:
    ratios = np.array([0.5, 0.3, 0.2])
    draws = np.exp(log_dirichlet(alpha * ratios, 100_000, np.random.default_rng(1)))
    assert np.allclose(draws.sum(axis=1), 1.0)
    # Var q_k = m_k (1 - m_k) / (alpha + 1); four standard errors of 100,000 draws are below 0.007.
    assert np.allclose(draws.mean(axis=0), ratios, atol=0.007)
    assert np.allclose(draws.var(axis=0), ratios * (1 - ratios) / (alpha + 1), atol=0.005)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e300])
def test_the_logarithm_of_a_sum_is_scipys(scale: float) -> None:
    logs = np.random.default_rng(0).integers(-20, 3, (200, 5)) * scale  # with ties for the largest
    np.testing.assert_allclose(_log_sum(logs), logsumexp(logs, axis=1, keepdims=True), rtol=1e-15)


def test_dirichlet_logarithms_at_tiny_concentrations_follow_their_distribution() -> None:
    # Of two parts at a -> 0, the smaller one's logarithm is -Exp(a) to first order: P(log q < -t) = exp(-a t).
    logs = log_dirichlet(np.full(2, 1e-6), 50_000, np.random.default_rng(0)).min(axis=1)
    assert -logs.mean() == pytest.approx(1e6, rel=0.02)
    assert np.quantile(-logs, 0.5) == pytest.approx(np.log(2) * 1e6, rel=0.02)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1e6])
def test_dirichlet_stays_finite_at_extreme_concentrations(alpha: float) -> None:
    logs = log_dirichlet(np.full(16, alpha / 16), 1000, np.random.default_rng(0))
    assert np.isfinite(logs).all()
    assert np.allclose(np.exp(logs).sum(axis=1), 1.0)


@pytest.mark.parametrize("concentration", [0.0, -1.0, np.nan, np.inf])
def test_a_concentration_that_is_no_positive_number_is_refused(concentration: float) -> None:
    with pytest.raises(UserError, match="--alpha"):
        log_dirichlet(np.array([1.0, concentration]), 2, np.random.default_rng(0))


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 500), weights=st.lists(st.floats(0, 1), min_size=1, max_size=12), seed=st.integers(0, 9))
def test_rounding_keeps_the_sum_and_moves_nothing_by_one(n: int, weights: list[float], seed: int) -> None:
    shares = (np.array(weights) + 1e-3) / (np.array(weights) + 1e-3).sum()
    whole = rounded(n, shares, np.random.default_rng(seed))
    assert whole.sum() == n
    assert (np.abs(whole - n * shares) < 1 + 1e-9).all()


def test_rounding_is_right_on_average() -> None:
    shares, rng = np.array([0.07, 0.5, 0.33, 0.1]), np.random.default_rng(0)
    mean = np.mean([rounded(3, shares, rng) for _ in range(20_000)], axis=0)
    assert mean == pytest.approx(3 * shares, abs=0.015)  # four standard errors of 20,000 coins


def test_shares_whose_group_is_gone_stay_as_skewed_over_the_rest() -> None:
    logs = np.array([0.0, -2000.0, -2001.0, -5000.0])  # all but the first are 0 as numbers
    left = renormalised(logs, np.array([False, True, True, True]))
    assert left == pytest.approx([0, 1 / (1 + np.exp(-1)), 1 / (1 + np.e), 0])


@settings(max_examples=80, deadline=None)
@given(capacity=CAPACITIES, n_clients=st.integers(1, 6), share=st.floats(0, 1), drawn=st.booleans(), seed=SEEDS)
def test_filling_meets_sizes_and_capacities(
    capacity: list[int], n_clients: int, share: float, drawn: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.full(n_clients, int(share * sum(capacity)) // n_clients)
    shares = log_dirichlet(np.full(len(capacity), 0.2), n_clients, rng)
    counts = fill(shares, sizes, np.array(capacity), rng.multinomial if drawn else partial(rounded, rng=rng))
    assert (counts.sum(axis=1) == sizes).all()
    assert (counts >= 0).all() and (counts.sum(axis=0) <= capacity).all()


@settings(max_examples=150, deadline=None)
@given(
    capacity=CAPACITIES,
    n_clients=st.integers(1, 12),
    share=st.floats(0, 1),
    concentration=st.sampled_from([1e-290, 1e-9, 1e-3, 0.2, 10.0, 1e9]),
    seed=SEEDS,
)
def test_fitting_meets_sizes_and_capacities(
    capacity: list[int], n_clients: int, share: float, concentration: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.full(n_clients, int(share * sum(capacity)) // n_clients)
    log_shares = log_dirichlet(np.full(len(capacity), concentration), n_clients, rng)
    counts = fit(log_shares, sizes, np.array(capacity), rng)
    assert (counts.sum(axis=1) == sizes).all()
    assert (counts >= 0).all() and (counts.sum(axis=0) <= capacity).all()


def test_fitting_multiplies_the_odds_of_all_clients_by_the_same() -> None:
    shares, sizes, capacity = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]), np.array([2000, 1000, 3000]), [2000, 4000]
    # The shares of the first group with odds times t add up to its 2000 images; solved here by a fine grid.
    odds = (shares[:, 0] / shares[:, 1])[:, None] * np.exp(np.linspace(-5, 5, 1_000_001))
    wanted = sizes[:, None] * odds / (1 + odds)
    expected = wanted[:, np.abs(wanted.sum(axis=0) - 2000).argmin()]
    for seed in range(10):  # whichever of the groups comes first
        counts = fit(np.log(shares), sizes, np.array(capacity), np.random.default_rng(seed))
        assert (np.abs(counts[:, 0] - expected) < 1).all()


def test_at_tiny_concentrations_a_group_goes_whole_to_those_who_want_it_most() -> None:
    # Four clients of ten images and two groups of twenty: the logarithms of the odds order the clients.
    for logs in ([-1e7, -3e7, -2e7, -4e7], [1e9, 3e9, 2e9, 4e9], [-1e9, -1e9 + 90, -1e9 + 70, -2e9]):
        log_shares = np.stack([np.minimum(logs, 0.0), np.minimum(np.negative(logs), 0.0)], axis=1)
        counts = fit(log_shares, np.full(4, 10), np.array([20, 20]), np.random.default_rng(0))
        first = np.isin(np.arange(4), np.argsort(logs)[2:])
        np.testing.assert_array_equal(counts, 10 * np.stack([first, ~first], axis=1))


def test_drawn_counts_are_those_of_drawing_image_by_image_without_replacement() -> None:
    shares = np.array([[0.7, 0.2, 0.1], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]])
    capacity, size, n = np.array([7, 8, 9]), 6, 4000

    def one_by_one(rng: np.random.Generator) -> np.ndarray:
        left, counts = capacity.copy(), np.zeros((3, 3))
        for client in range(3):
            for _ in range(size):
                open_shares = shares[client] * (left > 0)
                group = rng.choice(3, p=open_shares / open_shares.sum())
                counts[client, group] += 1
                left[group] -= 1
        return counts

    rng = np.random.default_rng(0)
    expected = np.stack([one_by_one(rng) for _ in range(n)])
    found = np.stack([fill(np.log(shares), np.full(3, size), capacity, rng.multinomial) for _ in range(n)])
    error = np.sqrt((expected.var(axis=0) + found.var(axis=0)) / n)
    assert (np.abs(expected.mean(axis=0) - found.mean(axis=0)) < 4 * error).all()
    assert found.std(axis=0) == pytest.approx(expected.std(axis=0), rel=0.1)


def test_sizes_are_those_of_the_pseudo_inverse_where_it_is_feasible() -> None:
    capacity, found = np.array([3000, 2000, 1000]), 0
    for seed in range(60):
        shares = np.exp(log_dirichlet(20.0 * capacity / 6000, 4, np.random.default_rng(seed)))
        published = np.linalg.pinv(shares.T) @ capacity
        if published.min() >= 100:
            found += 1
            assert solve_sizes(shares, capacity, 100) == pytest.approx(published)
    assert found >= 5


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0, 100.0])
def test_sizes_use_nearly_all_the_data_that_any_sizes_could_use(alpha: float) -> None:
    capacity, rng = np.random.default_rng(0).multinomial(5000, np.full(16, 1 / 16)), np.random.default_rng(1)
    while True:
        shares = np.exp(log_dirichlet(alpha * capacity / 5000, 25, rng))
        if (20 * shares.sum(axis=0) <= capacity).all():
            break
    sizes = solve_sizes(shares, capacity, 20)
    assert sizes.min() >= 20
    assert (shares.T @ sizes <= capacity * (1 + 1e-9)).all()
    most = -linprog(-np.ones(25), A_ub=shares.T, b_ub=capacity, bounds=(20, None)).fun
    assert 0.95 * most < sizes.sum() <= most + 1e-6
