"""FedAMP on quadratics: attention, cloud models and personal models by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from network.engine.state import ClientStates
from network.sampling import uniform
from tests.network import quadratic as q
from utils.streams import generator


def cloud(models: list[np.ndarray], i: int, sigma: float, alpha: float) -> tuple[np.ndarray, bool]:
    """u_i, with the others' weights scaled down to 1 together where they come to more, and whether that was so."""
    distances = np.array([((models[i] - other) ** 2).sum() for other in models])
    weights = alpha / sigma * np.exp(-distances / sigma)  # alpha A'(x) of A(x) = 1 - exp(-x / sigma)
    weights[i] = 0.0
    capped = weights.sum() > 1
    weights /= max(1.0, weights.sum())
    weights[i] = 1.0 - weights.sum()
    return np.tensordot(weights, models, 1), bool(capped)


@pytest.mark.parametrize(
    "sigma, alpha, lam, ever_capped",
    [(5.0, 1.0, 1.0, False), (1.0, 2.0, 0.5, True), (2.0, 0.3, 2.0, False), (3.0, None, 1.0, False),
     (8.0, 10.0, 0.2, True)],
)  # fmt: skip
def test_three_rounds_by_hand(tmp_path: Path, sigma: float, alpha: float | None, lam: float, ever_capped: bool) -> None:
    algorithm = q.method("fedamp", sigma=sigma, alpha_k=alpha, lam=lam)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=3))
    models, capped = [q.START.astype(float)] * 2, 0
    for _ in range(3):
        clouds, beyond = zip(*(cloud(models, i, sigma, alpha or sigma / 2) for i in range(2)), strict=True)
        capped += sum(beyond)
        models = [q.descend(models[i], i, more=lambda y, u=u: lam * (y - u)) for i, u in enumerate(clouds)]
    for client in range(2):
        assert q.close(q.model_of(federation, client), models[client])
    assert not any("cloud" in name for name in federation.states.load(0))
    assert (q.server_of(federation) == q.START).all() and "test_loss" not in federation.rows[-1]
    assert (0 < capped < 6) is ever_capped
    scaled_down = [line for line in algorithm.notes(federation.rows) if "scaled down" in line]
    assert len(scaled_down) == ever_capped and all(f"{capped} of 6 client-rounds" in line for line in scaled_down)


def test_the_last_models_of_those_who_sit_out_count(tmp_path: Path) -> None:
    algorithm = q.method("fedamp", sigma=9.0)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=5), clients_per_round=1)
    models, seen = [q.START.astype(float)] * 2, set()
    for round in range(5):
        [i] = uniform([3, 5], 1, generator("clients", 1, round))
        u, _ = cloud(models, i, 9.0, 9.0 / 2)
        models[i] = q.descend(models[i], i, more=lambda y, u=u: y - u)
        seen.add(i)
    assert seen == {0, 1}
    assert all(q.close(q.model_of(federation, client), models[client]) for client in range(2))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(-8, 8))
def test_weights_follow_similarity_at_any_scale_of_the_models(seed: int, n_clients: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    models = 10.0**scale * rng.normal(size=(n_clients, 3))
    distances = ((models[:, None] - models) ** 2).sum(2)
    clients = sorted(rng.choice(n_clients, rng.integers(1, n_clients + 1), replace=False).tolist())
    weights, told = q.method("fedamp").attention(torch.from_numpy(distances[clients]), clients)
    assert torch.allclose(weights.sum(1), torch.ones(len(clients), dtype=torch.float64))
    assert told["clients_capped"] == 0 and told["clients_mixed"] == len(clients)
    sigma = distances[clients].sum() / (len(clients) * (n_clients - 1))
    for row, i in zip(weights.numpy(), clients, strict=True):
        others = [j for j in range(n_clients) if j != i]
        # No other counts more than in a plain mean; and the nearer, the more, by the ratio that the paper's A' gives.
        assert 1 / n_clients <= row[i] < 1 and (row[others] <= 1 / n_clients).all()
        assert np.allclose(n_clients * row[others], np.exp(-distances[i, others] / sigma))


def test_models_that_are_all_the_same_are_mixed_evenly() -> None:
    weights, told = q.method("fedamp").attention(torch.zeros(2, 5, dtype=torch.float64), [1, 3])
    assert torch.allclose(weights, torch.full((2, 5), 0.2, dtype=torch.float64))
    assert told == {"squared_distance": 0.0, "own_weight": pytest.approx(0.2), "clients_mixed": 2, "clients_capped": 0}


def test_little_memory_mixes_fewer_clients_at_once_to_the_same_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, held_out = [np.arange(2), np.arange(2, 4), np.arange(4, 6), np.arange(6, 8)], [np.arange(8, 10)] * 4
    one_client = 2 * 8 * 2 * q.DIM  # bytes: its model and the difference from another, in double precision
    models: dict[int, list[np.ndarray]] = {}
    reads: dict[int, int] = {}
    load = ClientStates.load
    for at_once in (1, 3, 4):
        federation = q.simulation(
            q.method("fedamp", sigma=9.0),
            tmp_path / str(at_once),
            clients=clients,
            held_out=held_out,
            memory=at_once * one_client,
        )
        read: list[int] = []

        def counted(states: ClientStates, client: int, read: list[int] = read) -> dict[str, Tensor]:
            read.append(client)
            return load(states, client)

        monkeypatch.setattr(ClientStates, "load", counted)
        federation.train()
        models[at_once], reads[at_once] = [q.model_of(federation, client) for client in range(4)], len(read)
    for at_once in (3, 4):
        assert all(q.close(one, many) for one, many in zip(models[1], models[at_once], strict=True))
    # In each of the two rounds the four models are read twice for each lot, for distances and for mixtures, and the
    # first of each lot once more: there are lots of four, of three and one, and of one each.
    assert reads[1] - reads[4] == 2 * (2 * 4 + 1) * 3 and reads[3] - reads[4] == 2 * (2 * 4 + 1)


def test_far_clients_learn_alone(tmp_path: Path) -> None:
    # At this sigma the attention of different models is exp(-large) = 0, and each is pulled to itself only.
    federation = q.trained(q.method("fedamp", sigma=1e-4), tmp_path)
    models = [q.START.astype(float)] * 2
    for _ in range(2):
        models = [q.descend(w, i, more=lambda y, w=w: y - w) for i, w in enumerate(models)]
    assert all(q.close(q.model_of(federation, client), models[client]) for client in range(2))
