"""Each client's own part of the common held-out images, mixed like its training images.

>>> train = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])  # groups of the training images, -1 elsewhere
>>> held_out = np.array([-1, -1, -1, -1, -1, 0, 0, 1, 1])
>>> clients = [np.array([0, 1, 2]), np.array([3, 4])]  # the first has group 0, the second group 1
>>> [part.tolist() for part in assign_held_out(clients, train, held_out, seed=0)]
[[5, 6], [7, 8]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from network.partition.assigning import Partition
from network.partition.client_images import ClientImages
from network.partition.groups import within
from utils.streams import generator


def held_out_of(partition: Partition, test: np.ndarray, seed: int) -> ClientImages:
    """The clients' parts of the held-out images at the positions `test`, as `assign_held_out` assigns them."""
    return assign_held_out(partition.clients, partition.groups, within(partition.groups, test), seed)


def assign_held_out(
    clients: Sequence[np.ndarray], groups: np.ndarray, held_out_groups: np.ndarray, seed: int
) -> ClientImages:
    """Assign the held-out images of each group to the clients, in proportion to their training images of the group.

    Within a group, shares are rounded by largest remainder; ties and the images themselves are drawn by the seed. Every
    held-out image of a group that some client trains on goes to exactly one client, and those of other groups to none.
    So no training images are lost, and together the clients are tested on the common held-out images, each on its own
    mixture.

    Args:
        clients: each client's training images, as positions.
        groups: (N,) the group of every training image; other entries are ignored.
        held_out_groups: (N,) the group of every held-out image, -1 for all others.
        seed: the seed of the draw.

    Returns:
        Each client's held-out images, in increasing order; some may have none.
    """
    rng = generator("held_out", seed)
    assigned, n_groups = ClientImages.of(clients), 1 + max(groups.max(initial=0), held_out_groups.max(initial=0))
    group = groups[assigned.images]
    # Cells, that is a group and a client who trains on it, in order; there are no more of them than images.
    cells, trained = np.unique((group * len(assigned) + assigned.owners)[group >= 0], return_counts=True)
    owners = cells % len(assigned)
    bounds = np.searchsorted(cells, np.arange(n_groups + 1) * len(assigned))

    images = rng.permutation(np.flatnonzero(held_out_groups >= 0))
    images = images[np.argsort(held_out_groups[images], kind="stable")]
    available = np.bincount(held_out_groups[images], minlength=n_groups)
    n_owners, ends = np.diff(bounds), np.cumsum(available)
    at, number_of, ties = held_out_groups[images], np.cumsum(n_owners > 0) - 1, _Ties(rng, len(assigned))
    client_of = np.where(n_owners[at] > 0, np.append(owners, -1)[bounds[at]], -1)  # of one owner, where there is one
    for shared in np.flatnonzero((n_owners > 1) & (available > 0)):
        cell, n, end, number = slice(*bounds[shared : shared + 2]), available[shared], ends[shared], number_of[shared]
        counts = _largest_remainder(trained[cell], n, partial(ties.of, number, owners[cell]))
        client_of[end - n : end] = np.repeat(owners[cell], counts)
    order = np.argsort(images)
    return ClientImages.assigned(client_of[order], len(assigned), images[order])


class _Ties:
    """Random numbers by which ties are broken: for each group that is assigned, one for each client."""

    def __init__(self, rng: np.random.Generator, n_clients: int) -> None:
        self._rng, self._n_clients, self._n_drawn = rng, n_clients, 0

    def of(self, number: int, clients: np.ndarray) -> np.ndarray:
        """A group's numbers for these clients; those of groups before it that asked for none are skipped, not drawn."""
        bits = self._rng.bit_generator
        assert isinstance(bits, np.random.PCG64)
        bits.advance(int(number - self._n_drawn) * self._n_clients)
        self._n_drawn = number + 1
        return self._rng.random(self._n_clients)[clients]


def _largest_remainder(shares: np.ndarray, total: int, ties: Callable[[], np.ndarray]) -> np.ndarray:
    """Integers in proportion to the integers `shares`, with the sum `total`, each off by less than one.

    `ties` draws a number for each of them, by which equal remainders are put in order; it is not called without any.
    """
    counts, remainders = np.divmod(shares * total, shares.sum())
    if lacking := total - counts.sum():
        counts[np.lexsort((ties(), -remainders))[:lacking]] += 1
    return counts
