"""The federated methods by the name that `--method` takes."""

from __future__ import annotations

from network.algorithms.fedavg import FedAvg
from network.algorithms.fedprox import FedProx

ALGORITHMS: dict[str, type[FedAvg]] = {"fedavg": FedAvg, "fedprox": FedProx}
