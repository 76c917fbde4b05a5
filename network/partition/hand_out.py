"""Shared steps of the partition rules: sorting images by group and handing them out to clients."""

from __future__ import annotations

import numpy as np

from utils.errors import UserError


def shuffled(groups: np.ndarray, n_clients: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The images to be assigned, sorted by group and shuffled within each, and the sizes of the groups that occur.

    UserError if there are fewer images than clients.
    """
    order = rng.permutation(np.flatnonzero(groups >= 0))
    if n_clients < 1 or len(order) < n_clients:
        raise UserError(f"{len(order)} images cannot be assigned to {n_clients} clients; lower --n_clients")
    # One sort rather than a search per group: there may be thousands of groups.
    order = order[np.argsort(groups[order], kind="stable")]
    _, capacity = np.unique(groups[order], return_counts=True)
    return order, capacity


def hand_out(groups: np.ndarray, order: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Each image's client, (N,) int32: image `order[i]` goes to `owners[i]`, all others to none (-1)."""
    client_of = np.full(len(groups), -1, np.int32)
    client_of[order] = owners
    return client_of


def owners_of(counts: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The clients of images sorted by group, from counts (clients, groups); -1 for images left over."""
    with_rest = np.vstack([counts, capacity - counts.sum(axis=0)])
    clients = np.append(np.arange(len(counts)), -1)
    return np.repeat(np.tile(clients, len(capacity)), with_rest.T.ravel())


def even(n: int, n_parts: int) -> np.ndarray:
    """The part 0..n_parts - 1 of each of n items in order; sizes of parts differ by at most one."""
    return np.arange(n) * n_parts // n


def checked(client_of: np.ndarray, n_clients: int, min_size: int | None) -> np.ndarray:
    """Return `client_of`; UserError if a client has fewer than `min_size` images."""
    smallest = int(np.bincount(client_of[client_of >= 0], minlength=n_clients).min())
    if smallest < (min_size or 1):
        raise UserError(
            f"the smallest of {n_clients} clients has {smallest} images, fewer than {min_size}; "
            "lower --n_clients or --min_client_ds_len"
        )
    return client_of
