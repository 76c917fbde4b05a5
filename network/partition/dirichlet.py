"""Rules that draw the mixture of groups, or the size, of each client from a Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from network.partition.hand_out import checked, hand_out, owners_of, shuffled
from network.partition.shares import fill, fit, log_dirichlet, renormalised, rounded, solve_sizes
from utils.errors import UserError

# A rule that draws until a draw fits stops after _DRAWS draws or, where a draw is large, after _NUMBERS random numbers.
_DRAWS, _NUMBERS = 1000, 2_000_000
# A concentration so small that one share of a Dirichlet draw is practically 1 and the others 0.
_NEXT_TO_ZERO = 1e-100
# The smallest client sizes in the published code of arXiv 2503.14553 and of NIID-Bench (arXiv 2102.02079).
_PAPER_MIN_SIZE, _NIID_MIN_SIZE = 128, 10


def paper(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """The rule of arXiv 2503.14553: q_k ~ Dirichlet(alpha * group ratios), and sizes that use most of the data.

    The published code redraws all q until a pseudo-inverse happens to give sizes that overdraw no group. Here the sizes
    are solved for: they are the same where that pseudo-inverse is feasible, and the nearest feasible ones otherwise.
    Draws are repeated, a bounded number of times, only if clients of the smallest allowed size would already overdraw a
    group. Images that no client's mixture takes have no client: the more, the fewer clients there are beside groups.

    Args:
        groups: (N,) group ids, -1 for images not to be assigned.
        n_clients: number of clients.
        alpha: Dirichlet concentration, > 0.
        rng: source of all randomness.
        min_size: smallest number of images per client; None for the published 128 or half of an equal share, whichever
            is less, halved until sizes are found.

    Returns:
        (N,) int32, each image's client, -1 for images that are not assigned.

    Raises:
        UserError: if no draw has feasible sizes; it names a group that is too small.

    >>> client_of = paper(np.repeat([0, 1], 300), 4, 0.5, np.random.default_rng(0), min_size=20)
    >>> bool((np.bincount(client_of[client_of >= 0]) >= 20).all())
    True
    """
    order, capacity = shuffled(groups, n_clients, rng)
    for least in _least_sizes(capacity.sum(), n_clients, min_size, _PAPER_MIN_SIZE, n_clients * len(capacity)):
        log_shares = log_dirichlet(alpha * capacity / capacity.sum(), n_clients, rng)
        shares = np.exp(log_shares)
        demand = least * shares.sum(axis=0)
        if (demand <= capacity).all():
            sizes = np.floor(solve_sizes(shares, capacity, least) + 1e-6).astype(np.int64)
            counts = fill(log_shares, sizes, capacity, partial(rounded, rng=rng))
            return hand_out(groups, order, owners_of(counts, capacity))
    worst = int(np.argmax(demand / capacity))
    name = groups[order[capacity[:worst].sum()]]
    raise UserError(
        f"at alpha {alpha:g}, {n_clients} clients of at least {least} images need more of some group than it has, in "
        f"every draw (in the last one, {demand[worst]:.0f} of the {capacity[worst]} images of group {name}); "
        "lower --n_clients or --min_client_ds_len, raise --alpha, or use --partition equal_size"
    )


def equal_size(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """q_k ~ Dirichlet(alpha * group ratios) with equal sizes, so that only the mixture of groups varies.

    Clients have N // n_clients images each. The drawn q are fitted to the groups for all clients at once
    (`network.partition.shares.fit`). So all clients' mixtures have the same distribution: the Dirichlet's, as far as
    the groups allow. With 16 equal groups and alpha 0.1 to 100, 100 clients have 0.96 to 1.00 of its variance. 10
    clients, each of which takes more than a group, have 0.49 to 0.90. Arguments and errors as for `paper`.

    >>> client_of = equal_size(np.repeat([0, 1], [60, 40]), 10, 1e6, np.random.default_rng(0))
    >>> np.bincount(client_of[:60]).tolist()  # with such a large alpha, every client has the population's mixture
    [6, 6, 6, 6, 6, 6, 6, 6, 6, 6]
    """
    return _of_equal_size(groups, n_clients, alpha, rng, min_size, partial(fit, rng=rng))


def dirichlet_hsu(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """Equal sizes, with every single image drawn from its client's q, as in the papers that the rule comes from.

    q ~ Dir(alpha * prior) and categorical labels from q: Hsu et al. 2019 (arXiv 1909.06335), section 3. Without
    replacement, with q renormalised over the classes that are left: Hsu, Qi, Brown 2020 (arXiv 2003.08082),
    equation 5 of the appendix. The counts of a client are multinomial, so that small clients differ by chance even at
    large alpha. Alpha 0 is the limit of one group per client, drawn in proportion to the groups' sizes; where a group
    runs out, the client continues with another. Clients are filled one after another, and the last ones get what the
    others left. With 100 clients of 200 images, 16 groups and alpha 100, the first client has an earth mover's distance
    of 0.38 and the last one of 1.38. Under `equal_size`, both have 0.31. Arguments and errors as for `paper`.

    >>> client_of = dirichlet_hsu(np.repeat([0, 1], [60, 40]), 10, 1e6, np.random.default_rng(0))
    >>> np.bincount(client_of).tolist(), len(set(np.bincount(client_of[:60]).tolist())) > 1
    ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10], True)
    """
    shares = partial(fill, rounding=rng.multinomial)
    return _of_equal_size(groups, n_clients, alpha or _NEXT_TO_ZERO, rng, min_size, shares)


def dirichlet_per_class(
    groups: np.ndarray,
    n_clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_size: int | None = None,
    *,
    balanced: bool,
) -> np.ndarray:
    """For each group, clients get shares p ~ Dir(alpha) of it: Li et al. 2022 (arXiv 2102.02079).

    The draw is repeated (a bounded number of times) until each client has `min_size` images. Sizes vary with the
    mixture. Alpha is the concentration per client, not that of the whole draw as in `paper`.

    Without `balanced`, that is all, as in the paper's text. A client's shares of the groups are then independent of
    each other. With n clients and groups that are shares s_k of all images, the squared coefficient of variation of the
    clients' sizes is (n - 1) sum_k s_k^2 / (n alpha + 1) on average.

    Args:
        balanced: whether, as in the published code of NIID-Bench, a client that already has an equal share of all
            images gets nothing of later groups.

    Other arguments and errors as for `paper`, except that the published smallest size is 10.

    >>> client_of = dirichlet_per_class(np.repeat([0, 1, 2], 100), 4, 0.5, np.random.default_rng(0), balanced=True)
    >>> len(client_of), bool((np.bincount(client_of) >= 10).all())
    (300, True)
    """
    order, capacity = shuffled(groups, n_clients, rng)

    def draw() -> np.ndarray:
        """Images of each client and group (n_clients, K)."""
        counts = np.zeros((n_clients, len(capacity)), np.int64)
        sizes = np.zeros(n_clients, np.int64)
        for group, log_shares in enumerate(log_dirichlet(np.full(n_clients, alpha), len(capacity), rng)):
            shares = renormalised(log_shares, (sizes * n_clients < capacity.sum()) | (not balanced))
            counts[:, group] = rounded(capacity[group], shares, rng)
            sizes += counts[:, group]
        return counts

    counts = _large_enough(draw, capacity, n_clients, alpha, min_size)
    return hand_out(groups, order, owners_of(counts, capacity))


def quantity_skew(
    groups: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator, min_size: int | None = None
) -> np.ndarray:
    """Sizes ~ Dir(alpha) and images at random: the quantity skew of Li et al. 2022 (arXiv 2102.02079).

    The draw is repeated, a bounded number of times, until each client has `min_size` images. All images are assigned.
    Arguments and errors as for `paper`, except that the published smallest size is 10.

    >>> client_of = quantity_skew(np.zeros(1000, int), 4, 0.5, np.random.default_rng(0))
    >>> sizes = np.bincount(client_of)
    >>> int(sizes.sum()), bool(sizes.max() > 2 * sizes.min() >= 20)
    (1000, True)
    """
    order, capacity = shuffled(np.minimum(groups, 0), n_clients, rng)

    def draw() -> np.ndarray:
        """Images of each client (n_clients, 1)."""
        [log_shares] = log_dirichlet(np.full(n_clients, alpha), 1, rng)
        return rounded(len(order), np.exp(log_shares), rng)[:, None]

    counts = _large_enough(draw, capacity, n_clients, alpha, min_size)
    return hand_out(groups, order, owners_of(counts, capacity))


def _least_sizes(total: int, n_clients: int, min_size: int | None, published: int, numbers: int) -> Iterator[int]:
    """The smallest client size to accept in each of a bounded number of draws, each of `numbers` random numbers.

    That is `min_size`. Without one, it is the `published` size or half of an equal share, whichever is less, then half
    of that, and so on down to 1. UserError if any draw has too few images.
    """
    if min_size and n_clients * min_size > total:
        raise UserError(
            f"{n_clients} clients of at least {min_size} images need {n_clients * min_size}, but there are {total}; "
            "lower --n_clients or --min_client_ds_len"
        )
    fair = max(1, min(published, int(total) // (2 * n_clients)))
    steps = [min_size] if min_size else [fair >> n for n in range(fair.bit_length())]
    draws = max(1, min(_DRAWS, _NUMBERS // (numbers * len(steps))))
    for least in steps:
        yield from [least] * draws


def _large_enough(
    draw: Callable[[], np.ndarray], capacity: np.ndarray, n_clients: int, alpha: float, min_size: int | None
) -> np.ndarray:
    """The first counts (clients, groups) drawn in which every client has enough images; UserError if there are none."""
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
    groups: np.ndarray,
    n_clients: int,
    alpha: float,
    rng: np.random.Generator,
    min_size: int | None,
    counted: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Clients of N // n_clients images, q ~ Dir(alpha * group ratios), with counts (clients, groups) by `counted`."""
    order, capacity = shuffled(groups, n_clients, rng)
    log_shares = log_dirichlet(alpha * capacity / capacity.sum(), n_clients, rng)
    counts = counted(log_shares, np.full(n_clients, capacity.sum() // n_clients), capacity)
    return checked(hand_out(groups, order, owners_of(counts, capacity)), n_clients, min_size)
