"""Local training, without a federation."""

from __future__ import annotations

from network.algorithms.fedavg import FedAvg
from network.algorithms.without_server import WithoutServer


class LocalOnly(WithoutServer, FedAvg):
    """No federation: each client trains a model on its own images, from the common initial one.

    This is the baseline that federated methods have to beat: what a client achieves alone with the same local work.
    There is no global model, and a non-participating client gets the initial one: nobody has trained for it.
    """

    title = "Local training"

    def unprotected(self) -> str:
        """There is no sum."""
        return "without a federation nothing is sent"
