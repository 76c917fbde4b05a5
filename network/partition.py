"""Dealing images to clients.

A partitioner takes one group id an image (a cluster of embeddings or a scene class; -1 for images that are not
dealt) and returns each client's images. Every partitioner is bounded in time and disjoint, and says which demand
cannot be met.

>>> groups = np.repeat([0, 1, 2, 3], 100)
>>> clients = equal_size(groups, n_clients=5, alpha=0.1, rng=np.random.default_rng(0))
>>> [len(client) for client in clients]
[80, 80, 80, 80, 80]
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from utils.errors import UserError
from utils.files import write_atomically, write_json

if TYPE_CHECKING:
    from datasets.selection import Selection

_REDRAWS = 1000
_PUBLISHED_MIN_SIZE = 128
# How much a left-out image weighs against an uneven size in `_sizes`; large, so that nearly all data is used.
_LEFT_OUT_WEIGHT = 1e4


def log_dirichlet(concentration: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of Dirichlet draws, (n_draws, K), exact for concentrations of any size.

    The usual quotient of gamma variates underflows to 0/0 at small shapes. A gamma variate of shape a is one of
    shape a + 1 times U^(1/a) with a uniform U, so its logarithm can be drawn without underflow.
    """
    a = np.asarray(concentration, dtype=np.float64)
    size = (n_draws, len(a))
    log_gamma = np.log(rng.standard_gamma(a + 1.0, size)) + np.log1p(-rng.random(size)) / a
    return log_gamma - logsumexp(log_gamma, axis=1, keepdims=True)


