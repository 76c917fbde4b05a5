"""What a federation's noise is worth: epsilon at a delta, by Google's dp-accounting, for the sampling that is used.

Two bounds are computed, and the smaller one counts, since both hold. One adds up the rounds' Rényi divergences
(Mironov 2017, arXiv 1702.07476). The other composes the distribution of the privacy loss itself (Koskela, Jälkö and
Honkela 2020, arXiv 1906.03049), on a grid whose error only makes epsilon larger (Doroshenko et al. 2022, arXiv
2207.04380); but for that grid it is exact for Poisson sampling and for rounds of all clients.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from network.sampling import POISSON
from utils.errors import UserError


@dataclass(frozen=True)
class Account:
    """The account of rounds of the Gaussian mechanism.

    What is protected is all that a client has, and what it is compared with follows from the sampling:

    - Poisson sampling: with the federation without the client, or with one more (Mironov, Talwar and Zhang 2019, arXiv
      1908.10530). The sum changes by the clip norm at most.
    - All clients in every round: the same; nothing is amplified.
    - A fixed number of clients, drawn without replacement: with the federation in which another client stands in its
      place. The sum changes by twice the clip norm, so that the noise counts half. Rényi divergences are bounded by
      Wang, Balle and Kasiviswanathan 2019 (arXiv 1808.00087, theorem 27), or by those without amplification where
      these are less; the distribution of the loss as in `_fixed_size`.

    The last is a stronger promise, and epsilons of the two kinds are not to be compared with each other.

    Args:
        sampling: "poisson", or "uniform" for a fixed number without replacement.
        n_clients: N, of the federation.
        expected: K, the clients of a round, on average for Poisson sampling.
        noise_multiplier: the standard deviation of the noise on a round's sum, in clip norms; 0 for none.
        delta: the probability with which epsilon need not hold.
    """

    sampling: str
    n_clients: int
    expected: int
    noise_multiplier: float
    delta: float

    @property
    def replaces(self) -> bool:
        """Whether clients are compared with others in their place, rather than with none."""
        return self.sampling != POISSON and self.expected < self.n_clients

    def epsilon(self, n_rounds: int) -> float:
        """Epsilon after this many rounds: infinite without noise; UserError without the package that knows."""
        if not n_rounds:
            return 0.0
        return _epsilon(self, n_rounds) if self.noise_multiplier else math.inf

    def affordable(self, max_epsilon: float, most: int) -> int:
        """The largest number of rounds, up to `most`, whose epsilon is at most this; UserError if it is none."""
        n_rounds = bisect.bisect_right(range(1, most + 1), max_epsilon, key=self.epsilon)
        if most and not n_rounds:
            raise UserError(
                f"--max_epsilon {max_epsilon:g}: one round's epsilon is {self.epsilon(1):.3g}; "
                "raise --noise_multiplier or --max_epsilon"
            )
        return n_rounds

    def sentence(self, n_rounds: int) -> str:
        """Epsilon, and what it holds for, in a sentence."""
        kinds = {
            POISSON: f"Poisson sampling of {self.expected} of {self.n_clients} clients, one added or left out",
            "uniform": f"{self.expected} of {self.n_clients} clients without replacement, one replaced by another",
        }
        how = kinds[self.sampling] if self.expected < self.n_clients else "all clients in each round, one left out"
        return f"ε = {self.epsilon(n_rounds):.4g} at δ = {self.delta:.2g} after {n_rounds} rounds ({how})"


@lru_cache(maxsize=4096)
def _epsilon(account: Account, n_rounds: int) -> float:
    """From the rounds as a whole, not added up round by round: a run that is resumed tells the same."""
    return min(_by_divergence(account, n_rounds), _by_loss(account, n_rounds))


# Rényi's orders: dp-accounting's, more below 2, which count after many rounds, and more above, which count after few.
_ORDERS = (
    *(1 + x / 100 for x in (1, 2, 3, 5, 7)),
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    *(2**x for x in range(6, 12)),
)


def _by_divergence(account: Account, n_rounds: int) -> float:
    """Epsilon by Rényi divergences, which add up."""
    of_round = _divergences(account)
    from dp_accounting.rdp import compute_epsilon

    with _without_warnings():
        return min(float(compute_epsilon(_ORDERS, n_rounds * rdp, account.delta)[0]) for rdp in of_round)


@lru_cache
def _divergences(account: Account) -> list[np.ndarray]:
    """Bounds of a round's Rényi divergences, at all orders."""
    dp = _dp_accounting()
    relations = dp.NeighboringRelation
    if not account.replaces:
        gaussian = dp.GaussianDpEvent(account.noise_multiplier)
        # With a probability of 1, Poisson sampling is none.
        event = dp.PoissonSampledDpEvent(account.expected / account.n_clients, gaussian)
        return [_of_event(relations.ADD_OR_REMOVE_ONE, event)]
    # To dp-accounting's Rényi accountant, unlike to its other one, REPLACE_ONE is a sum that changes by one norm.
    gaussian = dp.GaussianDpEvent(account.noise_multiplier / 2.0)
    sampled = dp.SampledWithoutReplacementDpEvent(account.n_clients, account.expected, gaussian)
    return [_of_event(relations.REPLACE_ONE, event) for event in (sampled, gaussian)]


