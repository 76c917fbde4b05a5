"""Shares of groups, client sizes and whole counts: the numbers behind the rules of `network.partition.rules`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from utils.errors import UserError

# How much a left-out image weighs against an uneven size in `solve_sizes`; large, so that nearly all data is used.
_LEFT_OUT_WEIGHT = 1e4


def log_dirichlet(concentration: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of Dirichlet draws, (n_draws, K) float64, exact for concentrations (K,) of any size.

    The usual quotient of gamma variates underflows to 0/0 at small shapes. A gamma variate of shape a is one of
    shape a + 1 times U^(1/a) with a uniform U, so its logarithm can be drawn without underflow. UserError if a
    concentration is not a positive number.

    >>> draws = log_dirichlet(np.full(3, 1e-6), 2, np.random.default_rng(0))
    >>> np.exp(draws).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    from scipy.special import logsumexp

    a = np.asarray(concentration, dtype=np.float64)
    if not (np.isfinite(a) & (a > 1e-300)).all():
        raise UserError("--alpha must be a positive number; 0 is for --partition dirichlet_hsu alone")
    log_gamma = np.log1p(-rng.random((n_draws, len(a))))
    log_gamma /= a
    log_gamma += np.log(rng.standard_gamma(a + 1.0, log_gamma.shape))
    log_gamma -= logsumexp(log_gamma, axis=1, keepdims=True)
    return log_gamma


def solve_sizes(shares: np.ndarray, capacity: np.ndarray, min_size: int) -> np.ndarray:
    """Client sizes s >= min_size with shares^T s <= capacity, using nearly all data, as even as that allows.

    The sizes of the published code, pinv(shares^T) capacity, where they are feasible. Otherwise minimises
    |s|^2 / 2 + w |u|^2 / 2 subject to shares^T s + u = capacity and u >= 0 (what is left out), in units of an equal
    share. The dual has one variable a group and a smooth objective: s = max(min_size, shares @ y) and
    u = max(0, y) / w. Its optimum for w -> infinity with no bound active is that pseudo-inverse.
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
        """Its Hessian, where it has one."""
        free = shares[shares @ y > least]
        return free.T @ free + np.diag((y > 0) / _LEFT_OUT_WEIGHT) + 1e-9 * np.eye(len(y))

    start = np.ones(len(c))
    solved = minimize(dual, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6})
    sizes = np.maximum(shares @ solved.x, least)
    # The solver stops within a tolerance; shrink what is above the least size until no group is overdrawn.
    spare = capacity - least * unit * shares.sum(axis=0)
    wanted = shares.T @ (sizes - least) * unit
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fits = np.nanmin(np.where(wanted > spare, spare / wanted, 1.0))
    return (least + (sizes - least) * fits) * unit


def fill(
    log_shares: np.ndarray, sizes: np.ndarray, capacity: np.ndarray, whole: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Whole counts (clients, groups) with the row sums `sizes` and no column sum above `capacity`.

    Clients take turns, because what one finds depends on what those before it left; `whole(n, shares)` splits n images
    in the given shares. What a group can no longer give is asked of the others, in the client's own shares of these.
    """
    counts = np.zeros(log_shares.shape, np.int64)
    left = capacity.copy()
    for client, need in enumerate(sizes):
        counts[client] = _split(need, log_shares[client], left, whole)
        left -= counts[client]
    return counts


def fit(log_shares: np.ndarray, sizes: np.ndarray, capacity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole counts as of `fill`, with no client before another; which images are left over is left to chance.

    A Dirichlet draw is a row of independent Beta draws in whatever order its parts are taken: the share of the first
    group, that of the second in what the first leaves, and so on (Connor and Mosimann 1969, Journal of the American
    Statistical Association 64). So groups take turns here, in random order. What a client takes of a group is the
    group's share in the images that the client still lacks; the odds of these shares are multiplied by one factor for
    all clients, so that the group is used up. Of all shares that use it up these have the least relative entropy to
    those drawn (I-projection, Csiszár 1975, Annals of Probability 3). They exist for any draw: towards alpha 0 whole
    groups go to those who want them most.
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
        wanted = _with_sum(capacity[order[i]], log_odds, lacking[who])
        taken = _split(capacity[order[i]], wanted, lacking[who], partial(rounded, rng=rng))
        counts[who, order[i]] = taken
        lacking[who] -= taken
    counts[:, order[0]] = lacking
    return counts


def _with_sum(n: int, log_odds: np.ndarray, lacking: np.ndarray) -> np.ndarray:
    """Logarithms of the numbers lacking * share, odds of the shares multiplied so that the sum is n < lacking.sum()."""
    from scipy.optimize import brentq
    from scipy.special import expit, log_expit

    order = np.argsort(-log_odds)
    reached = np.cumsum(lacking[order])
    # From the largest odds down, who makes the numbers lacking reach n, and who makes them exceed it. Where the odds of
    # the one are 1 to e times all that is lacking, the sum is below n; where those of the other are the inverse, above.
    reaches, exceeds = log_odds[order[[np.searchsorted(reached, n), np.searchsorted(reached, n, side="right")]]]
    low = -1.0 - np.log(reached[-1])
    high = reaches - exceeds - low
    distance = log_odds - reaches  # logarithms can be so large that a small shift would be lost in the sum
    near = np.abs(distance) < 40.0 + high  # all others take all or nothing, whatever the shift
    some, log_some, rest = lacking[near], distance[near], n - lacking[distance >= 40.0 + high].sum()
    shift = brentq(lambda shift: some @ expit(log_some + shift) - rest, low, high, disp=False)
    return np.log(lacking) + log_expit(distance + shift)


def _split(
    n: int, log_shares: np.ndarray, left: np.ndarray, whole: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Whole numbers with the sum n, none above `left`; what is above it is split among the others in their shares."""
    counts = np.zeros(len(left), np.int64)
    while n > 0:
        step = np.minimum(whole(n, renormalised(log_shares, left > counts)), left - counts)
        counts += step
        n -= step.sum()
    return counts


def renormalised(log_shares: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The shares (K,) over those allowed, with sum 1; in logarithms, so that there is no 0/0."""
    logs = np.where(allowed, log_shares, -np.inf)
    shares = np.exp(logs - logs.max())
    return shares / shares.sum()


def rounded(n: int, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers with the sum n, each one of the two next to n * share and n * share on average."""
    # Rounding each down and giving the rest to the largest fractions would favour the same groups at every client.
    edges = np.floor(n * np.cumsum(shares) + rng.random())
    edges[-1] = n
    return np.diff(np.minimum(edges, n), prepend=0).astype(np.int64)
