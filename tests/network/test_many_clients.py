"""Ten thousand clients and a hundred thousand, ten of which take part in a round."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from datasets.task_data import Batch
from network.algorithms.fedavg import FedAvg
from network.algorithms.scaffold import Scaffold
from network.config import FederationConfig
from network.engine.client import ClientRound
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.importance import FedIR
from network.partition.assigning import assign
from network.partition.heterogeneity import report
from network.sampling import ClientSampling
from network.settings import SimulationSettings
from tests.network.quadratic import (
    CLIENTS,
    SETTINGS,
    START,
    Quadratic,
    QuadraticData,
    close,
    descend,
    loss,
    method,
    server_of,
    simulation,
)
from utils.runs import Run

N_CLIENTS, A_ROUND = 10_000, 10
IMAGES = [np.array([client % 8]) for client in range(N_CLIENTS)]
HELD_OUT = [np.array([8 + client % 3]) for client in range(N_CLIENTS)]


def federation(kind: type[FedAvg], folder: Path, **more: object) -> tuple[Simulation, list[list[int]]]:
    """A federation of the method, and who took part in each of its rounds."""
    rounds: list[list[int]] = []

    class Noted(kind):
        def cohort(self, *args: object) -> dict[int, ClientRound]:
            cohort = super().cohort(*args)
            rounds.append(list(cohort))
            return cohort

    who = {"clients": IMAGES, "held_out": HELD_OUT, "clients_per_round": A_ROUND}
    return simulation(Noted(), folder, **who, **more), rounds


def test_rounds_are_those_of_the_clients_that_take_part(tmp_path: Path) -> None:
    run, rounds = federation(FedAvg, tmp_path)
    rows = run.train()
    x = START.astype(float)
    for chosen in rounds:
        assert len(set(chosen)) == A_ROUND and max(chosen) >= len(CLIENTS)
        x = np.mean([descend(x, IMAGES[client]) for client in chosen], axis=0)
    assert len(rounds) == SETTINGS.n_rounds and close(server_of(run), x)
    assert rows[-1]["train_loss_mean"] == pytest.approx(np.mean([loss(x, np.array([i])) for i in range(8)]), rel=1e-4)
    assert not list(tmp_path.glob("checkpoint/clients/*"))  # FedAvg's clients keep nothing


def test_states_beyond_the_memory_lie_on_the_disk(tmp_path: Path) -> None:
    run, rounds = federation(Scaffold, tmp_path, memory=200)  # of 40 bytes per client
    run.train()
    took_part = {client for chosen in rounds for client in chosen}
    own = {client: run.states.load(client) for client in took_part}
    files = tmp_path.glob("checkpoint/clients/*.safetensors")
    assert {int(path.name.split("-")[0]) for path in files} == took_part == set(own)
    # c is the mean of all c_i, and those of clients that never took part are 0.
    for name, control in run.server.items():
        if name.startswith("control."):
            mean = sum(state[name].double() for state in own.values()) / N_CLIENTS
            assert close(control.numpy(), mean.numpy(), 1e-4) and mean.abs().max() > 0


class Photographs(QuadraticData):
    """1.3 million of them, which repeat eleven."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels, self.test = torch.from_numpy(labels), np.arange(11)

    def batch(self, positions: Tensor) -> Batch:
        return super().batch(positions % 11)


def peak_of(n_users: int, folder: Path) -> int:
    """The most memory, in bytes, that it takes to assign all photographs, say how uneven that is, and train on some."""
    rng = np.random.default_rng(0)
    users, labels = rng.permutation(np.arange(1_300_000) % n_users), rng.integers(1203, size=1_300_000)
    data, sampling = Photographs(labels), ClientSampling(virtual_client_size=16, clients_per_round=A_ROUND)
    tracemalloc.start()
    partition = assign("natural", users, n_users, 1.0, 0)
    values = report(partition.client_of, labels, n_users)
    assert values["smallest_client"] == values["largest_client"] == 1_300_000 // n_users
    reweighting = FedIR(importance_reweighting="class")
    federated = FederatedData(data, partition.clients, [np.zeros(0, np.int64)] * n_users, users)
    settings = replace(SETTINGS, n_rounds=3, batch_size=8), SimulationSettings(0)
    config = FederationConfig(method("fedavgm"), *settings, sampling, reweighting)
    run = Simulation(Quadratic(), federated, config, Accelerator(cpu=True), Run(folder))
    run.resolve_vectorisation()
    for round in range(3):
        row = run._train_round(round)
        assert row["local_steps"] == 2 and np.isfinite(row["local_loss"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not close(server_of(run), START)
    return peak


def test_a_hundred_thousand_users_of_thirteen_photographs_take_the_memory_of_a_thousand(tmp_path: Path) -> None:
    few, many = peak_of(1000, tmp_path / "few"), peak_of(100_000, tmp_path / "many")
    # A client is a list's entry and an array's head; a table of clients and classes alone would have 960 MB.
    assert many - few < 100_000 * 1500 and few < 3e8
