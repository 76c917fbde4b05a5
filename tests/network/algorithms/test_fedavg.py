"""FedAvg on quadratics: two rounds by hand, its known bias, and sampling of clients."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.algorithms.fedavg import FedAvg
from network.client import Local
from tests.network.quadratic import (
    CLIENTS,
    LR,
    SETTINGS,
    SHARES,
    START,
    average,
    close,
    descend,
    gradient,
    long_run,
    loss,
    method,
    optimum,
    server_of,
    trained,
)


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    federation = trained(method("fedavg"), tmp_path)
    x = START
    for _ in range(2):
        x = average([descend(x, 0), descend(x, 1)])
    assert close(server_of(federation), x)
    row = federation.rows[-1]
    own = [loss(x, images) for images in CLIENTS]
    assert row["train_loss_mean"] == pytest.approx(np.mean(own), rel=1e-5)
    assert row["train_loss_std"] == pytest.approx(np.std(own), rel=1e-5)
    assert row["local_test_loss_worst"] == pytest.approx(max(loss(x, np.arange(8, 10)), loss(x, [10])), rel=1e-5)
    assert row["test_loss"] == pytest.approx(loss(x, np.arange(8, 11)), rel=1e-5)
    assert not any(name.startswith("personal") for name in row)


@pytest.mark.parametrize("momentum, decay", [(0.9, 0.0), (0.0, 0.1), (0.5, 0.05)])
def test_local_momentum_and_weight_decay(tmp_path: Path, momentum: float, decay: float) -> None:
    settings = replace(SETTINGS, momentum=momentum, weight_decay=decay)
    x = START
    for _ in range(2):
        ends = []
        for client in range(2):
            y, v = x, 0.0
            for _ in range(3):
                v = momentum * v + gradient(y, client) + decay * y
                y = y - LR * v
            ends.append(y)
        x = average(ends)
    assert close(server_of(trained(method("fedavg"), tmp_path, settings)), x)


def test_local_adam(tmp_path: Path) -> None:
    ends = []
    for client in range(2):
        y, m, v = START, 0.0, 0.0
        for step in range(1, 4):
            g = gradient(y, client)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            y = y - LR * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        ends.append(y)
    settings = replace(SETTINGS, use_adam=True, n_rounds=1)
    assert close(server_of(trained(method("fedavg"), tmp_path, settings)), average(ends), 1e-4)


def test_local_epochs_give_larger_clients_more_steps(tmp_path: Path) -> None:
    # Batches of 3: an epoch is one step for the first client's 3 images, two for the second's 5.
    settings = replace(SETTINGS, batch_size=3, local_epochs=3, sgd_per_epoch=99)
    assert [settings.steps(n) for n in (1, 3, 4, 5, 8)] == [3, 3, 3, 6, 9]
    taken: dict[int, int] = {}

    class Counting(FedAvg):
        def correct(self, gradients: list, local: Local) -> None:
            taken[local.client] = taken.get(local.client, 0) + 1

    trained(Counting(Namespace()), tmp_path, replace(settings, n_rounds=1))
    assert taken == {0: 3, 1: 6}


def test_heterogeneous_clients_bias_the_fixed_point(tmp_path: Path) -> None:
    end = long_run(method("fedavg"), tmp_path, 300, replace(SETTINGS, sgd_per_epoch=5))
    # The fixed point of x = sum_i p_i (T_i^K x): each T_i is affine, so that it is found by solving for it.
    basis = np.eye(10).reshape(10, 2, 5)
    at_zero = average([descend(np.zeros((2, 5)), i, 5) for i in range(2)])
    matrix = np.stack([(average([descend(e, i, 5) for i in range(2)]) - at_zero).ravel() for e in basis], axis=1)
    fixed = np.linalg.solve(np.eye(10) - matrix, at_zero.ravel()).reshape(2, 5)
    assert close(end, fixed, 1e-3)
    assert np.abs(end - optimum()).max() > 0.05


def test_one_step_a_round_is_gradient_descent_to_the_optimum(tmp_path: Path) -> None:
    end = long_run(method("fedavg"), tmp_path, 400, replace(SETTINGS, sgd_per_epoch=1))
    assert close(end, optimum(), 1e-3)


def test_sampling_by_size_is_an_unbiased_mean(tmp_path: Path) -> None:
    ends = np.stack([descend(START, 0), descend(START, 1)])
    settings = replace(SETTINGS, n_rounds=1)
    seen = []
    for seed in range(60):
        algorithm = method("fedavg", clients_per_round=1, client_sampling="size")
        seen.append(server_of(trained(algorithm, tmp_path / str(seed), settings, seed=seed)))
        assert any(close(seen[-1], end) for end in ends)  # one client is the whole round
    first = np.mean([close(x, ends[0]) for x in seen])
    # A share of 3/8 in 60 draws has a standard deviation of sqrt(3/8 * 5/8 / 60) = 0.0625.
    assert abs(first - SHARES[0]) < 3 * 0.0625
