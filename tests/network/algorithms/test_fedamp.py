"""FedAMP on quadratics: attention, cloud models and personal models by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from network.sampling import uniform
from network.state import ClientStates
from tests.network import quadratic as q


def cloud(models: list[np.ndarray], i: int, sigma: float, alpha: float) -> np.ndarray:
    """u_i, with the others' weights bounded by (N - 1) / N."""
    distances = np.array([((models[i] - other) ** 2).sum() for other in models])
    weights = alpha / sigma * np.exp(-distances / sigma)  # alpha A'(x) of A(x) = 1 - exp(-x / sigma)
    weights[i] = 0.0
    weights *= min(1.0, (1 - 1 / len(models)) / weights.sum())
    weights[i] = 1.0 - weights.sum()
    assert (weights >= 0).all()
    return np.tensordot(weights, models, 1)


@pytest.mark.parametrize(
    "sigma, alpha, lam, capped",
    [(5.0, 1.0, 1.0, False), (1.0, 2.0, 0.5, True), (2.0, 0.3, 2.0, False)],
)
def test_three_rounds_by_hand(tmp_path: Path, sigma: float, alpha: float, lam: float, capped: bool) -> None:
    algorithm = q.method("fedamp", sigma=sigma, alpha_k=alpha, lam=lam)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=3))
    models = [q.START.astype(float)] * 2
    assert (alpha / sigma > 0.5) is capped  # both start from the same model, at distance 0
    for _ in range(3):
        clouds = [cloud(models, i, sigma, alpha) for i in range(2)]
        models = [q.descend(models[i], i, more=lambda y, u=u: lam / alpha * (y - u)) for i, u in enumerate(clouds)]
    for client in range(2):
        assert q.close(q.model_of(federation, client), models[client])
    assert not any("cloud" in name for name in federation.states.load(0))
    assert (q.server_of(federation) == q.START).all() and "test_loss" not in federation.rows[-1]


def test_the_last_models_of_those_who_sit_out_count(tmp_path: Path) -> None:
    algorithm = q.method("fedamp", sigma=9.0, clients_per_round=1)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=5))
    models, seen = [q.START.astype(float)] * 2, set()
    for round in range(5):
        [i] = uniform([3, 5], 1, np.random.default_rng((1, round)))
        u = cloud(models, i, 9.0, 1.0)
        models[i] = q.descend(models[i], i, more=lambda y, u=u: y - u)
        seen.add(i)
    assert seen == {0, 1}
    assert all(q.close(q.model_of(federation, client), models[client]) for client in range(2))


def test_little_memory_mixes_fewer_clients_at_once_to_the_same_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    clients, held_out = [np.arange(2), np.arange(2, 4), np.arange(4, 6), np.arange(6, 8)], [np.arange(8, 10)] * 4
    one_client = 3 * 8 * 2 * q.DIM  # bytes: its model, the sum of the others' and their difference, in double precision
    models: dict[int, list[np.ndarray]] = {}
    reads: dict[int, int] = {}
    load = ClientStates.load
    for at_once in (1, 3, 4):
        federation = q.simulation(
            q.method("fedamp", sigma=9.0), tmp_path / str(at_once), clients=clients, held_out=held_out,
            memory=at_once * one_client,
        )  # fmt: skip
        read: list[int] = []

        def counted(states: ClientStates, client: int, read: list[int] = read) -> dict[str, Tensor]:
            read.append(client)
            return load(states, client)

        monkeypatch.setattr(ClientStates, "load", counted)
        federation.train()
        models[at_once], reads[at_once] = [q.model_of(federation, client) for client in range(4)], len(read)
    for at_once in (3, 4):
        assert all(q.close(one, many) for one, many in zip(models[1], models[at_once], strict=True))
    # In each of the two rounds the four models are read once for each lot: for four, two and one of them.
    assert reads[1] - reads[4] == 2 * 4 * 3 and reads[3] - reads[4] == 2 * 4


def test_far_clients_learn_alone(tmp_path: Path) -> None:
    # At this sigma the attention of different models is exp(-large) = 0, and each is pulled to itself only.
    federation = q.trained(q.method("fedamp", sigma=1e-4), tmp_path)
    models = [q.START.astype(float)] * 2
    for _ in range(2):
        models = [q.descend(w, i, more=lambda y, w=w: y - w) for i, w in enumerate(models)]
    assert all(q.close(q.model_of(federation, client), models[client]) for client in range(2))
