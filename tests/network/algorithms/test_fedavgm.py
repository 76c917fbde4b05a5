"""FedAvgM on quadratics: server momentum by hand, and FedAvg without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from network.algorithms.fedavg import FedAvg
from network.algorithms.fedavgm import FedAvgM
from tests.network import quadratic as q


@pytest.mark.parametrize("beta, server_lr", [(0.9, 1.0), (0.5, 0.7)])
def test_three_rounds_by_hand(tmp_path: Path, beta: float, server_lr: float) -> None:
    x, v = q.START, 0.0
    for _ in range(3):
        v = beta * v + q.average([q.descend(x, client) for client in range(2)]) - x
        x = x + server_lr * v
    algorithm = q.method("fedavgm", beta1=beta, server_lr=server_lr)
    assert q.close(q.server_of(q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=3))), x)


def test_without_momentum_it_is_fedavg(tmp_path: Path) -> None:
    ends = [q.server_of(q.trained(each, tmp_path / type(each).__name__)) for each in (FedAvg(), FedAvgM(beta1=0.0))]
    assert q.close(*ends, 1e-6)
