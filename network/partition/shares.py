"""Shares of groups, client sizes and integer counts: the numerics behind the rules of `network.partition.rules`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from utils.errors import UserError

# Weight of left-out images against uneven sizes in `solve_sizes`; large, so that nearly all data is used.
_LEFT_OUT_WEIGHT = 1e4


def log_dirichlet(concentration: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of Dirichlet draws, (n_draws, K) float64, exact for concentrations (K,) of any size.

    The usual quotient of gamma variates underflows to 0/0 for small shapes. A gamma variate of shape a is distributed
    as one of shape a + 1 times U^(1/a) with uniform U, so its logarithm can be drawn without underflow. UserError if a
    concentration is not a positive number.

    >>> draws = log_dirichlet(np.full(3, 1e-6), 2, np.random.default_rng(0))
    >>> np.exp(draws).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    a = np.asarray(concentration, dtype=np.float64)
    if not (np.isfinite(a) & (a > 1e-300)).all():
        raise UserError("--alpha must be a positive number; 0 is for --partition dirichlet_hsu only")
    log_gamma = np.log1p(-rng.random((n_draws, len(a))))
    log_gamma /= a
    log_gamma += np.log(rng.standard_gamma(a + 1.0, log_gamma.shape))
    log_gamma -= _log_sum(log_gamma)
    return log_gamma


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """Logarithms of the sums of rows (n, K) float64 whose logarithms are given: (n, 1).

    To the last bit as SciPy's `logsumexp`, which takes ten times as long for a few rows: a rule may draw a thousand
    times.
    """
    largest = logs.max(axis=1, keepdims=True)
    is_largest = logs == largest
    n_largest = is_largest.sum(axis=1, keepdims=True, dtype=logs.dtype)
    others = np.exp(np.where(is_largest, -np.inf, logs) - largest).sum(axis=1, keepdims=True)
    return np.log1p(others / n_largest) + np.log(n_largest) + largest


def solve_sizes(shares: np.ndarray, capacity: np.ndarray, min_size: int) -> np.ndarray:
    """Client sizes s >= min_size with shares^T s <= capacity that use nearly all data and are as even as that allows.

    These are the sizes of the published code, pinv(shares^T) capacity, where those are feasible. Otherwise, they
    minimise |s|^2 / 2 + w |u|^2 / 2 subject to shares^T s + u = capacity and u >= 0 (the images left out), in units of
    an equal share. The dual has one variable per group and a smooth objective: s = max(min_size, shares @ y) and
    u = max(0, y) / w. For w -> infinity and with no bound active, its optimum is that pseudo-inverse.
    """
    from scipy.optimize import minimize

    unit = capacity.sum() / len(shares)
    c, least = capacity / unit, min_size / unit
    published = shares @ np.linalg.lstsq(shares.T @ shares, c)[0]
    if (published >= least).all() and np.allclose(shares.T @ published, c, rtol=1e-9, atol=0):
        return published * unit

    def dual(y: np.ndarray) -> tuple[float, np.ndarray]:
        """The dual function and its gradient."""
        z = shares @ y
        s, u = np.maximum(z, least), np.maximum(y, 0.0) / _LEFT_OUT_WEIGHT
        value = (s * z - s**2 / 2).sum() + _LEFT_OUT_WEIGHT * (u**2).sum() / 2 - c @ y
        return value, shares.T @ s + u - c

    def curvature(y: np.ndarray) -> np.ndarray:
        """The dual function's Hessian, where it exists."""
        free = shares[shares @ y > least]
        return free.T @ free + np.diag((y > 0) / _LEFT_OUT_WEIGHT) + 1e-9 * np.eye(len(y))

    start = np.ones(len(c))
    solved = minimize(dual, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6})
    sizes = np.maximum(shares @ solved.x, least)
    # The solver stops within a tolerance: shrink the sizes above the least one until no group is overdrawn.
    spare = capacity - least * unit * shares.sum(axis=0)
    demand = shares.T @ (sizes - least) * unit
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fits = np.nanmin(np.where(demand > spare, spare / demand, 1.0))
    return (least + (sizes - least) * fits) * unit