def paper(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> list[np.ndarray]:
    """The rule of arXiv 2503.14553: q_k ~ Dirichlet(alpha * cluster ratios), and sizes that use the data up.

    The published code redraws all q until a pseudo-inverse happens to give sizes that overdraw no cluster. Here the
    sizes are solved for: where that pseudo-inverse is feasible the sizes are the same, and otherwise they are
    the nearest feasible ones. Only draws in which clients of the least size would already overdraw a cluster are
    repeated, at most 1000 times.

    Args:
        groups: (N,) group ids, -1 for images not to be dealt.
        n_clients: number of clients.
        alpha: Dirichlet concentration, > 0.
        rng: source of all randomness.
        min_size: least images a client; None for the published 128 or half of an equal share, whichever is less,
            halved as often as it takes to find sizes.

    Raises:
        UserError: if the sizes cannot be met; it says by which group.
    """
    pools = _pools(groups, n_clients, rng)
    capacity = np.array([len(pool) for pool in pools])
    if n_clients * (min_size or 1) > capacity.sum():
        raise UserError(
            f"{n_clients} clients of at least {min_size} images need {n_clients * min_size}, and there are "
            f"{capacity.sum()}; lower --n_clients or --min_client_ds_len"
        )
    fair = max(1, min(_PUBLISHED_MIN_SIZE, int(capacity.sum()) // (2 * n_clients)))
    for least_size in [min_size] if min_size else [fair >> n for n in range(fair.bit_length())]:
        for _ in range(_REDRAWS):
            shares = np.exp(_draw(capacity, n_clients, alpha, rng))
            least = least_size * shares.sum(axis=0)
            if (least <= capacity).all():
                sizes = _sizes(shares, capacity, least_size)
                return _deal(pools, _round(sizes[:, None] * shares, np.floor(sizes + 1e-6), capacity, rng))
    worst = int(np.argmax(least / capacity))
    raise UserError(
        f"in {_REDRAWS} draws at alpha {alpha:g}, {n_clients} clients of at least {least_size} images always ask some "
        f"group for more than it has (group {worst}: {least[worst]:.0f} of {capacity[worst]}); "
        "lower --n_clients or --min_client_ds_len, raise --alpha, or use --partition equal_size"
    )


def equal_size(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> list[np.ndarray]:
    """q_k ~ Dirichlet(alpha * group ratios) with equal sizes, so that only the mixture of groups varies.

    Clients are filled one after another. When a group is used up, the q of those still to come are renormalised over
    the groups that are left, as in Hsu et al. 2019 (arXiv 1909.06335); in logarithms, so that a q whose group is gone
    stays as skewed over the rest. Client sizes are N // n_clients. Arguments and errors as for `paper`.
    """
    pools = _pools(groups, n_clients, rng)
    capacity = np.array([len(pool) for pool in pools])
    size = capacity.sum() // n_clients
    if min_size is not None and size < min_size:
        raise UserError(
            f"{capacity.sum()} images give {n_clients} clients {size} each, fewer than {min_size}; "
            "lower --n_clients or --min_client_ds_len"
        )
    left, counts = capacity.copy(), []
    for log_shares in _draw(capacity, n_clients, alpha, rng):
        counts.append(_fill(log_shares, left, size))
        left -= counts[-1]
    return _deal(pools, np.stack(counts))


def iid(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> list[np.ndarray]:
    """All dealt images at random, in equal numbers (up to one); alpha has no part in it. Errors as for `paper`."""
    pool = np.concatenate(_pools(groups, n_clients, rng))
    if min_size is not None and len(pool) // n_clients < min_size:
        raise UserError(f"{len(pool)} images are too few for {n_clients} clients of {min_size}; lower one of these")
    return [np.sort(part) for part in np.array_split(rng.permutation(pool), n_clients)]


Partitioner = Callable[..., list[np.ndarray]]
PARTITIONERS: dict[str, Partitioner] = {"paper": paper, "equal_size": equal_size, "iid": iid}


@dataclass(frozen=True)
class Dealing:
    """A partition: `client_of` (N,) int32 holds each image's client, -1 for images that nobody has."""

    client_of: np.ndarray
    n_clients: int

    @property
    def clients(self) -> list[np.ndarray]:
        """Each client's images, in increasing order."""
        order = np.argsort(self.client_of, kind="stable")
        bounds = np.searchsorted(self.client_of[order], np.arange(self.n_clients + 1))
        return [order[a:b] for a, b in pairwise(bounds)]

    def save(self, folder: Path, selection: Selection, groups: np.ndarray, origin: Mapping[str, Any]) -> None:
        """Write `partition.npy` (`client_of`), `partition.csv` (user_id, image_id, class, cluster) and
        `partition.json` (`origin`, the client sizes, and the SHA-256 of the selection and of the groups)."""
        with write_atomically(folder / "partition.npy") as temporary:
            np.save(temporary, self.client_of)
        dealt = np.flatnonzero(self.client_of >= 0)
        columns = {
            "user_id": self.client_of[dealt], "image_id": [str(selection.views[i].path("rgb")) for i in dealt],
            "class": selection.places[dealt], "cluster": groups[dealt],
        }  # fmt: skip
        with write_atomically(folder / "partition.csv") as temporary:
            pd.DataFrame(columns).to_csv(temporary, index=False)
        sizes = np.bincount(self.client_of[dealt], minlength=self.n_clients).tolist()
        digest = hashlib.sha256(groups.astype("<i8").tobytes()).hexdigest()
        hashes = {"selection_sha256": selection.fingerprint, "groups_sha256": digest}
        write_json(folder / "partition.json", {**origin, "client_sizes": sizes, **hashes})


def deal(
    rule: str, groups: np.ndarray, n_clients: int, alpha: float, seed: int, min_size: int | None = None
) -> Dealing:  # fmt: skip
    """Partition by the rule of this name, reproducibly by seed; arguments and errors as for `paper`."""
    clients = PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(seed), min_size)
    client_of = np.full(len(groups), -1, np.int32)
    for client, images in enumerate(clients):
        client_of[images] = client
    return Dealing(client_of, n_clients)


def _pools(groups: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The images of each group that occurs, shuffled; UserError where there are fewer images than clients."""
    ids = np.unique(groups[groups >= 0])
    if n_clients < 1 or (groups >= 0).sum() < n_clients:
        raise UserError(f"{(groups >= 0).sum()} images cannot be dealt to {n_clients} clients; lower --n_clients")
    return [rng.permutation(np.flatnonzero(groups == group)) for group in ids]


def _draw(capacity: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """The clients' log shares of the groups, (clients, groups)."""
    if not (np.isfinite(alpha) and alpha > 0):
        raise UserError(f"--alpha must be a positive number, not {alpha}")
    return log_dirichlet(alpha * capacity / capacity.sum(), n_clients, rng)


def _sizes(shares: np.ndarray, capacity: np.ndarray, min_size: int) -> np.ndarray:
    """Client sizes s >= min_size with shares^T s <= capacity, using nearly all data, as even as that allows.

    Minimises |s|^2 / 2 + w |u|^2 / 2 subject to shares^T s + u = capacity and u >= 0 (what is left out), in units of
    an equal share. The dual has one variable a group and a smooth objective: s = max(min_size, shares @ y) and
    u = max(0, y) / w. Its optimum for w -> infinity with no bound active is the pseudo-inverse of the published code.
    """
    unit = capacity.sum() / len(shares)
    c, least = capacity / unit, min_size / unit

    def dual(y: np.ndarray) -> tuple[float, np.ndarray]:
        z = shares @ y
        s, u = np.maximum(z, least), np.maximum(y, 0.0) / _LEFT_OUT_WEIGHT
        value = (s * z - s**2 / 2).sum() + _LEFT_OUT_WEIGHT * (u**2).sum() / 2 - c @ y
        return value, shares.T @ s + u - c

    def curvature(y: np.ndarray) -> np.ndarray:
        free = shares[shares @ y > least]
        return free.T @ free + np.diag((y > 0) / _LEFT_OUT_WEIGHT) + 1e-9 * np.eye(len(y))

    start = np.ones(len(c))
    solved = minimize(dual, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-9})
    sizes = np.maximum(shares @ solved.x, least)
    # The solver stops within a tolerance; shrink what is above the least size until no group is overdrawn.
    spare = capacity - least * unit * shares.sum(axis=0)
    wanted = shares.T @ (sizes - least) * unit
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fits = np.nanmin(np.where(wanted > spare, spare / wanted, 1.0))
    return (least + (sizes - least) * fits) * unit


def _fill(log_shares: np.ndarray, left: np.ndarray, size: int) -> np.ndarray:
    """Whole counts (groups,) of one client, `size` in all, in the given shares as far as `left` allows."""
    taken = np.zeros_like(left)
    while (need := size - taken.sum()) > 0:
        shares = softmax(np.where(left > taken, log_shares, -np.inf))
        step = np.minimum(np.floor(need * shares).astype(left.dtype), left - taken)
        if not step.any():  # less than one from each: the largest shares get one
            step[np.argsort(-shares, kind="stable")[:need]] = 1
            step[left <= taken] = 0
        taken += step
    return taken


def _round(counts: np.ndarray, sizes: np.ndarray, capacity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole counts (clients, groups) near `counts` with the given row sums and no column above `capacity`."""
    whole = np.floor(counts + 1e-9).astype(np.int64)
    fraction = counts - whole
    short = sizes.astype(np.int64) - whole.sum(axis=1)
    left = capacity - whole.sum(axis=0)
    for client in rng.permutation(len(counts)):
        while short[client] > 0:
            open_groups = np.flatnonzero(left > 0)
            best = open_groups[np.argsort(-fraction[client, open_groups], kind="stable")][: short[client]]
            whole[client, best] += 1
            left[best] -= 1
            short[client] -= len(best)
    return whole


def _deal(pools: list[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Give each client its count from every pool, front to back."""
    parts = [np.split(pool, np.cumsum(column))[:-1] for pool, column in zip(pools, counts.T, strict=True)]
    return [np.sort(np.concatenate(of_client)) for of_client in zip(*parts, strict=True)]
