"""The rules by which images are dealt to clients.

A partitioner takes one group id an image (a cluster of embeddings, a scene class, a building; -1 for images that are
not dealt) and returns each image's client, int32, -1 for images that nobody gets. Holding the client of an image and
not the images of a client makes it impossible to deal an image twice. All have the signature of `paper`, are bounded
in time, give every client at least one image, and say which demand cannot be met. Time and memory grow with images
plus clients times groups.

>>> groups = np.repeat([0, 1, 2, 3], 100)
>>> client_of = equal_size(groups, n_clients=5, alpha=0.1, rng=np.random.default_rng(0))
>>> np.bincount(client_of).tolist()
[80, 80, 80, 80, 80]
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from network.partition.shares import fill, fit, log_dirichlet, renormalised, rounded, solve_sizes
from utils.errors import UserError
from utils.registry import Registry

# A rule that draws until a draw fits stops after so many draws, or after so many numbers drawn where one draw is large.
_DRAWS, _NUMBERS = 1000, 2_000_000
# At so small a concentration of a Dirichlet no two of its shares are numbers of one scale.
_NEXT_TO_ZERO = 1e-100
# The least client sizes of the published codes, of arXiv 2503.14553 and of NIID-Bench (arXiv 2102.02079).
_PAPER_MIN_SIZE, _NIID_MIN_SIZE = 128, 10


def paper(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """The rule of arXiv 2503.14553: q_k ~ Dirichlet(alpha * group ratios), and sizes that use the data up.

    The published code redraws all q until a pseudo-inverse happens to give sizes that overdraw no group. Here the
    sizes are solved for: where that pseudo-inverse is feasible the sizes are the same, and otherwise they are
    the nearest feasible ones. Only draws in which clients of the least size would already overdraw a group are
    repeated, a bounded number of times.

    Args:
        groups: (N,) group ids, -1 for images not to be dealt.
        n_clients: number of clients.
        alpha: Dirichlet concentration, > 0.
        rng: source of all randomness.
        min_size: least images per client; None for the published 128 or half of an equal share, whichever is less,
            halved as often as it takes to find sizes.

    Returns:
        (N,) int32, each image's client, -1 for images that nobody gets.

    Raises:
        UserError: if the sizes cannot be met; it says by which group.

    >>> client_of = paper(np.repeat([0, 1], 300), 4, 0.5, np.random.default_rng(0), min_size=20)
    >>> bool((np.bincount(client_of[client_of >= 0]) >= 20).all())
    True
    """
    order, capacity = _shuffled(groups, n_clients, rng)
    for least in _least_sizes(capacity.sum(), n_clients, min_size, _PAPER_MIN_SIZE, n_clients * len(capacity)):
        log_shares = log_dirichlet(alpha * capacity / capacity.sum(), n_clients, rng)
        shares = np.exp(log_shares)
        demand = least * shares.sum(axis=0)
        if (demand <= capacity).all():
            sizes = np.floor(solve_sizes(shares, capacity, least) + 1e-6).astype(np.int64)
            counts = fill(log_shares, sizes, capacity, partial(rounded, rng=rng))
            return _hand_out(groups, order, _owners(counts, capacity))
    worst = int(np.argmax(demand / capacity))
    name = groups[order[capacity[:worst].sum()]]
    raise UserError(
        f"at alpha {alpha:g}, {n_clients} clients of at least {least} images ask some group for more than it has in "
        f"every draw (in the last one group {name}: {demand[worst]:.0f} of {capacity[worst]}); "
        "lower --n_clients or --min_client_ds_len, raise --alpha, or use --partition equal_size"
    )


def equal_size(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """q_k ~ Dirichlet(alpha * group ratios) with equal sizes, so that only the mixture of groups varies.

    Clients have N // n_clients images each. The drawn q are fitted to the groups for all clients at once
    (`network.partition.shares.fit`): every client's mixture is distributed alike, as the Dirichlet's as far as the
    groups can give it. Of 16 equal groups, 100 clients have 0.96 to 1.00 of its variance at alpha 0.1 to 100, but 10
    clients, who take more than a group each, 0.49 to 0.90. Arguments and errors as for `paper`.

    >>> client_of = equal_size(np.repeat([0, 1], [60, 40]), 10, 1e6, np.random.default_rng(0))
    >>> np.bincount(client_of[:60]).tolist()  # at so large an alpha every client has the population's mixture
    [6, 6, 6, 6, 6, 6, 6, 6, 6, 6]
    """
    return _of_equal_size(groups, n_clients, alpha, rng, min_size, partial(fit, rng=rng))


def dirichlet_hsu(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """Equal sizes, and every single image drawn from its client's q, as in the papers that the rule comes from.

    q ~ Dir(alpha * prior) and categorical labels from q: Hsu et al. 2019 (arXiv 1909.06335), section 3. Without
    replacement, with q renormalised over the classes that are left: Hsu, Qi, Brown 2020 (arXiv 2003.08082),
    equation 5 of the appendix. The counts of a client are multinomial, so that small clients differ by chance even at
    large alpha. Alpha 0 is the limit of one group per client, drawn by the groups' sizes; where it runs out, the client
    goes on with another. Clients are filled one after another, and the last get what the others left: of 100 clients
    of 200 images and 16 groups at alpha 100, the last one's earth mover's distance is 1.38 and the first one's 0.38.
    Under `equal_size` both are 0.31. Arguments and errors as for `paper`.

    >>> client_of = dirichlet_hsu(np.repeat([0, 1], [60, 40]), 10, 1e6, np.random.default_rng(0))
    >>> np.bincount(client_of).tolist(), len(set(np.bincount(client_of[:60]).tolist())) > 1
    ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10], True)
    """
    shares = partial(fill, whole=rng.multinomial)
    return _of_equal_size(groups, n_clients, alpha or _NEXT_TO_ZERO, rng, min_size, shares)


def dirichlet_per_class(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """For each group p ~ Dir(alpha) over the clients, which get these shares of it: Li et al. 2022 (arXiv 2102.02079).

    As in the published code of NIID-Bench, a client that has an equal share of all images gets nothing of the groups
    to come, and everything is drawn again until each client has `min_size` images; here a bounded number of times.
    Sizes vary with the mixture, and alpha is a client's concentration, not, as in `paper`, that of the whole draw.
    Arguments and errors as for `paper`, but that the published least size is 10.

    >>> client_of = dirichlet_per_class(np.repeat([0, 1, 2], 100), 4, 0.5, np.random.default_rng(0))
    >>> len(client_of), bool((np.bincount(client_of) >= 10).all())
    (300, True)
    """
    order, capacity = _shuffled(groups, n_clients, rng)

    def draw() -> np.ndarray:
        """Images of each client and group (n_clients, K)."""
        counts = np.zeros((n_clients, len(capacity)), np.int64)
        sizes = np.zeros(n_clients, np.int64)
        for group, log_shares in enumerate(log_dirichlet(np.full(n_clients, alpha), len(capacity), rng)):
            shares = renormalised(log_shares, sizes * n_clients < capacity.sum())
            counts[:, group] = rounded(capacity[group], shares, rng)
            sizes += counts[:, group]
        return counts

    counts = _large_enough(draw, capacity, n_clients, alpha, min_size)
    return _hand_out(groups, order, _owners(counts, capacity))


def shards(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None,
    shards_per_client: int = 2,
) -> np.ndarray:  # fmt: skip
    """Images sorted by group, cut into equal shards, some to each client: McMahan et al. 2017 (arXiv 1602.05629).

    A client of two shards has images of few groups. All images are dealt, in numbers that differ by a shard's
    rounding. Other arguments and errors as for `paper`; alpha has no part in it.

    >>> groups = np.repeat(np.arange(10), 100)
    >>> client_of = shards(groups, 10, 1.0, np.random.default_rng(0))
    >>> max(len(set(groups[client_of == client])) for client in range(10))
    2
    """
    order, _ = _shuffled(groups, n_clients, rng)
    n_shards = n_clients * shards_per_client
    if len(order) < n_shards:
        raise UserError(
            f"{len(order)} images cannot be cut into {n_shards} shards; lower --n_clients or --shards_per_client"
        )
    owners = rng.permutation(np.repeat(np.arange(n_clients), shards_per_client))
    client_of = _hand_out(groups, order, owners[_even(len(order), len(owners))])
    return _checked(client_of, n_clients, min_size)


def natural(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """Whole groups: what belongs to one building, point, user or place by nature stays with one client.

    With as many clients as groups each gets one, in their order. Where there are more groups, they go in random order
    to whoever has the fewest images. Arguments and errors as for `paper`; alpha has no part in it.

    >>> natural(np.array([7, 7, 5, 5, 5, 2]), 3, 1.0, np.random.default_rng(0)).tolist()
    [2, 2, 1, 1, 1, 0]
    """
    order, capacity = _shuffled(groups, n_clients, rng)
    if len(capacity) < n_clients:
        raise UserError(
            f"{len(capacity)} groups cannot be dealt whole to {n_clients} clients; "
            f"give --n_clients {len(capacity)} or fewer"
        )
    owners = np.arange(len(capacity))
    fewest = [(0, client) for client in range(n_clients)]
    for group in rng.permutation(len(capacity)) if len(capacity) > n_clients else ():
        size, owners[group] = fewest[0]
        heapq.heapreplace(fewest, (size + int(capacity[group]), int(owners[group])))
    return _checked(_hand_out(groups, order, np.repeat(owners, capacity)), n_clients, min_size)


def commonest_object(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """The first group to the first client, the next to the second, and all that is left to the last.

    FedCV's rule for detection (arXiv 2111.11066) on the groups of `--type object_based`, which are numbered from the
    commonest object on; nothing is drawn. The paper does not say what the last client gets: here, as in its code, the
    rest. Arguments and errors as for `paper`; neither alpha nor `rng` has a part in it.

    >>> commonest_object(np.array([2, 0, 0, 0, 1, 1]), 2, 1.0, np.random.default_rng(0)).tolist()
    [1, 0, 0, 0, 1, 1]
    """
    order, capacity = _shuffled(groups, n_clients, rng)
    if len(capacity) < n_clients:
        raise UserError(
            f"{len(capacity)} groups are too few for {n_clients} clients, of whom each gets one; "
            f"give --n_clients {len(capacity)} or fewer"
        )
    owners = np.arange(len(capacity)).clip(max=n_clients - 1)
    return _checked(_hand_out(groups, order, np.repeat(owners, capacity)), n_clients, min_size)


def quantity_skew(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """Sizes ~ Dir(alpha) and images at random: the quantity skew of Li et al. 2022 (arXiv 2102.02079).

    Drawn again, a bounded number of times, until each client has `min_size` images. All images are dealt. Arguments
    and errors as for `paper`, but that the published least size is 10.

    >>> client_of = quantity_skew(np.zeros(1000, int), 4, 0.5, np.random.default_rng(0))
    >>> sizes = np.bincount(client_of)
    >>> int(sizes.sum()), bool(sizes.max() > 2 * sizes.min() >= 20)
    (1000, True)
    """
    order, capacity = _shuffled(np.minimum(groups, 0), n_clients, rng)

    def draw() -> np.ndarray:
        """Images of each client (n_clients, 1)."""
        [log_shares] = log_dirichlet(np.full(n_clients, alpha), 1, rng)
        return rounded(len(order), np.exp(log_shares), rng)[:, None]

    counts = _large_enough(draw, capacity, n_clients, alpha, min_size)
    return _hand_out(groups, order, _owners(counts, capacity))


def iid(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """All images at random, in equal numbers (up to one); alpha has no part in it. Errors as for `paper`.

    >>> np.bincount(iid(np.zeros(11, int), 2, 1.0, np.random.default_rng(0))).tolist()
    [6, 5]
    """
    order, _ = _shuffled(np.minimum(groups, 0), n_clients, rng)
    return _checked(_hand_out(groups, order, _even(len(order), n_clients)), n_clients, min_size)


def one_group(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:  # fmt: skip
    """All clients but the last have one group each, and the last one has the population's mixture: equal sizes.

    The second setting of FedDifRC (arXiv 2507.06482), six clients of one class and one of all; which classes these are
    is drawn, each as often as any other, up to once. How many images they have is not said there: here it is as many
    as the groups can give to all alike, and the rest goes to nobody. Other arguments and errors as for `paper`; alpha
    has no part in it.

    >>> groups = np.repeat(np.arange(10), 110)
    >>> client_of = one_group(groups, 7, 1.0, np.random.default_rng(0))
    >>> [len(set(groups[client_of == client])) for client in range(7)], np.bincount(client_of[client_of >= 0]).tolist()
    ([1, 1, 1, 1, 1, 1, 10], [100, 100, 100, 100, 100, 100, 100])
    """
    order, capacity = _shuffled(groups, n_clients, rng)
    mixture, n_groups = capacity / capacity.sum(), len(capacity)
    drawn = np.concatenate([rng.permutation(n_groups) for _ in range(-(-n_clients // n_groups))])[: n_clients - 1]
    held = np.bincount(drawn, minlength=n_groups)
    size = int((capacity / (held + mixture)).min() + 1e-9)
    counts = np.zeros((n_clients, n_groups), np.int64)
    counts[np.arange(n_clients - 1), drawn] = size
    # Of a group there may be an image less than its share, rounded up; others then give more.
    room = capacity - held * size
    counts[-1] = np.minimum(rounded(size, mixture, rng), room)
    spare = np.cumsum(room - counts[-1])
    counts[-1] += np.diff(np.minimum(spare, size - counts[-1].sum()), prepend=0)
    return _checked(_hand_out(groups, order, _owners(counts, capacity)), n_clients, min_size)


def split_groups(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None,
    clients_per_group: Sequence[int] | None = None, client_share: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Each client has a part of one group, drawn at random: clients of one domain, several to a domain.

    As FedDifRC (arXiv 2507.06482) deals domains: four of the ten clients have digits of USPS, each a tenth of them.

    Args:
        clients_per_group: how many clients share each group, in the order of the groups' numbers; without it all groups
            have as many, but for one.
        client_share: of its group that a client has, or an equal share where that would be less.

    Other arguments and errors as for `paper`; alpha has no part in it.

    >>> client_of = split_groups(np.repeat([0, 1], [60, 40]), 3, 1.0, np.random.default_rng(0), None, [2, 1], 0.25)
    >>> np.bincount(client_of[:60] + 1).tolist(), np.bincount(client_of[60:] + 1).tolist()
    ([30, 15, 15], [30, 0, 0, 10])
    """
    order, capacity = _shuffled(groups, n_clients, rng)
    n_groups = len(capacity)
    even = np.bincount(rng.permutation(n_groups)[np.arange(n_clients) % n_groups], minlength=n_groups)
    sharing = np.array(clients_per_group or even)
    if len(sharing) != n_groups or sharing.sum() != n_clients:
        raise UserError(
            f"--clients_per_group {','.join(map(str, sharing))} is not {n_clients} clients in {n_groups} groups; "
            "give a number for each group, or another --n_clients"
        )
    of_client = np.repeat(np.arange(n_groups), sharing)
    counts = np.zeros((n_clients, n_groups), np.int64)
    sizes = np.floor(capacity * np.minimum(client_share, 1 / np.maximum(sharing, 1)) + 1e-9)
    counts[np.arange(n_clients), of_client] = sizes[of_client]
    return _checked(_hand_out(groups, order, _owners(counts, capacity)), n_clients, min_size)


