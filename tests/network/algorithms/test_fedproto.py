"""FedProto on quadratics, whose features a * w are known: prototypes by counting, and rounds by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from network.algorithms.fedproto import COUNTS, SUMS
from network.engine.simulation import Simulation
from tests.network import quadratic as q

LABELS = np.array([0, 1, 1, 0, 2, 2, -1, 1, 0, 0, 0])


class Data(q.QuadraticData):
    labels = torch.from_numpy(LABELS)


def trained(folder: Path, monkeypatch, n_rounds: int, **more: object) -> Simulation:
    monkeypatch.setattr(q, "QuadraticData", Data)
    settings = replace(q.SETTINGS, n_rounds=n_rounds, **more.pop("settings", {}))
    return q.trained(q.method("fedproto", prototype_weight=0.7), folder, settings, **more)


def counted(bodies: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of all clients' features by class, where a client had these bodies at its steps."""
    sums, counts = np.zeros((3, 5)), np.zeros(3)
    for images, of_client in zip(q.CLIENTS, bodies, strict=True):
        for body in of_client:
            for image in images:
                if LABELS[image] >= 0:
                    sums[LABELS[image]] += q.A[image] * body
                    counts[LABELS[image]] += 1
    return sums, counts


def test_three_rounds_by_hand(tmp_path: Path, monkeypatch) -> None:
    federation = trained(tmp_path, monkeypatch, 3)
    x, prototypes = q.START.astype(float), None
    for _ in range(3):
        ends, bodies = [], []
        for client, images in enumerate(q.CLIENTS):
            y, seen = x.copy(), []
            for _ in range(q.STEPS):
                seen.append(y[0].copy())
                g = q.gradient(y, client)
                if prototypes is not None:
                    for image in images[LABELS[images] >= 0]:
                        away = q.A[image] * y[0] - prototypes[LABELS[image]]
                        g[0] += 0.7 * 2 / 5 * q.A[image] * away / len(images)
                y = y - q.LR * g
            ends.append(y)
            bodies.append(seen)
        sums, counts = counted(bodies)
        x, prototypes = q.average(ends), sums / counts[:, None]
    assert q.close(q.server_of(federation), x)
    np.testing.assert_allclose(federation.server[SUMS], sums, rtol=1e-4)
    assert federation.server[COUNTS].tolist() == counts.tolist()


def test_prototypes_are_plain_means_over_all_clients_images(tmp_path: Path, monkeypatch) -> None:
    federation = trained(tmp_path, monkeypatch, 1, settings={"sgd_per_epoch": 1})
    features = q.A[:8] * q.START[0]
    for kind in range(3):
        mean = features[LABELS[:8] == kind].mean(axis=0)
        np.testing.assert_allclose(federation.server[SUMS][kind] / federation.server[COUNTS][kind], mean, rtol=1e-5)
    assert federation.server[COUNTS].tolist() == [2, 3, 2]


def test_a_kind_that_nobody_had_keeps_its_prototype(tmp_path: Path, monkeypatch) -> None:
    federation = trained(tmp_path, monkeypatch, 1)
    server = federation.server
    mean = {name: tensor.double() for name, tensor in server.items()}
    mean[SUMS], mean[COUNTS] = torch.ones(3, 5).double(), torch.tensor([0.0, 4.0, 0.0]).double()
    after = federation.algorithm.server_step(server, mean)
    assert torch.equal(after[SUMS][[0, 2]], server[SUMS][[0, 2]]) and after[SUMS][1].tolist() == [1] * 5
    assert after[COUNTS].tolist() == [float(server[COUNTS][0]), 4.0, float(server[COUNTS][2])]
