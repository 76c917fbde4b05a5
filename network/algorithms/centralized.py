"""Centralised training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientRound
from network.partition.client_images import ClientImages

if TYPE_CHECKING:
    from datasets.task_data import TaskData


class Centralized(FedAvg):
    """No federation: one worker trains on all clients' images, the baseline that federated methods aim at.

    Per round, it takes as many steps as all clients that would have taken part take together, and its optimiser starts
    afresh, as theirs do. Losses are still reported per client.
    """

    no_uploads: ClassVar[str] = "there is one worker"

    def unprotected(self) -> str:
        """There are no uploads of clients."""
        return "one worker has all clients' images"

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Treat all images as those of one client."""
        self._images = clients.images

    def cohort(self, sampled: dict[int, ClientRound], clients: ClientImages) -> dict[int, ClientRound]:
        """One client, under the first one's number, with all images and all steps."""
        n_steps = sum(client_round.n_steps for client_round in sampled.values())
        return {0: ClientRound(clients.images, n_steps, 1.0, 1.0)}
