"""Measures of how uneven a partition is that need no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from utils.words import counted, span

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Counts: TypeAlias = np.ndarray | csr_array

# Each measure's wording in the report, and its range. The first one ranks the costs of splits best.
_WORDING = {
    "target_variance_share": ("share of the target's variance between clients", "0 by chance, at most 1"),
    "residual_variance_share": ("share of the residuals' variance between clients", "0 by chance, at most 1"),
    "emd": ("earth mover's distance to the population, by {described}", "0 to 2"),
    "assigned_emd": ("earth mover's distance to the population, by {assigned}", "0 to 2"),
    "jensen_shannon": ("Jensen-Shannon divergence to the population, bits", "0 to 1"),
    "hellinger": ("Hellinger distance between clients, by {described}", "0 to 1"),
    "jensen_shannon_distance": ("Jensen-Shannon distance of all clients, by {described}", "0 to 1"),
    "effective_groups": ("effective groups per client", "1 to {groups}"),
    "size_imbalance": ("size imbalance (standard deviation / mean)", "0 for equal sizes"),
    "frechet": ("Fréchet distance in embedding space / total variance", "0 to 2"),
    "box_emd": ("earth mover's distance of boxes' categories", "0 to 2"),
    "boxes_variance_share": ("share of the variance of boxes per image between clients", "0 by chance, at most 1"),
    "box_size_variance_share": ("share of the variance of box sizes between clients", "0 by chance, at most 1"),
    "coverage": ("share of the target's groups that a client covers", "0 to 1"),
    "kish": ("effective share of a client's images, reweighted", "0 to 1"),
    "largest_weight": ("largest weight of an image, reweighted", "1 where nothing is reweighted"),
    "shift": ("L1 distance of reweighted rounds from the target", "0 to 2"),
    "untargeted_clients": ("clients with nothing of the target, who learn nothing", "0 to {clients}"),
    "gradient_dispersion": ("gradient dispersion V at the early central model", "0 for equal clients"),
}

_OF_REWEIGHTING = {"coverage", "kish", "largest_weight", "shift", "untargeted_clients"}


def group_counts(client_of: np.ndarray, groups: np.ndarray, n_clients: int) -> np.ndarray:
    """How many images of each group each client has: (clients, groups) int64, for group ids 0..max.

    `client_of` and `groups` are (N,); images with a client or group below 0 do not count.
    """
    return sparse_counts(client_of, groups, n_clients).toarray()


def sparse_counts(client_of: np.ndarray, groups: np.ndarray, n_clients: int) -> csr_array:
    """`group_counts` as a sparse array, whose memory grows with the images only, not with clients times groups."""
    from scipy.sparse import coo_array

    known = (client_of >= 0) & (groups >= 0)
    at = (client_of[known].astype(np.int64), groups[known])
    shape = (n_clients, int(groups.max(initial=0)) + 1)
    return coo_array((np.ones(known.sum(), np.int64), at), shape).tocsr()  # sums duplicates


def earth_movers_distance(counts: Counts) -> float:
    """Mean L1 distance of a client's group shares to the population's, weighted by client size; in [0, 2].

    Hsu et al. 2019 (arXiv 1909.06335), section 3. It is 0 for identical clients and, where each client has one group,
    2 (1 - sum_k p_k^2) with the population's shares p. `counts` is (clients, groups).
    """
    return float(_Shares(counts).weights @ earth_movers_distances(counts))


def earth_movers_distances(counts: Counts) -> np.ndarray:
    """Each client's L1 distance of group shares to the population's, (clients,) in [0, 2]; 1 for those without images.

    `counts` is (clients, groups).
    """
    of = _Shares(counts)
    # A group that a client does not have adds the population's share.
    return 1 + of.sums(np.abs(of.share - of.expected) - of.expected)


def jensen_shannon(counts: Counts) -> float:
    """Mean Jensen-Shannon divergence of a client's group shares to the population's, weighted by client size.

    In bits, in [0, 1]; Lin 1991 (IEEE Transactions on Information Theory 37), equation 3.1. `counts` is (clients,
    groups).
    """
    of = _Shares(counts)
    half = of.expected / 2
    middle = _entropy(of.population / 2).sum() + of.sums(_entropy(of.share / 2 + half) - _entropy(half))
    divergence = middle - (of.sums(_entropy(of.share)) + _entropy(of.population).sum()) / 2
    return float(of.weights @ divergence / np.log(2))


def hellinger(counts: Counts) -> float:
    """Root mean square over all pairs of clients of the Hellinger distance of their group shares, in [0, 1].

    As FedArtML has it (Jimenez-Gutierrez et al. 2024, `hellinger_distance`): every client counts alike, whatever its
    size, and clients are compared with each other, not with the population. The squared distance of a pair is
    1 - sum_k sqrt(p_k q_k), whose sum over pairs follows from the sum of the roots. `counts` is (clients, groups);
    clients without images do not count, and fewer than two have no distance.
    """
    of = _Shares(counts)
    n = of.n_counted
    alike = np.square(of.group_sums(np.sqrt(of.share))).sum()  # over pairs in both orders, and each client with itself
    return float(np.sqrt(max(0.0, n * n - alike) / (n * (n - 1)))) if n > 1 else 0.0


def jensen_shannon_distance(counts: Counts) -> float:
    """Root of the Jensen-Shannon divergence of all clients' group shares, over log2 of their number; in [0, 1].

    The divergence of several distributions, equally weighted, is the entropy of their mean minus the mean of their
    entropies (Lin 1991, equation 5.1). It is at most log2 of their number. It is divided by that, and the root is
    taken, as in FedArtML's `jensen_shannon_distance`. For two clients it is SciPy's `jensenshannon` with base 2. Unlike
    `jensen_shannon`, it weights clients alike and compares none with the population. Other arguments as for
    `hellinger`.
    """
    of = _Shares(counts)
    n = of.n_counted
    divergence = _entropy(of.group_sums(of.share) / n).sum() - _entropy(of.share).sum() / n
    return float(np.sqrt(max(0.0, divergence) / np.log(n))) if n > 1 else 0.0


def effective_groups(counts: Counts) -> float:
    """Mean over clients of exp(entropy of the client's group shares): 1 where each client has one group only."""
    of = _Shares(counts)
    return float(np.exp(of.sums(_entropy(of.share))).mean())


def size_imbalance(counts: Counts) -> float:
    """Coefficient of variation of the client sizes: standard deviation over mean."""
    sizes = counts.sum(axis=1)
    return float(sizes.std() / sizes.mean())


def frechet_distances(embeddings: np.ndarray, client_of: np.ndarray, n_clients: int) -> np.ndarray:
    """Squared Fréchet distance of each client's embeddings to those of all clients together, (clients,) float64.

    Both are treated as normal distributions: |m_k - m|^2 + tr(S_k + S - 2 (S_k S)^(1/2)), Dowson and Landau 1982, as
    in the Fréchet inception distance (arXiv 1706.08500). Few images make the distance larger by chance, so only
    partitions with similar sizes can be compared.

    Args:
        embeddings: (N, D).
        client_of: (N,) each image's client, -1 for none.
        n_clients: number of clients, each of which has at least one image.
    """
    assigned = np.flatnonzero(client_of >= 0)
    points = embeddings[assigned].astype(np.float64)
    points -= points.mean(axis=0)
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    order = np.argsort(client_of[assigned], kind="stable")
    bounds = np.cumsum(np.bincount(client_of[assigned], minlength=n_clients))[:-1]
    distances = np.empty(n_clients)
    for client, own in enumerate(np.split(order, bounds)):
        mean = points[own].mean(axis=0)
        spread = (points[own] - mean) / np.sqrt(len(own))
        # tr (S_k S)^(1/2) is the sum of the singular values of `spread @ root`, from the smaller of its Gram matrices.
        product = spread @ root
        gram = product @ product.T if len(own) < len(root) else product.T @ product
        overlap = np.sqrt(np.linalg.eigvalsh(gram).clip(0)).sum()
        distances[client] = mean @ mean + np.square(spread).sum() + values.sum() - 2 * overlap
    return distances.clip(0)


def relative_frechet(embeddings: np.ndarray, client_of: np.ndarray, n_clients: int) -> float:
    """Mean of `frechet_distances`, weighted by client size, over the total variance of all clients' embeddings.

    In [0, 2] for embeddings of any scale; 0 if all embeddings are equal. The means' contribution is `variance_share`.
    Clients of one image each reach 2.
    """
    weights = np.bincount(client_of[client_of >= 0], minlength=n_clients)
    total = embeddings[client_of >= 0].astype(np.float64).var(axis=0).sum()
    distance = frechet_distances(embeddings, client_of, n_clients)
    return float(np.average(distance, weights=weights) / total) if total > 0 else 0.0


def variance_share(values: np.ndarray, client_of: np.ndarray, n_clients: int) -> float:
    """Between-client share of the variance of `values`: eta squared of a one-way analysis of variance, in [0, 1].

    The sum over clients of n_k |m_k - m|^2, divided by the sum over images of |v_i - m|^2; columns are added up. A
    random partition has (clients - 1) / (images - 1) on average. 0 where all values are equal.

    Args:
        values: (N, D), a row per image; rows with NaN do not count.
        client_of: (N,) each image's client, -1 for none.
        n_clients: number of clients.
    """
    known = (client_of >= 0) & np.isfinite(values).all(axis=1)
    owners, values = client_of[known], values[known].astype(np.float64)
    values = values - values.mean(axis=0)
    sizes = np.bincount(owners, minlength=n_clients)
    sums = np.stack([np.bincount(owners, column, n_clients) for column in values.T], axis=1)
    between = (np.square(sums).sum(axis=1) / np.maximum(sizes, 1)).sum()
    total = np.square(values).sum()
    return float(between / total) if total > 0 else 0.0


def beyond_chance(share: float, n_groups: int, n_images: int) -> float:
    """A `variance_share` corrected for chance: 0 on average for random groups, at most 1.

    K random groups of any sizes explain (K - 1) / (n - 1) of n images' variance on average. That is subtracted from the
    share, and the rest is divided by its maximum. The result is epsilon squared of a one-way analysis of variance
    (Kelley 1935); 0 if there are as many groups as images.
    """
    if n_images <= n_groups:
        return 0.0
    chance = (n_groups - 1) / (n_images - 1)
    return (share - chance) / (1 - chance)


def class_variance_share(counts: Counts) -> float:
    """`variance_share` of classes as one-hot rows, from their counts (clients, classes): Goodman and Kruskal's tau."""
    of = _Shares(counts)
    chance = np.square(of.population).sum()
    return float((of.weights @ of.sums(np.square(of.share)) - chance) / (1 - chance)) if chance < 1 else 0.0


def report(
    client_of: np.ndarray,
    groups: np.ndarray,
    n_clients: int,
    embeddings: np.ndarray | None = None,
    assigned: np.ndarray | None = None,
) -> dict[str, float]:
    """All measures of a partition by name.

    Args:
        client_of: (N,) each image's client, -1 for none.
        groups: (N,) each image's group, -1 for none.
        n_clients: number of clients.
        embeddings: (N, D) for the Fréchet distance, which is omitted without them.
        assigned: (N,) the group of each image that was assigned, where `groups` are others, for an EMD of its own.
    """
    counts = sparse_counts(client_of, groups, n_clients)
    sizes = np.bincount(client_of[client_of >= 0], minlength=n_clients)
    values: dict[str, float] = {
        "clients": n_clients,
        "assigned_images": int(sizes.sum()),
        "groups": int((counts.sum(axis=0) > 0).sum()),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "emd": earth_movers_distance(counts),
        "jensen_shannon": jensen_shannon(counts),
        "hellinger": hellinger(counts),
        "jensen_shannon_distance": jensen_shannon_distance(counts),
        "effective_groups": effective_groups(counts),
        "size_imbalance": size_imbalance(sizes[:, None]),
    }
    if embeddings is not None:
        values["frechet"] = relative_frechet(embeddings, client_of, n_clients)
    if assigned is not None:
        values["assigned_emd"] = earth_movers_distance(sparse_counts(client_of, assigned, n_clients))
    return values


def report_text(
    values: Mapping[str, float],
    described: str = "group",
    assigned: str = "group",
    unassigned: Sequence[str] = (),
    reweighted: bool = False,
) -> str:
    """The report for the console: a line for the sizes, those on images without a client, and a line per measure.

    `described` is what one of the groups is called that the measures are of, `assigned` one of those that were
    assigned. What reweighting can achieve is left out unless images are `reweighted`.
    """
    sizes = span(int(values["smallest_client"]), int(values["largest_client"]), "image")
    lines = [
        f"{counted(int(values['clients']), 'client')} with {sizes} each, {values['assigned_images']} in all, "
        f"of {counted(int(values['groups']), described)}",
        *unassigned,
    ]
    for name, (wording, bounds) in _WORDING.items():
        if name in values and (reweighted or name not in _OF_REWEIGHTING):
            wording = wording.format(described=described, assigned=assigned)
            lines.append(f"  {wording:54} {values[name]:8.3f}   {bounds.format(**values)}")
    return "\n".join(lines)


class _Shares:
    """Counts (clients, groups) as shares, for the cells that are not 0.

    `weights` (clients,) are the clients' shares of all images, `population` (groups,) those of the groups. For each
    cell, `share` is the group's share of the client's images, and `expected` its share of the population. `n_counted`
    is the number of clients with images.
    """

    def __init__(self, counts: Counts) -> None:
        from scipy.sparse import coo_array

        cells = coo_array(counts)
        sizes = np.asarray(counts.sum(axis=1))
        self._client, self._group = cells.coords
        self.weights = sizes / sizes.sum()
        self.population = np.asarray(counts.sum(axis=0)) / sizes.sum()
        self.share, self.expected = cells.data / sizes[self._client], self.population[self._group]
        self.n_counted = int((sizes > 0).sum())

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Each client's sum over its cells."""
        return np.bincount(self._client, values, len(self.weights))

    def group_sums(self, values: np.ndarray) -> np.ndarray:
        """Each group's sum over its cells."""
        return np.bincount(self._group, values, len(self.population))


def _entropy(shares: np.ndarray) -> np.ndarray:
    """Each share's term of the entropy, in nats."""
    return -shares * np.log(shares, where=shares > 0, out=np.zeros_like(shares))
