"""Rules that do not use alpha: images at random, or groups, whole or in equal parts."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from network.partition.hand_out import checked, even, hand_out, owners_of, shuffled
from network.partition.shares import rounded
from utils.errors import UserError


def shards(
    groups: np.ndarray,
    n_clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_size: int | None = None,
    *,
    shards_per_client: int,
) -> np.ndarray:
    """Images sorted by group, cut into equal shards, some to each client: McMahan et al. 2017 (arXiv 1602.05629).

    A client with two shards has images of few groups. All images are assigned; client sizes differ only by the
    rounding of
    shards. Other arguments and errors as for `dirichlet.paper`; alpha is not used.

    >>> groups = np.repeat(np.arange(10), 100)
    >>> client_of = shards(groups, 10, 1.0, np.random.default_rng(0), shards_per_client=2)
    >>> max(len(set(groups[client_of == client])) for client in range(10))
    2
    """
    order, _ = shuffled(groups, n_clients, rng)
    n_shards = n_clients * shards_per_client
    if len(order) < n_shards:
        raise UserError(
            f"{len(order)} images cannot be cut into {n_shards} shards; lower --n_clients or --shards_per_client"
        )
    owners = rng.permutation(np.repeat(np.arange(n_clients), shards_per_client))
    client_of = hand_out(groups, order, owners[even(len(order), len(owners))])
    return checked(client_of, n_clients, min_size)


def natural(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """Whole groups: all images of a building, point, user or place stay with one client.

    With as many clients as groups, each gets one, in order. If there are more groups, they go in random order to the
    client with the fewest images so far. Arguments and errors as for `dirichlet.paper`; alpha is not used.

    >>> natural(np.array([7, 7, 5, 5, 5, 2]), 3, 1.0, np.random.default_rng(0)).tolist()
    [2, 2, 1, 1, 1, 0]
    """
    order, capacity = shuffled(groups, n_clients, rng)
    _check_enough(len(capacity), n_clients)
    owners = np.arange(len(capacity))
    fewest = [(0, client) for client in range(n_clients)]
    for group in rng.permutation(len(capacity)) if len(capacity) > n_clients else ():
        size, owners[group] = fewest[0]
        heapq.heapreplace(fewest, (size + int(capacity[group]), int(owners[group])))
    return checked(hand_out(groups, order, np.repeat(owners, capacity)), n_clients, min_size)


def commonest_object(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """The first group to the first client, the second to the second, and all remaining ones to the last.

    FedCV's rule for detection (arXiv 2111.11066), for the groups of `--type object_based`, which are numbered from the
    commonest object on; nothing is random. The paper does not say what the last client gets; here it is the rest, as in
    its code. Arguments and errors as for `dirichlet.paper`; neither alpha nor `rng` is used.

    >>> commonest_object(np.array([2, 0, 0, 0, 1, 1]), 2, 1.0, np.random.default_rng(0)).tolist()
    [1, 0, 0, 0, 1, 1]
    """
    order, capacity = shuffled(groups, n_clients, rng)
    _check_enough(len(capacity), n_clients)
    owners = np.arange(len(capacity)).clip(max=n_clients - 1)
    return checked(hand_out(groups, order, np.repeat(owners, capacity)), n_clients, min_size)


def iid(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """All images at random, in equal numbers up to one. Arguments and errors as for `dirichlet.paper`; alpha is unused.

    >>> np.bincount(iid(np.zeros(11, int), 2, 1.0, np.random.default_rng(0))).tolist()
    [6, 5]
    """
    order, _ = shuffled(np.minimum(groups, 0), n_clients, rng)
    return checked(hand_out(groups, order, even(len(order), n_clients)), n_clients, min_size)


def one_group(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """All clients but the last have one group each; the last one has the population's mixture. Sizes are equal.

    The second setting of FedDifRC (arXiv 2507.06482): six clients with one class each, and one with all. The classes
    are drawn, each equally often up to one. The paper does not say how many images clients have; here it is as many as
    the groups allow with equal sizes, and the rest is not assigned. Other arguments and errors as for
    `dirichlet.paper`;
    alpha is not used.

    >>> groups = np.repeat(np.arange(10), 110)
    >>> client_of = one_group(groups, 7, 1.0, np.random.default_rng(0))
    >>> [len(set(groups[client_of == client])) for client in range(7)], np.bincount(client_of[client_of >= 0]).tolist()
    ([1, 1, 1, 1, 1, 1, 10], [100, 100, 100, 100, 100, 100, 100])
    """
    order, capacity = shuffled(groups, n_clients, rng)
    mixture, n_groups = capacity / capacity.sum(), len(capacity)
    drawn = np.concatenate([rng.permutation(n_groups) for _ in range(-(-n_clients // n_groups))])[: n_clients - 1]
    held = np.bincount(drawn, minlength=n_groups)
    size = int((capacity / (held + mixture)).min() + 1e-9)
    counts = np.zeros((n_clients, n_groups), np.int64)
    counts[np.arange(n_clients - 1), drawn] = size
    # A group may have one image less than its rounded-up share; other groups then give more.
    room = capacity - held * size
    counts[-1] = np.minimum(rounded(size, mixture, rng), room)
    spare = np.cumsum(room - counts[-1])
    counts[-1] += np.diff(np.minimum(spare, size - counts[-1].sum()), prepend=0)
    return checked(hand_out(groups, order, owners_of(counts, capacity)), n_clients, min_size)


def split_groups(
    groups: np.ndarray,
    n_clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_size: int | None = None,
    *,
    clients_per_group: Sequence[int] | None,
    client_share: float,
) -> np.ndarray:
    """Each client has a random part of one group, as where each client has images of one domain.

    This is how FedDifRC (arXiv 2507.06482) assigns domains: four of the ten clients have digits of USPS, a tenth each.

    Args:
        clients_per_group: how many clients share each group, in the order of the groups' numbers; None for equally many
            in all groups, up to one.
        client_share: the share of its group that a client has, or an equal share where that is less.

    Other arguments and errors as for `dirichlet.paper`; alpha is not used.

    >>> groups, shares = np.repeat([0, 1], [60, 40]), {"clients_per_group": [2, 1], "client_share": 0.25}
    >>> client_of = split_groups(groups, 3, 1.0, np.random.default_rng(0), **shares)
    >>> np.bincount(client_of[:60] + 1).tolist(), np.bincount(client_of[60:] + 1).tolist()
    ([30, 15, 15], [30, 0, 0, 10])
    """
    order, capacity = shuffled(groups, n_clients, rng)
    n_groups = len(capacity)
    alike = np.bincount(rng.permutation(n_groups)[np.arange(n_clients) % n_groups], minlength=n_groups)
    sharing = np.array(clients_per_group or alike)
    if len(sharing) != n_groups or sharing.sum() != n_clients:
        raise UserError(
            f"--clients_per_group {','.join(map(str, sharing))} is not for {n_clients} clients in {n_groups} groups; "
            "give a number for each group, or another --n_clients"
        )
    of_client = np.repeat(np.arange(n_groups), sharing)
    counts = np.zeros((n_clients, n_groups), np.int64)
    sizes = np.floor(capacity * np.minimum(client_share, 1 / np.maximum(sharing, 1)) + 1e-9)
    counts[np.arange(n_clients), of_client] = sizes[of_client]
    return checked(hand_out(groups, order, owners_of(counts, capacity)), n_clients, min_size)


def _check_enough(n_groups: int, n_clients: int) -> None:
    """UserError where there are fewer groups than clients, each of which gets at least one."""
    if n_groups < n_clients:
        raise UserError(
            f"{n_groups} groups cannot be assigned whole to {n_clients} clients; give --n_clients {n_groups} or fewer"
        )
