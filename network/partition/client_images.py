"""Each client's images as offsets into one array, because a million clients would be a list of a million arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np


class ClientImages(Sequence[np.ndarray]):
    """Each client's images, as positions in the data: a sequence of arrays, which are views.

    `images` (N,) has all clients' images, client after client, and `bounds` (clients + 1,) where each begins in it and
    the last one ends. So a client takes eight bytes beside its images.

    >>> clients = ClientImages.of([np.array([4, 7]), np.array([1])])
    >>> clients[0].tolist(), clients.sizes.tolist(), clients.owners.tolist()
    ([4, 7], [2, 1], [0, 0, 1])
    """

    def __init__(self, images: np.ndarray, bounds: np.ndarray) -> None:
        self.images, self.bounds = images, bounds

    @classmethod
    def of(cls, clients: Sequence[np.ndarray]) -> ClientImages:
        """These clients' images: a list of arrays, or what is one already."""
        if isinstance(clients, cls):
            return clients
        bounds = np.cumsum([0, *map(len, clients)])
        return cls(np.concatenate([np.zeros(0, np.int64), *clients]), bounds)

    @classmethod
    def assigned(cls, client_of: np.ndarray, n_clients: int, images: np.ndarray | None = None) -> ClientImages:
        """The images that each client is assigned, in their order.

        Args:
            client_of: (N,) each image's client, -1 for none.
            n_clients: number of clients.
            images: (N,) the positions of these images; by default their numbers.
        """
        order = np.argsort(client_of, kind="stable")
        bounds = np.searchsorted(client_of[order], np.arange(n_clients + 1))
        order = order[bounds[0] :]
        return cls(order if images is None else images[order], bounds - bounds[0])

    @cached_property
    def sizes(self) -> np.ndarray:
        """Images of each client, (clients,) int64."""
        return np.diff(self.bounds)

    @property
    def owners(self) -> np.ndarray:
        """The client of each of `images`, (N,) int64."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def places(self) -> ClientImages:
        """The places of each client's images in `images`, for what is computed of all of them at once."""
        return ClientImages(np.arange(len(self.images)), self.bounds)

    def choose(self, clients: np.ndarray) -> ClientImages:
        """Those of some clients, (n,) numbers, in this order."""
        bounds = np.append(0, np.cumsum(self.sizes[clients]))
        at = np.arange(bounds[-1]) + np.repeat(self.bounds[clients] - bounds[:-1], self.sizes[clients])
        return ClientImages(self.images[at], bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.images[first:last] for first, last in pairwise(self.bounds.tolist()))

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> ClientImages: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | ClientImages:
        if isinstance(client, slice):
            return self.choose(np.arange(len(self))[client])
        number = range(len(self))[client]  # IndexError beyond the last
        return self.images[self.bounds[number] : self.bounds[number + 1]]
