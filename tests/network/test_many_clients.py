"""Ten thousand clients, ten of which take part in a round."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from network.algorithms.fedavg import FedAvg
from network.algorithms.scaffold import Scaffold
from network.client import Turn
from network.simulation import Simulation
from tests.network.quadratic import CLIENTS, SETTINGS, START, close, descend, loss, server_of, simulation

N_CLIENTS, A_ROUND = 10_000, 10
IMAGES = [np.array([client % 8]) for client in range(N_CLIENTS)]
HELD_OUT = [np.array([8 + client % 3]) for client in range(N_CLIENTS)]


def federation(kind: type[FedAvg], folder: Path, **more: object) -> tuple[Simulation, list[list[int]]]:
    """A federation of the method, and who took part in each of its rounds."""
    rounds: list[list[int]] = []

    class Noted(kind):
        def turns(self, *args: object) -> dict[int, Turn]:
            turns = super().turns(*args)
            rounds.append(list(turns))
            return turns

    algorithm = Noted(Namespace(clients_per_round=A_ROUND))
    return simulation(algorithm, folder, clients=IMAGES, held_out=HELD_OUT, **more), rounds


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
