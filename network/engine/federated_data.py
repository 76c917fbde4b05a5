"""The images, and which client has which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from network.partition.client_images import ClientImages

if TYPE_CHECKING:
    from datasets.task_data import TaskData
    from network.partition.assigning import Partition


@dataclass(frozen=True)
class FederatedData:
    """The images of a federation.

    Attributes:
        images: all images, with their targets for the task.
        clients: each client's training images, as positions in `images`; a list of arrays is taken, too.
        held_out: each client's held-out images, among `images.test`; likewise.
        groups: (N,) the group of every image, for methods that use it.
        non_participating: the images of each client that never trains, those of its training part.
        non_participating_held_out: its held-out images.
    """

    images: TaskData
    clients: ClientImages
    held_out: ClientImages
    groups: np.ndarray
    non_participating: Sequence[np.ndarray] = ()
    non_participating_held_out: Sequence[np.ndarray] = ()

    def __post_init__(self) -> None:
        for name in ("clients", "held_out"):
            object.__setattr__(self, name, ClientImages.of(getattr(self, name)))

    @classmethod
    def of(cls, images: TaskData, partition: Partition, held_out: ClientImages) -> FederatedData:
        """Those of a partition, with all its clients' held-out images; non-participating clients' are in no group."""
        n_clients = partition.n_clients - partition.n_non_participating
        others = [partition.clients[i] for i in range(n_clients, partition.n_clients)], held_out[n_clients:]
        groups = partition.groups.copy()
        groups[np.concatenate([np.zeros(0, np.int64), *others[0], *others[1]])] = -1
        return cls(images, partition.participants.clients, held_out[:n_clients], groups, *others)

    @cached_property
    def known(self) -> TaskData:
        """The images without non-participating clients': what methods and the constant baseline are made from."""
        if not self.non_participating:
            return self.images
        return self.images.without(np.concatenate([*self.non_participating, *self.non_participating_held_out]))
