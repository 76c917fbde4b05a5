"""Epsilon against the Gaussian mechanism's closed forms, and against sums written out by hand."""

from __future__ import annotations

import builtins
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import comb, logsumexp
from scipy.stats import norm

from network import accounting
from network.accounting import Account
from utils.errors import UserError

pytest.importorskip("dp_accounting", reason="needs requirements-privacy.txt")
ORDERS = np.array([1 + x / 10 for x in range(1, 100)] + [*range(11, 64), 128, 256, 512, 1024])
PAGE = Path(__file__).parents[2] / "docs" / "privacy_measured.md"
ALL = Account("uniform", 100, 100, 2.0, 1e-5)
POISSON = replace(ALL, sampling="poisson", expected=10)
FIXED = replace(ALL, expected=10)


def analytic(noise: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism, exactly: Balle and Wang 2018 (arXiv 1805.06530), theorem 8."""

    def excess(epsilon: float) -> float:
        a, b = 1 / (2 * noise), epsilon * noise
        return norm.cdf(a - b) - math.exp(epsilon + norm.logcdf(-a - b)) - delta

    return float(brentq(excess, 0, 600))


def from_rdp(rdp: np.ndarray, orders: np.ndarray, delta: float) -> float:
    """Epsilon by proposition 12 of Canonne, Kamath and Steinke 2020 (arXiv 2004.00010)."""
    return float((rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)).min())


def amplified(q: float, noise: float, delta: float) -> float:
    """Epsilon of one round of which a share q is drawn: theorems 8 and 9 of Balle, Barthe and Gaboardi (1807.01647)."""
    return math.log1p(q * math.expm1(analytic(noise, delta / q)))


def at_least(q: float, noise: float, n_rounds: int, delta: float) -> float:
    """A lower bound of epsilon after rounds that tell N(0, 1) from N(0, 1) with a share q of N(1 / noise, 1).

    What a round shows is sorted into bins, which hides something of it, and each bin's loss is rounded down. Of both
    directions, the larger.
    """
    edges = np.concatenate([[-np.inf], np.linspace(-12, 12 + 1 / noise, 40_001), [np.inf]])

    def probabilities(mean: float) -> np.ndarray:
        """Of the bins, each from the nearer tail."""
        return np.where(edges[1:] < mean, np.diff(norm.cdf(edges - mean)), -np.diff(norm.sf(edges - mean)))

    without = probabilities(0.0)
    having = q * probabilities(1 / noise) + (1 - q) * without
    seen = (without > 0) & (having > 0)
    found = []
    for one, other in ((having[seen], without[seen]), (without[seen], having[seen])):
        order = np.argsort(one / other)
        mass = one[order]
        loss = np.log(one / other)[order]
        rare = np.cumsum(mass[::-1])[::-1] < delta / n_rounds / 1000  # the largest losses count as the next smaller one
        loss = np.minimum(loss, loss[~rare].max())
        step = (loss.max() - loss.min()) / 8_000
        cells = np.floor(loss / step).astype(int)
        first = int(cells.min())
        mass = np.bincount(cells - first, mass)
        n = n_rounds * (len(mass) - 1) + 1
        length = 1 << n.bit_length()
        total = np.fft.irfft(np.fft.rfft(mass, length) ** n_rounds, length)[:n]
        losses = (np.arange(n) + n_rounds * first) * step
        total = np.where(total > 1e-13, total, 0.0)  # but for rounding

        def excess(epsilon: float, losses: np.ndarray = losses, total: np.ndarray = total) -> float:
            above = losses > epsilon
            return float(total[above] @ -np.expm1(epsilon - losses[above])) - delta

        found.append(float(brentq(excess, 0, losses[-1], xtol=1e-6)) if excess(0.0) > 0 else 0.0)
    return max(found)


@pytest.mark.parametrize("noise", [0.8, 2.0, 10.0])
@pytest.mark.parametrize("n_rounds", [1, 16])
def test_all_clients_in_every_round_are_a_gaussian_mechanism(noise: float, n_rounds: int) -> None:
    # So many rounds are one whose noise is smaller by the square root of their number.
    exact = analytic(noise / math.sqrt(n_rounds), 1e-5)
    for sampling in ("uniform", "poisson"):
        found = replace(ALL, sampling=sampling, noise_multiplier=noise).epsilon(n_rounds)
        assert exact * (1 - 1e-9) < found < 1.0001 * exact


@pytest.mark.parametrize(("q", "noise"), [(0.5, 1.0), (0.01, 0.5), (1e-5, 1.0), (0.3, 20.0), (0.5, 0.05)])
def test_one_sampled_round_is_exact(q: float, noise: float) -> None:
    account = Account("poisson", 100_000, round(1e5 * q), noise, 1e-6)
    assert 1 - 1e-6 < accounting._by_loss(account, 1) / amplified(q, noise, 1e-6) < 1.02
    halved = replace(account, sampling="uniform", noise_multiplier=2 * noise)  # the sum moves by two norms
    assert 1 - 1e-6 < accounting._by_loss(halved, 1) / amplified(q, noise, 1e-6) < 1.02


# Settings in which Rényi's account is 1.2 to 8,000 times as large.
@pytest.mark.parametrize(
    ("n_clients", "expected", "noise", "n_rounds"),
    [(50, 25, 0.3, 24), (50, 10, 0.5, 60), (1000, 10, 0.5, 70), (1000, 1, 1.0, 20), (100_000, 1, 1.0, 20)],
)
def test_epsilon_is_just_above_its_lower_bound(n_clients: int, expected: int, noise: float, n_rounds: int) -> None:
    account = Account("poisson", n_clients, expected, noise, 1e-5)
    lower = at_least(expected / n_clients, noise, n_rounds, 1e-5)
    assert lower * (1 - 1e-6) - 1e-6 < account.epsilon(n_rounds) < 1.02 * lower + 1e-4
    # A client that moves the sum from one side to the other, where all others are on one: neighbours of a fixed number.
    fixed = replace(account, sampling="uniform")
    lower = at_least(expected / n_clients, noise / 2, n_rounds, 1e-5)
    assert lower * (1 - 1e-6) - 1e-6 < fixed.epsilon(n_rounds) < 1.05 * lower + 0.002


def test_a_fixed_number_is_a_stronger_promise_and_all_of_them_none_but_their_noise() -> None:
    assert POISSON.epsilon(50) < FIXED.epsilon(50) < replace(ALL, noise_multiplier=1.0).epsilon(50)
    nearly = replace(FIXED, n_clients=10**6, expected=10**6 - 1)
    assert nearly.epsilon(4) == pytest.approx(analytic(0.5, 1e-5), rel=1e-3)


@pytest.mark.parametrize("account", [POISSON, FIXED, ALL])
def test_the_smaller_of_two_bounds_counts(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    both = accounting._by_divergence(account, 30), accounting._by_loss(account, 30)
    assert account.epsilon(30) == min(both)
    # The distribution of losses cannot be computed for every delta; divergences can.
    tiny = replace(account, delta=1e-12)
    assert math.isinf(accounting._by_loss(tiny, 30))
    assert tiny.epsilon(30) == accounting._by_divergence(tiny, 30) > account.epsilon(30)


def test_divergences_of_poisson_sampling_are_the_sum_over_how_often_a_client_is_drawn() -> None:
    # Mironov, Talwar and Zhang 2019 (arXiv 1908.10530), section 3.3, for whole orders.
    q, sigma, orders = 0.1, 2.0, np.arange(2, 64)
    rdp = []
    for order in orders:
        k = np.arange(order + 1)
        terms = np.log(comb(order, k)) + k * np.log(q) + (order - k) * np.log1p(-q) + k * (k - 1) / (2 * sigma**2)
        rdp.append(logsumexp(terms) / (order - 1))
    by_hand = from_rdp(50 * np.array(rdp), orders, 1e-5)
    assert accounting._by_divergence(POISSON, 50) == pytest.approx(by_hand, rel=0.01)


def test_divergences_of_a_fixed_number_are_bounded_as_in_the_theorem() -> None:
    # Theorem 9 of Wang, Balle and Kasiviswanathan 2019 (arXiv 1808.00087) for whole orders; dp-accounting's bound is
    # theorem 27, which is tighter. Replacing a client moves the sum by two clip norms: noise of 2 norms is one of 1.
    q, sigma, orders = 0.1, 1.0, np.arange(2, 40)
    rdp = []
    for order in orders:
        at_two = 1 / sigma**2  # epsilon(2)
        terms = [0.0, 2 * np.log(q) + np.log(comb(order, 2)) + min(np.log(4 * np.expm1(at_two)), at_two + np.log(2))]
        for j in range(3, order + 1):
            terms.append(j * np.log(q) + np.log(comb(order, j)) + (j - 1) * j / (2 * sigma**2) + np.log(2))
        rdp.append(logsumexp(terms) / (order - 1))
    theorem = from_rdp(50 * np.array(rdp), orders, 1e-5)
    found = accounting._by_divergence(FIXED, 50)
    assert FIXED.epsilon(50) < found <= theorem * 1.001
    little = replace(FIXED, n_clients=10, expected=5, noise_multiplier=0.5)  # which sampling does not make worse
    whole = from_rdp(24 * ORDERS / (2 * 0.25**2), ORDERS, 1e-5)
    assert accounting._by_divergence(little, 24) <= whole * (1 + 1e-6)


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_the_page_says_the_epsilon_of_its_tables(noise: float) -> None:
    # 24 rounds of 25 of 50 clients by Poisson sampling, delta 50^-1.1.
    account = Account("poisson", 50, 25, noise, 50**-1.1)
    rows = re.findall(rf"^\| {noise:g}, ([\d,]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 6 and set(rows) == {f"{account.epsilon(24):.0f}"}
    assert at_least(0.5, noise, 24, 50**-1.1) == pytest.approx(account.epsilon(24), rel=0.01)


def test_no_rounds_cost_nothing_and_rounds_without_noise_all() -> None:
    assert ALL.epsilon(0) == 0.0
    assert replace(ALL, noise_multiplier=0.0).epsilon(1) == math.inf


def test_as_many_rounds_as_epsilon_allows() -> None:
    allowed = POISSON.affordable(0.5, 60)
    assert 1 < allowed < 60 and POISSON.epsilon(allowed) <= 0.5 < POISSON.epsilon(allowed + 1)
    assert POISSON.affordable(0.5, allowed - 1) == allowed - 1
    with pytest.raises(UserError, match=r"--max_epsilon 0\.1: one round's epsilon is .*; raise --noise_multiplier"):
        POISSON.affordable(0.1, 10)


def test_the_sentence_says_what_is_compared() -> None:
    assert "Poisson sampling of 10 of 100 clients, one added or left out" in POISSON.sentence(3)
    assert "10 of 100 clients without replacement, one replaced by another" in FIXED.sentence(3)
    assert "at δ = 1e-05 after 3 rounds (all clients in each round, one left out)" in ALL.sentence(3)


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ModuleNotFoundError("No module named 'dp_accounting'")
        return known(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install -r requirements-privacy\.txt"):
        replace(ALL, noise_multiplier=1.2345).epsilon(1)