def fill(
    log_shares: np.ndarray, sizes: np.ndarray, capacity: np.ndarray, rounding: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Integer counts (clients, groups) with the row sums `sizes` and no column sum above `capacity`.

    Clients are filled one after another, each from what those before it left; `whole(n, shares)` splits n images in the
    given shares. Where a group runs out, the other groups give the rest, in the client's own shares of them.
    """
    counts = np.zeros(log_shares.shape, np.int64)
    left = capacity.copy()
    for client, need in enumerate(sizes):
        counts[client] = _split(need, log_shares[client], left, rounding)
        left -= counts[client]
    return counts


def fit(log_shares: np.ndarray, sizes: np.ndarray, capacity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Integer counts like those of `fill`, but with all clients treated alike; the images left over are random.

    A Dirichlet draw is a sequence of independent Beta draws in any order of its parts: the share of the first group,
    that of the second in the rest, and so on (Connor and Mosimann 1969, Journal of the American Statistical Association
    64). Hence groups are assigned one after another, in random order. A client takes the group's share of the images
    that it still lacks. The odds of these shares are multiplied by a common factor for all clients, such that the group
    is used up. Of all shares that use it up, these have the least relative entropy to those drawn (I-projection,
    Csiszár 1975, Annals of Probability 3). They exist for any draw: as alpha goes to 0, whole groups go to the clients
    with the largest shares.
    """
    capacity = rng.multivariate_hypergeometric(capacity, sizes.sum())
    order = rng.permutation(np.flatnonzero(capacity))
    counts = np.zeros(log_shares.shape, np.int64)
    if len(order) == 0:
        return counts
    of_group = log_shares.T[order]
    so_far = np.logaddexp.accumulate(of_group)
    lacking = sizes.copy()
    for i in range(len(order) - 1, 0, -1):
        who = np.flatnonzero(lacking)
        log_odds = of_group[i, who] - so_far[i - 1, who]
        log_wanted = _with_sum(capacity[order[i]], log_odds, lacking[who])
        taken = _split(capacity[order[i]], log_wanted, lacking[who], partial(rounded, rng=rng))
        counts[who, order[i]] = taken
        lacking[who] -= taken
    counts[:, order[0]] = lacking
    return counts


def _with_sum(n: int, log_odds: np.ndarray, lacking: np.ndarray) -> np.ndarray:
    """Logarithms of lacking * share, with the shares' odds multiplied such that the sum is n < lacking.sum()."""
    from scipy.optimize import brentq
    from scipy.special import expit, log_expit

    order = np.argsort(-log_odds)
    reached = np.cumsum(lacking[order])
    # Bounds for the shift: from the largest odds down, find the client at which the cumulative numbers lacking reach n,
    # and the one at which they exceed it. If the odds of the first are 1 to e times all that is lacking, the sum is
    # below n; if those of the second are the inverse, it is above.
    reaches, exceeds = log_odds[order[[np.searchsorted(reached, n), np.searchsorted(reached, n, side="right")]]]
    low = -1.0 - np.log(reached[-1])
    high = reaches - exceeds - low
    distance = log_odds - reaches  # relative, because a small shift would be lost in the sum with a large logarithm
    near = np.abs(distance) < 40.0 + high  # all others take everything or nothing, whatever the shift
    some, log_some, rest = lacking[near], distance[near], n - lacking[distance >= 40.0 + high].sum()
    shift = brentq(lambda shift: some @ expit(log_some + shift) - rest, low, high, disp=False)
    return np.log(lacking) + log_expit(distance + shift)


def _split(
    n: int, log_shares: np.ndarray, left: np.ndarray, rounding: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Integers with the sum n, none above `left`; any excess is split among the others in their shares."""
    counts = np.zeros(len(left), np.int64)
    while n > 0:
        step = np.minimum(rounding(n, renormalised(log_shares, left > counts)), left - counts)
        counts += step
        n -= step.sum()
    return counts


def renormalised(log_shares: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The shares (K,) restricted to those allowed, with sum 1; computed from logarithms to avoid 0/0."""
    logs = np.where(allowed, log_shares, -np.inf)
    shares = np.exp(logs - logs.max())
    return shares / shares.sum()


def rounded(n: int, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Integers with the sum n, each of which is n * share rounded up or down, and n * share on average."""
    # Rounding down and giving the rest to the largest fractions would favour the same groups at every client.
    edges = np.floor(n * np.cumsum(shares) + rng.random())
    edges[-1] = n
    return np.diff(np.minimum(edges, n), prepend=0).astype(np.int64)