def _of_event(relation: Any, event: Any) -> np.ndarray:
    from dp_accounting.rdp import RdpAccountant

    with _without_warnings():
        return RdpAccountant(_ORDERS, neighboring_relation=relation).compose(event).rdp


@contextmanager
def _without_warnings() -> Iterator[None]:
    """dp-accounting's are of orders that it leaves out, without which the bound holds."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


_POINTS = 10_000  # of the grid of losses, from 0 to the largest
_TAIL = 8.5  # standard deviations of the noise beyond which its loss counts as infinite: a probability of 1e-17
_LEAST_DELTA = 1e-10  # below it, the rounding errors of the Fourier transforms would count


def _by_loss(account: Account, n_rounds: int) -> float:
    """Epsilon by the distribution of the privacy loss; infinite for a delta that is too small to compute it."""
    _dp_accounting()
    if account.delta < _LEAST_DELTA:
        return math.inf
    return float(_loss(account).self_compose(n_rounds).get_epsilon_for_delta(account.delta))


@lru_cache
def _loss(account: Account) -> Any:
    """The distribution of a round's privacy loss."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    q, noise = account.expected / account.n_clients, account.noise_multiplier / (2.0 if account.replaces else 1.0)
    unsampled = 0.5 / noise**2 + _TAIL / noise
    interval = (unsampled + math.log(q + (1 - q) * math.exp(-unsampled))) / _POINTS
    if account.replaces:
        return _fixed_size_loss(q, noise, interval)
    return from_gaussian_mechanism(noise, value_discretization_interval=interval, sampling_prob=q)


def _fixed_size_loss(q: float, noise: float, interval: float) -> Any:
    """The privacy loss of a round in which a share q of the clients, a fixed number, is drawn without replacement.

    One client is replaced by another, which moves the sum by at most `1 / noise` standard deviations. By theorem 9 of
    Balle, Barthe and Gaboardi 2018 (arXiv 1807.01647) the round has δ(ln(1 + q (e^ε - 1))) = q δ_G(ε) for ε ≥ 0, where
    the Gaussian mechanism has δ_G (Balle and Wang 2018, arXiv 1805.06530, theorem 8). Replacing is symmetric, so that
    δ(-ε) = 1 - e^-ε + e^-ε δ(ε). The losses of that curve, which is one of a pair of distributions, may be added up
    (Zhu, Dong and Wang 2022, arXiv 2106.08567).

    Args:
        q: below 1.
        noise: the standard deviation, in lengths by which the sum moves.
        interval: between the losses of the grid.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from scipy.special import log_ndtr, ndtr

    losses = interval * np.arange(_POINTS + 1)
    unsampled = losses + np.log1p((q - 1) * np.exp(-losses)) - math.log(q)
    far, near = 0.5 / noise - unsampled * noise, -0.5 / noise - unsampled * noise
    deltas = q * np.maximum(ndtr(far) - np.exp(unsampled + log_ndtr(near)), 0.0)
    below = np.exp(-losses[1:]) * deltas[1:] - np.expm1(-losses[1:])
    curve = np.minimum.accumulate(np.concatenate([below[::-1], deltas]))  # rounding must not make it rise
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots_fixed_gap(interval, -_POINTS, _POINTS, curve))


def _dp_accounting() -> ModuleType:
    try:
        import dp_accounting
    except ImportError as error:
        raise UserError(
            f"--noise_multiplier: {error}; epsilon needs one more package: "
            "python -m pip install -r requirements-privacy.txt"
        ) from error
    return dp_accounting
