"""Splits within natural groups: each city's, hospital's or building's images are assigned among clients of its own.

>>> cities = Natural.of("city", np.array(["ulm", "ulm", "bern", "", "bern", "ulm"]))
>>> joined(cities, np.array([0, 1, 0, 0, -1, 0])).tolist()
[1, 2, 0, -1, -1, 1]
>>> clients_of_groups(np.array([300, 90, 10]), 6).tolist()
[4, 1, 1]
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from utils.errors import UserError
from utils.words import counted, in_order, span

if TYPE_CHECKING:
    from datasets.table import Table


@dataclass(frozen=True)
class Natural:
    """Natural groups: the `column` that has them, the number of each image's group (N,), -1 for none, and their names.

    Numbers follow the order of the names, by size where all of these are numbers.
    """

    column: str
    numbers: np.ndarray
    names: Sequence[str]

    @classmethod
    def of(cls, column: str, texts: np.ndarray) -> Natural:
        """From each image's group as text (N,), empty for none; UserError where all are."""
        names, numbers = in_order(texts[texts != ""])
        if not len(names):
            raise UserError(f"--within {column}: no image has a value there")
        of_image = np.full(len(texts), -1, np.int64)
        of_image[texts != ""] = numbers
        return cls(column, of_image, names.tolist())

    @classmethod
    def in_table(cls, column: str, table: Table) -> Natural:
        """A column of a table of images; UserError where it has none of that name."""
        if column not in table.groups:
            known = f"give one of {', '.join(table.groups)}" if table.groups else "it has no natural groups"
            raise UserError(f"--within {column}: the table of images has no such column; {known}")
        return cls.of(column, table.groups[column])

    def members(self, chosen: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Each group that has some of the images `chosen` (N,) bool, by name, with these images' positions."""
        positions = np.flatnonzero(chosen & (self.numbers >= 0))
        positions = positions[np.argsort(self.numbers[positions], kind="stable")]
        of_position = self.numbers[positions]
        bounds = np.flatnonzero(np.diff(of_position, prepend=-1, append=-1))
        for start, stop in pairwise(bounds):
            yield self.names[of_position[start]], positions[start:stop]


def joined(natural: Natural, groups: np.ndarray) -> np.ndarray:
    """The number of each image's pair of natural group and group, (N,) int64 in their order, -1 where it lacks one."""
    known = (natural.numbers >= 0) & (groups >= 0)
    pairs = np.full(len(groups), -1, np.int64)
    keys = natural.numbers[known].astype(np.int64) * (int(groups.max(initial=0)) + 1) + groups[known]
    pairs[known] = np.unique(keys, return_inverse=True)[1]
    return pairs


def clusters_within(points: np.ndarray, fit_on: np.ndarray, natural: Natural, n_clusters: int, seed: int) -> np.ndarray:
    """Each image's cluster among those of its natural group, (N,) int64 from 0, -1 where K-means of it has no images.

    K-means is fitted to each group's images among `fit_on`; the group's other images take the nearest centre. A group
    with fewer different images than clusters has as many clusters as these. Its draws depend on the group's name and
    not on the other groups.

    Args:
        points: (N, D), a row per image.
        fit_on: positions of the images that clusters are fitted to.
        natural: the groups.
        n_clusters: K, for each of them.
        seed: of the draws.
    """
    from models.embedding.embeddings import fit_kmeans  # scikit-learn is slow to import

    chosen = np.zeros(len(points), bool)
    chosen[fit_on] = True
    of_group = dict(natural.members(np.ones(len(points), bool)))
    clusters = np.full(len(points), -1, np.int64)
    for name, images in natural.members(chosen):
        kmeans = fit_kmeans(points[images], n_clusters, seed, name)
        clusters[of_group[name]] = kmeans.predict(points[of_group[name]])
    return clusters


def clients_of_groups(sizes: np.ndarray, n_clients: int) -> np.ndarray:
    """How many of the clients each of the groups with these numbers of images gets: one, and more in proportion.

    The next client goes to the group whose clients would then have the most images each (D'Hondt's rule). So the
    smallest number of images per client is as large as possible. No group gets more clients than images while another
    has images left.
    """
    clients = np.ones(len(sizes), np.int64)
    waiting = [(-size / 2, group) for group, size in enumerate(sizes.tolist())]
    heapq.heapify(waiting)
    for _ in range(n_clients - len(sizes)):
        group = waiting[0][1]
        clients[group] += 1
        heapq.heapreplace(waiting, (-sizes[group] / (clients[group] + 1), group))
    return clients


def owners_within(natural: Natural, pairs: np.ndarray) -> list[str]:
    """The name of the natural group of each pair of `joined`, by the pair's number."""
    return [natural.names[owner] for owner in _owners(natural, pairs)]


def _owners(natural: Natural, pairs: np.ndarray) -> np.ndarray:
    _, first = np.unique(pairs[pairs >= 0], return_index=True)
    return natural.numbers[pairs >= 0][first]


def names_within(natural: Natural, pairs: np.ndarray) -> list[str]:
    """The pairs of `joined` by number: the natural group's name, and the number of the pair among the group's."""
    owners = _owners(natural, pairs)
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    return [f"{natural.names[owner]} {number}" for owner, number in zip(owners, rank, strict=True)]


def lines_within(client_of: np.ndarray, pairs: np.ndarray, natural: Natural, n_clusters: int | None) -> Iterator[str]:
    """Lines about a partition within natural groups.

    Args:
        client_of: (N,) each image's client, -1 for none.
        pairs: (N,) as `joined` numbers them.
        natural: the groups.
        n_clusters: of each group as asked for, None where something else than clusters is assigned.
    """
    clients = [len(np.unique(client_of[images])) for _, images in natural.members(client_of >= 0)]
    each = span(min(clients), max(clients), "client")
    yield f"within {natural.column}: {counted(len(clients), 'group')} with {each} each"
    if without := int((natural.numbers < 0).sum()):
        yield f"{counted(without, 'image')} of no {natural.column}: not assigned"
    if n_clusters is not None:
        n_used = [len(np.unique(pairs[images])) for _, images in natural.members(pairs >= 0)]  # assigned or not
        if few := sum(number < n_clusters for number in n_used):
            yield f"fewer than {n_clusters} clusters in {counted(few, 'group')}, {min(n_used)} at least: too few images"


def within_of(origin: Mapping[str, Any], table: Table) -> Natural | None:
    """The natural groups within which a partition of this origin was assigned; None where it was within none."""
    column = origin.get("within")
    return Natural.in_table(column, table) if column else None
