"""Non-participating clients: assigned like all others, they never train, and nothing is made from their images before.

>>> partition = Partition(np.array([0, 0, 1, 2, -1], np.int32), np.zeros(5, np.int64), 3)
>>> apart = set_aside(partition, 1, seed=0)
>>> apart.n_non_participating, len(apart.participants.clients), sum(map(len, apart.participants.clients))
(1, 2, 2)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from network.partition.assigning import NON_PARTICIPATING, PARTITION_FILE, Partition, read_partition
from utils.args import Parser, count_of
from utils.errors import UserError
from utils.streams import generator
from utils.versions import ids_digest

if TYPE_CHECKING:
    from datasets.task_data import TaskData

ALL, PARTICIPANTS = "all", "participants"  # whose images central models and clusters are made from


def set_aside(partition: Partition, requested: float, seed: int) -> Partition:
    """The same partition, whose last clients are the non-participating ones.

    They are drawn by a stream of their own, so that nothing else depends on how many there are: those of a smaller
    number are among those of a larger one. The others keep their order.

    Args:
        partition: of all clients.
        requested: the number of non-participating clients, from 1, or their share, below 1, which is rounded.
        seed: of the draw.

    Raises:
        UserError: if that leaves no non-participating client, or no other.
    """
    n_clients = partition.n_clients
    n_non_participating = count_of(requested, n_clients)
    if not 1 <= n_non_participating < n_clients:
        raise UserError(
            f"--non_participating_clients {requested:g} of {n_clients} clients are {n_non_participating}, which leaves "
            "none on one side; give another number, or more --n_clients"
        )
    drawn = generator("unseen", seed).permutation(n_clients)[:n_non_participating]
    order = np.concatenate([np.setdiff1d(np.arange(n_clients), drawn), np.sort(drawn)])
    numbers = np.append(np.argsort(order), -1).astype(np.int32)  # each client's new one; at -1, of nobody's images
    return replace(
        partition,
        client_of=numbers[partition.client_of],
        origin={**partition.origin, NON_PARTICIPATING: n_non_participating},
    )


def add_whose(parser: Parser, heading: str, name: str, what: str) -> None:
    """`--<name> all | participants` and `--partition_file`, for stages before the federation; `what` they make."""
    add = parser.group(heading).add_argument
    text = f"whose images {what}: all, or those of the clients of --partition_file that participate"
    add(f"--{name}", choices=(ALL, PARTICIPANTS), default=ALL, help=text)
    add("--partition_file", type=Path, help="partition.json of a run with --non_participating_clients, or its folder")


@dataclass(frozen=True)
class Whose:
    """Whose images something is made from: those of the participants of a partition, or without one all."""

    partition: Partition | None = None
    file: Path | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], name: str) -> Whose:
        """As `--<name>` says; UserError without its partition, or for one without non-participating clients."""
        whose, file = config[name], config["partition_file"]
        if (whose == PARTICIPANTS) != (file is not None):
            raise UserError(f"--{name} participants and --partition_file belong together; give both, or omit both")
        if file is None:
            return cls()
        partition = read_partition(file)
        if not partition.n_non_participating:
            raise UserError(
                f"{file} has no non-participating clients; give that of a run with --non_participating_clients"
            )
        return cls(partition, file / PARTITION_FILE if file.is_dir() else file)

    @property
    def reads(self) -> list[Path]:
        """The files that say so."""
        return [self.file] if self.file else []

    @property
    def digest(self) -> str | None:
        """The partition's `digest`; None for all."""
        return digest(self.partition) if self.partition else None

    def in_data(self, data: TaskData) -> TaskData:
        """The data with only these images to train on; UserError if they are of another table, or none is left."""
        if self.partition is None:
            return data
        if self.partition.origin.get("table_sha256") != data.table.fingerprint:
            raise UserError(f"{self.file} was made from another table of images; make the partition again")
        nobodys = data.train[self.partition.participants.client_of[data.train] < 0]
        if len(nobodys) == len(data.train):
            raise UserError(f"{self.file} assigns none of these images; make the partition again")
        return data.without(nobodys)


def digest(partition: Partition) -> str:
    """What says who has which images, and who never trains: SHA-256 of each participant's images."""
    return ids_digest(partition.participants.client_of)
