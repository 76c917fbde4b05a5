"""A saved partition for other programs: plain lists, a column for Hugging Face `datasets`, a Flower `Partitioner`.

This file needs only NumPy and nothing else of this project. Copy it next to your own code: if started in the root of
this project, Python would take the folder `datasets/` for Hugging Face's package. The argument `folder` is the one that
`make_partition.py` or `test_fed.py` wrote; image i of the partition must be row i of your data set.

    from saved_partition import client_column, clients, flower_partitioner

    dataset = dataset.add_column("client", client_column("out"))            # Hugging Face: -1 where not assigned
    federated = FederatedDataset(dataset="cifar10", partitioners={"train": flower_partitioner("out")})
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

    from datasets import Dataset  # type: ignore[attr-defined]


def clients(folder: str | Path) -> list[list[int]]:
    """The images of each client, in increasing order."""
    return json.loads(Path(folder, "clients.json").read_text(encoding="utf-8"))


def client_column(folder: str | Path) -> np.ndarray:
    """The client of each image, (N,) int32, -1 for images that are not assigned; for `Dataset.add_column`."""
    return np.load(Path(folder, "partition.npy"), allow_pickle=False)


def flower_partitioner(folder: str | Path) -> Partitioner:
    """A Flower partitioner for the saved partition; it needs the package flwr-datasets.

    Its `load_partition` raises ValueError if the data set does not have as many rows as the partition has images, or if
    the client does not exist.
    """
    from flwr_datasets.partitioner import Partitioner

    class SavedPartitioner(Partitioner):
        """Client k has the rows that the partition in `folder` assigns to it."""

        def __init__(self) -> None:
            super().__init__()
            self.n_images, self.clients = len(client_column(folder)), clients(folder)

        @property
        def num_partitions(self) -> int:
            """The number of clients."""
            return len(self.clients)

        def load_partition(self, partition_id: int) -> Dataset:
            """The rows of one client."""
            if len(self.dataset) != self.n_images:
                raise ValueError(f"{folder} divides {self.n_images} images, but the data set has {len(self.dataset)}")
            if not 0 <= partition_id < len(self.clients):
                raise ValueError(f"{folder} has the clients 0 to {len(self.clients) - 1}, but no {partition_id}")
            return self.dataset.select(self.clients[partition_id])

    return SavedPartitioner()
