"""MOON on quadratics: the contrastive term by finite differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from models.networks.task_model import Outputs
from tests.network import quadratic as q


def contrast(body: np.ndarray, server: np.ndarray, last: np.ndarray, client: int, temperature: float) -> float:
    """The mean over images of -log(e^(s_g / tau) / (e^(s_g / tau) + e^(s_p / tau))) on embeddings a * body."""
    a = q.A[q.CLIENTS[client]].astype(float)

    def cosine(other: np.ndarray) -> np.ndarray:
        z, of_other = a * body, a * other
        return (z * of_other).sum(1) / (np.linalg.norm(z, axis=1) * np.linalg.norm(of_other, axis=1))

    to_server, to_last = (np.exp(cosine(other) / temperature) for other in (server, last))
    return float(-np.log(to_server / (to_server + to_last)).mean())


class Blank(q.Quadratic):
    """Its embedding says nothing, its features what those of the others do."""

    def forward(self, images: Tensor) -> Outputs:
        outputs = super().forward(images)
        return outputs._replace(embedding=torch.ones_like(outputs.embedding))


@pytest.mark.parametrize(
    "mu, temperature, settings",
    [
        (1.0, 0.5, {}),
        (5.0, 0.2, {}),
        (1.0, 0.5, {"representation": "features", "model": Blank()}),
    ],
)
def test_three_rounds_by_hand(tmp_path: Path, mu: float, temperature: float, settings: dict) -> None:
    representation, model = settings.get("representation", "embedding"), settings.get("model")
    algorithm = q.method("moon", mu=mu, temperature=temperature, representation=representation)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=3), model=model)
    x = q.START.astype(float)
    last = [None, None]
    for _ in range(3):
        ends = []
        for client in range(2):
            y = x.copy()
            for _ in range(q.STEPS):
                g = q.gradient(y, client)
                if last[client] is not None:
                    for d, unit in enumerate(1e-6 * np.eye(5)):
                        others = x[0], last[client][0], client, temperature
                        g[0, d] += mu * (contrast(y[0] + unit, *others) - contrast(y[0] - unit, *others)) / 2e-6
                y = y - q.LR * g
            ends.append(y)
        last, x = ends, q.average(ends)
    assert q.close(q.server_of(federation), x)


def test_the_first_turn_has_no_term(tmp_path: Path) -> None:
    federation = q.trained(q.method("moon", mu=100.0), tmp_path, replace(q.SETTINGS, n_rounds=1))
    assert q.close(q.server_of(federation), q.average([q.descend(q.START, 0), q.descend(q.START, 1)]))