Partitioner = Callable[..., np.ndarray]
PARTITIONERS: Registry[Partitioner] = {
    "paper": paper, "equal_size": equal_size, "dirichlet_hsu": dirichlet_hsu,
    "dirichlet_per_class": dirichlet_per_class, "shards": shards, "natural": natural,
    "by_building": natural,  # its former name
    "quantity_skew": quantity_skew, "iid": iid, "one_group": one_group, "split_groups": split_groups,
    "commonest_object": commonest_object,
}  # fmt: skip
WITHOUT_ALPHA = {
    "shards",
    "natural",
    "by_building",
    "iid",
    "one_group",
    "split_groups",
    "commonest_object",
}  # the rules in which alpha has no part


def _shuffled(groups: np.ndarray, n_clients: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The images to be dealt, sorted by group and in random order within it, and the sizes of the groups that occur.

    UserError where there are fewer images than clients.
    """
    order = rng.permutation(np.flatnonzero(groups >= 0))
    if n_clients < 1 or len(order) < n_clients:
        raise UserError(f"{len(order)} images cannot be dealt to {n_clients} clients; lower --n_clients")
    # One sort, and not a search for each group: there may be thousands of groups.
    order = order[np.argsort(groups[order], kind="stable")]
    _, capacity = np.unique(groups[order], return_counts=True)
    return order, capacity


def _hand_out(groups: np.ndarray, order: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Each image's client, (N,) int32, where the image `order[i]` goes to `owners[i]` and all others to nobody."""
    client_of = np.full(len(groups), -1, np.int32)
    client_of[order] = owners
    return client_of


def _owners(counts: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The clients of images sorted by group, from counts (clients, groups); -1 for what is left of a group."""
    with_rest = np.vstack([counts, capacity - counts.sum(axis=0)])
    clients = np.append(np.arange(len(counts)), -1)
    return np.repeat(np.tile(clients, len(capacity)), with_rest.T.ravel())


def _even(n: int, n_parts: int) -> np.ndarray:
    """The part 0..n_parts - 1 of each of n things in a row, in parts that differ by one at most."""
    return np.arange(n) * n_parts // n


def _checked(client_of: np.ndarray, n_clients: int, min_size: int | None) -> np.ndarray:
    """The same, or a UserError where a client has fewer than `min_size` images."""
    smallest = int(np.bincount(client_of[client_of >= 0], minlength=n_clients).min())
    if smallest < (min_size or 1):
        raise UserError(
            f"the smallest of {n_clients} clients has {smallest} images, fewer than {min_size}; "
            "lower --n_clients or --min_client_ds_len"
        )
    return client_of


def _least_sizes(
    total: int, n_clients: int, min_size: int | None, published: int, numbers: int
) -> Iterator[int]:  # fmt: skip
    """The least client size that each of a bounded number of draws, of so many `numbers` each, has to meet.

    That is `min_size`; without one it is the `published` size or half of an equal share, whichever is less, and half
    of that and so on down to 1. UserError if there are too few images for it whatever is drawn.
    """
    if min_size and n_clients * min_size > total:
        raise UserError(
            f"{n_clients} clients of at least {min_size} images need {n_clients * min_size}, and there are {total}; "
            "lower --n_clients or --min_client_ds_len"
        )
    fair = max(1, min(published, int(total) // (2 * n_clients)))
    steps = [min_size] if min_size else [fair >> n for n in range(fair.bit_length())]
    draws = max(1, min(_DRAWS, _NUMBERS // (numbers * len(steps))))
    for least in steps:
        yield from [least] * draws


def _large_enough(
    draw: Callable[[], np.ndarray], capacity: np.ndarray, n_clients: int, alpha: float, min_size: int | None
) -> np.ndarray:  # fmt: skip
    """The first counts (clients, groups) drawn in which every client has enough images; UserError without any."""
    best = 0
    for least in _least_sizes(capacity.sum(), n_clients, min_size, _NIID_MIN_SIZE, n_clients * len(capacity)):
        counts = draw()
        smallest = int(counts.sum(axis=1).min())
        if smallest >= least:
            return counts
        best = max(best, smallest)
    raise UserError(
        f"at alpha {alpha:g}, one of {n_clients} clients has fewer than {least} images in every draw ({best} in the "
        "best one); lower --n_clients or --min_client_ds_len, raise --alpha, or use --partition equal_size"
    )


def _of_equal_size(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None,
    counted: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Clients of N // n_clients images, q ~ Dir(alpha * group ratios), with counts (clients, groups) by `counted`."""
    order, capacity = _shuffled(groups, n_clients, rng)
    log_shares = log_dirichlet(alpha * capacity / capacity.sum(), n_clients, rng)
    counts = counted(log_shares, np.full(n_clients, capacity.sum() // n_clients), capacity)
    return _checked(_hand_out(groups, order, _owners(counts, capacity)), n_clients, min_size)
