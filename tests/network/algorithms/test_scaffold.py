"""SCAFFOLD on quadratics: algorithm 1 in plain arrays, and the optimum where FedAvg stays beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from network.algorithms.scaffold import Scaffold
from network.sampling import uniform
from network.settings import SimulationSettings
from tests.network import quadratic as q
from utils.streams import generator


def by_hand(option: int, server_lr: float, rounds: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The server's model and control variate after rounds of the given clients."""
    x, c, own = q.START.astype(float), np.zeros((2, 5)), [np.zeros((2, 5)) for _ in range(2)]
    for chosen in rounds:
        weights = {i: q.SHARES[i] / q.SHARES[chosen].sum() for i in chosen}
        step, change = 0.0, 0.0
        for i in chosen:
            y = q.descend(x, i, more=lambda _, correction=c - own[i]: correction)
            new = q.gradient(x, i) if option == 1 else own[i] - c + (x - y) / (q.STEPS * q.LR)
            step = step + weights[i] * (y - x)
            change = change + q.SHARES[i] * (new - own[i])
            own[i] = new
        x, c = x + server_lr * step, c + change
    return x, c


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_rounds_by_hand(tmp_path: Path, option: int, server_lr: float) -> None:
    algorithm = q.method("scaffold", scaffold_option=option, server_lr=server_lr)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=3))
    x, c = by_hand(option, server_lr, [[0, 1]] * 3)
    assert q.close(q.server_of(federation), x)
    names = ("control.weight", "control.decoder.head.shift")
    assert q.close(np.stack([federation.server[name].numpy() for name in names]), c)


@pytest.mark.parametrize("option", [1, 2])
def test_partial_participation_by_hand(tmp_path: Path, option: int) -> None:
    algorithm = q.method("scaffold", scaffold_option=option)
    federation = q.trained(algorithm, tmp_path, replace(q.SETTINGS, n_rounds=6), clients_per_round=1)
    sizes = [len(images) for images in q.CLIENTS]
    rounds = [list(uniform(sizes, 1, generator("clients", 1, round))) for round in range(6)]
    assert {0, 1} == {client for chosen in rounds for client in chosen}
    assert q.close(q.server_of(federation), by_hand(option, 1.0, rounds)[0])


@pytest.mark.parametrize("option", [1, 2])
def test_it_reaches_the_optimum_of_heterogeneous_clients(tmp_path: Path, option: int) -> None:
    settings = replace(q.SETTINGS, sgd_per_epoch=5, init_lr=0.8)
    end = q.long_run(q.method("scaffold", scaffold_option=option), tmp_path, 50, settings)
    assert q.close(end, q.optimum(), 1e-4)


@pytest.mark.parametrize("option", [1, 2])
def test_it_reaches_the_optimum_after_clients_were_left_out(tmp_path: Path, option: int) -> None:
    # In double precision, since a wrong c would keep the end beside the optimum by an amount of any size.
    algorithm = q.spoilt("scaffold", 1, {0, 3, 4}, scaffold_option=option)
    settings = replace(q.SETTINGS, sgd_per_epoch=5, init_lr=0.8)
    end = q.long_run(algorithm, tmp_path, 80, settings, model=q.Quadratic().double(), on_nan="skip_client")
    assert np.abs(end - q.optimum()).max() < 1e-10


@pytest.mark.parametrize("sampling", ["uniform", "size"])
@pytest.mark.parametrize("option", [1, 2])
def test_c_is_the_mean_of_all_controls_whoever_is_left_out(tmp_path: Path, option: int, sampling: str) -> None:
    clients = [np.array([0]), np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7])]
    shares = np.array([1, 3, 2, 2]) / 8
    run = q.simulation(
        q.spoilt("scaffold", 1, range(1, 8, 2), scaffold_option=option),
        tmp_path,
        replace(q.SETTINGS, n_rounds=8),
        q.Quadratic().double(),
        clients=clients,
        held_out=[np.array([8])] * 4,
        on_nan="skip_client",
        clients_per_round=3,
        client_sampling=sampling,
    )
    run.train()
    for name in ("control.weight", "control.decoder.head.shift"):
        of_clients = [run.states.load(client).get(name, torch.zeros(q.DIM)).numpy() for client in range(4)]
        assert np.abs(run.server[name].numpy() - shares @ of_clients).max() < 1e-12


@pytest.mark.parametrize("momentum, schedule", [(0.8, "none"), (0.0, "cosine"), (0.8, "cosine")])
def test_option_2_is_the_mean_gradient_under_momentum_and_schedules(
    tmp_path: Path, momentum: float, schedule: str
) -> None:
    settings = replace(q.SETTINGS, momentum=momentum, lr_schedule=schedule, n_rounds=1, sgd_per_epoch=4)
    federation = q.trained(q.method("scaffold"), tmp_path, settings)
    rates = q.LR * (1 + np.cos(np.pi * np.arange(4) / 4)) / 2 if schedule == "cosine" else np.full(4, q.LR)
    c = np.zeros((2, 5))
    for client in range(2):
        y, v, weights = q.START.astype(float), 0.0, np.zeros(4)
        gradients = []
        for step, rate in enumerate(rates):
            gradients.append(q.gradient(y, client))
            v = momentum * v + gradients[-1]
            y = y - rate * v
            weights[: step + 1] += rate * momentum ** np.arange(step, -1, -1)  # of each gradient in the way so far
        c += q.SHARES[client] * np.tensordot(weights / weights.sum(), gradients, 1)
    names = ("control.weight", "control.decoder.head.shift")
    assert q.close(np.stack([federation.server[name].numpy() for name in names]), c)


@pytest.mark.parametrize("adam, option", [(False, 2), (True, 1)])
def test_with_adam_controls_are_gradients_and_not_ways(adam: bool, option: int) -> None:
    scaffold = Scaffold().bound(replace(q.SETTINGS, use_adam=adam), SimulationSettings(0))
    assert scaffold.record() == {"server_lr": 1.0, "scaffold_option": option}
