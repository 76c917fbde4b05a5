"""FedDisco's weights by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from network.partition.client_images import ClientImages
from network.sampling import ClientSampling
from tests.network import quadratic as q

CLIENTS = [np.arange(4), np.arange(4, 6), np.arange(6, 8)]


class Data(q.QuadraticData):
    """Shares of two classes: (3/4, 1/4) of the first client, (1, 0) of the second and (1/2, 1/2) of the third."""

    labels = torch.tensor([0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0])


def weights(data: q.QuadraticData, clients: list[np.ndarray], **arguments: float) -> list[float]:
    made = q.method("feddisco", **arguments)
    made.prepare(data, np.zeros(11, np.int64), assigned := ClientImages.of(clients))
    sampled = ClientSampling().cohort(assigned, q.SETTINGS, np.random.default_rng(0))
    cohort = made.cohort(sampled, assigned)
    return [cohort[client].weight for client in range(len(clients))]


def test_weights_of_three_clients_by_hand() -> None:
    d = np.array([0.75 * np.log(1.5) + 0.25 * np.log(0.5), np.log(2), 0.0])  # KL to (1/2, 1/2)
    d = d / d.sum()
    expected = np.maximum(np.array([4, 2, 2]) / 8 - 0.5 * d + 0.1, 0)
    np.testing.assert_allclose(weights(Data(), CLIENTS), 8 * expected / expected.sum())
    assert expected[1] < expected[2]  # of two clients of one size, the one with one class


def test_a_client_may_count_nothing_and_if_all_would_they_count_as_ever() -> None:
    found = weights(Data(), CLIENTS, discrepancy_weight=1.0, discrepancy_offset=0.0)
    assert found[1] == 0.0 and found[0] > 0 and sum(found) == pytest.approx(8)
    alike = [np.array([0, 3]), np.array([6, 7])]
    made = {"discrepancy_weight": 5.0, "discrepancy_offset": 0.0}
    assert weights(Data(), [np.array([0, 1]), np.array([4, 5])], **made) == [2, 2]  # ReLU(1/2 - 5/2) of both
    assert weights(Data(), alike) == [2, 2]  # no discrepancy at all


def test_the_population_as_target() -> None:
    p = np.array([6, 2]) / 8
    d = np.array([0.0, np.log(4 / 3), 0.5 * np.log(0.5 / p[0]) + 0.5 * np.log(0.5 / p[1])])
    expected = np.maximum(np.array([4, 2, 2]) / 8 - 0.5 * d / d.sum() + 0.1, 0)
    found = weights(Data(), CLIENTS, discrepancy_target="population")
    np.testing.assert_allclose(found, 8 * expected / expected.sum(), atol=1e-9)


def test_clients_of_equal_size_and_equal_shares_are_fedavg_to_the_bit(tmp_path: Path) -> None:
    clients = [np.arange(4), np.arange(4, 8)]
    one, other = (q.trained(q.method(name), tmp_path / name, clients=clients) for name in ("feddisco", "fedavg"))
    assert all(torch.equal(one.server[key], tensor) for key, tensor in other.server.items())


def test_the_server_takes_the_mean_by_these_weights(tmp_path: Path) -> None:
    made = q.method("feddisco", discrepancy_weight=0.0, discrepancy_offset=0.5)
    shares = np.array([3 / 8 + 0.5, 5 / 8 + 0.5]) / 2
    x = q.START.astype(float)
    for _ in range(2):
        x = sum(share * q.descend(x, client) for client, share in enumerate(shares))
    assert q.close(q.server_of(q.trained(made, tmp_path)), x)
