"""Everybody's images in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from network.algorithms.fedavg import FedAvg
from network.client import ClientRound
from network.settings import LocalSettings

if TYPE_CHECKING:
    from datasets.task_data import TaskData


class Centralized(FedAvg):
    """No federation: one worker trains on all clients' images, the line that federated methods aim at.

    In a round it takes as many steps as the clients that would have taken part, together, and like theirs its
    optimiser starts afresh. Losses are still reported by client.
    """

    def prepare(self, data: TaskData, groups: np.ndarray, clients: Sequence[np.ndarray]) -> None:
        """All images are one client's."""
        super().prepare(data, groups, [np.concatenate(clients)])

    def turns(
        self, clients: Sequence[np.ndarray], settings: LocalSettings, rng: np.random.Generator
    ) -> dict[int, ClientRound]:
        """One turn with everything, in the place of the first client's."""
        n_steps = sum(turn.n_steps for turn in super().turns(clients, settings, rng).values())
        return {0: ClientRound(np.concatenate(clients), n_steps, 1.0, 1.0)}
