"""Each client's own part of the common held-out images, mixed like its training images.

>>> train = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])  # groups of the training images, -1 elsewhere
>>> held_out = np.array([-1, -1, -1, -1, -1, 0, 0, 1, 1])
>>> clients = [np.array([0, 1, 2]), np.array([3, 4])]  # the first has group 0, the second group 1
>>> [part.tolist() for part in deal_held_out(clients, train, held_out, seed=0)]
[[5, 6], [7, 8]]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utils.streams import generator


def deal_held_out(
    clients: Sequence[np.ndarray], groups: np.ndarray, held_out_groups: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Deal the held-out images of each group to the clients, in proportion to their training images of the group.

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
    n_groups = 1 + max(groups.max(initial=0), held_out_groups.max(initial=0))
    owner = np.repeat(np.arange(len(clients)), [len(images) for images in clients])
    group = groups[np.concatenate(clients)]
    cells = (owner * n_groups + group)[group >= 0]
    trained = np.bincount(cells, minlength=len(clients) * n_groups).reshape(len(clients), n_groups)

    images = rng.permutation(np.flatnonzero(held_out_groups >= 0))
    images = images[np.argsort(held_out_groups[images], kind="stable")]
    available = np.bincount(held_out_groups[images], minlength=n_groups)
    client_of = np.concatenate(
        [
            np.repeat(np.arange(len(clients)), _largest_remainder(shares, n, rng)) if shares.any() else np.full(n, -1)
            for shares, n in zip(trained.T, available, strict=True)
        ]
    )
    order = np.lexsort((images, client_of))
    return np.split(images[order], np.searchsorted(client_of[order], np.arange(len(clients))))[1:]


def _largest_remainder(shares: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """Integers in proportion to the integers `shares`, with the sum `total`, each off by less than one."""
    counts, remainders = np.divmod(shares * total, shares.sum())
    by_remainder = np.lexsort((rng.random(len(shares)), -remainders))
    counts[by_remainder[: total - counts.sum()]] += 1
    return counts
