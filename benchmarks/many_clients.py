"""A federation of very many clients of thirteen images: set-up, rounds over those of a thousand clients, and memory.

`python -m benchmarks.scaling --clients 1000000` prints the table. Each method is a process of its own, in which a
federation of a thousand clients and one of the many run rounds in turn; so its peak memory is that of both.

Images are assigned by user, a client for each, as `test_fed.py` does with natural groups: the partition, its measures
by class, the held-out images. Every image of the data has a position and a class, but its pixels are those of one of a
few thousand: what is measured is what the federation needs besides the pixels, which in a real data set of that size
lie in a memory-mapped file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from benchmarks.peer_processes.federation import Federation
from benchmarks.peer_processes.ours import Arrays, WithEmbedding
from benchmarks.tables import middle
from datasets.task_data import Batch
from network.algorithms import ALGORITHMS
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.partition.assigning import assign
from network.partition.groups import within
from network.partition.held_out import assign_held_out
from network.partition.heterogeneity import report
from network.sampling import ClientSampling
from network.settings import LocalSettings, SimulationSettings
from utils.errors import UserError
from utils.runs import Run

FEW, A_ROUND, IMAGES_A_CLIENT, EVALUATED, MEMORY = 1000, 100, 13, 100, 128 << 20
_STEPS, _POOL, _HELD_OUT = 2, 4000, 2000
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "SCAFFOLD": ("scaffold", {}),
    "FedVC": ("fedavg", {"virtual_client_size": _STEPS * IMAGES_A_CLIENT}),
}


class Pool(Arrays):
    """Training and held-out images whose pixels repeat those of a few."""

    def __init__(self, few: Federation, n_train: int, n_test: int) -> None:
        super().__init__(few)
        n = n_train + n_test
        self.labels = self.labels.repeat(-(-n // _POOL))[:n]
        self.train, self.test = np.arange(n_train), np.arange(n_train, n)

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        """Batch after batch, with its positions."""
        pixels = super().batches([at % _POOL for at in plan])
        yield from ((torch.from_numpy(at), batch) for at, (_, batch) in zip(plan, pixels, strict=True))


def assigned(data: Pool, n_clients: int) -> FederatedData:
    """The images assigned by user, after their partition's measures by class; AssertionError where sizes are others."""
    rng = np.random.default_rng(0)
    users = np.append(rng.permutation(np.arange(len(data.train)) % n_clients), rng.integers(n_clients, size=_HELD_OUT))
    partition = assign("natural", within(users, data.train), n_clients, 1.0, 0)
    uneven = report(partition.client_of, data.labels.numpy(), n_clients)
    sizes = uneven["smallest_client"], uneven["largest_client"]
    assert sizes == (IMAGES_A_CLIENT, IMAGES_A_CLIENT), f"clients of {sizes[0]} to {sizes[1]} images"
    held_out = assign_held_out(partition.clients, users, within(users, data.test), 0)
    return FederatedData(data, partition.clients, held_out, users)


def federation_of(name: str, n_clients: int, n_rounds: int, folder: Path) -> tuple[Simulation, dict[str, float]]:
    """A method's federation, before its first round, and the seconds that it took to assign and to set up."""
    few = Federation("conv", n_clients=1, n_steps=1, batch_size=_POOL, lr=0.05)
    data = Pool(few, IMAGES_A_CLIENT * n_clients, _HELD_OUT)
    start = time.perf_counter()
    federated = assigned(data, n_clients)
    half = time.perf_counter()
    method, arguments = METHODS[name]
    settings = LocalSettings(
        batch_size=IMAGES_A_CLIENT,
        sgd_per_epoch=_STEPS,
        epoch_per_round=1,
        n_rounds=n_rounds,
        init_lr=few.lr,
        momentum=0.0,
        lr_schedule="none",
        lr_decay_rate=1.0,
        no_improvement_tolerance=1,
    )
    sampling = ClientSampling(clients_per_round=A_ROUND, **arguments)
    how = SimulationSettings(rand_seed=0, evaluate_every=n_rounds, evaluate_clients=EVALUATED, memory=MEMORY)
    model = WithEmbedding(few.initial_model())
    config = FederationConfig(ALGORITHMS[method](), settings, how, sampling)
    simulation = Simulation(model, federated, config, Accelerator(cpu=True), Run(folder))
    simulation.resolve_vectorisation()
    return simulation, {"assigned": half - start, "set up": time.perf_counter() - half}


def seconds_of(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def one_round(simulation: Simulation) -> None:
    """The next round, with its checkpoint."""
    round = len(simulation.rows) - 1
    simulation._finish_round(round + 1, simulation._train_round(round))


def check(simulation: Simulation) -> None:
    """AssertionError if clients of a round have others' images, or if nothing was learnt."""
    data, cohort = simulation.data, simulation.cohort(0)
    assert len(cohort) == A_ROUND, f"{len(cohort)} clients in a round"
    for client, client_round in cohort.items():
        assert (data.groups[client_round.images] == client).all(), f"client {client} has images of others"
    first, last = (simulation.rows[i]["test_loss"] for i in (0, -1))
    assert last < first, f"a loss of {first:.4f} before training, and of {last:.4f} after it"


def measure(name: str, n_clients: int, n_rounds: int) -> dict[str, Any]:
    """What this process finds with few clients and with many, in seconds and, for both together, bytes."""
    torch.set_num_threads(1)
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        simulations = {}
        for n in (FEW, n_clients):
            simulations[n], taken = federation_of(name, n, n_rounds, Path(folder, str(n)))
            measured[str(n)] = {**taken, "rounds": []}
        for n, simulation in simulations.items():
            times = measured[str(n)]
            times["evaluated"] = seconds_of(lambda of=simulation: of._finish_round(0, {"local_loss": 0.0}))
            times["drawn"] = min(seconds_of(lambda of=simulation: of.cohort(1)) for _ in range(5))
        for _ in range(n_rounds):
            for n, simulation in simulations.items():
                measured[str(n)]["rounds"].append(seconds_of(lambda of=simulation: one_round(of)))
        for simulation in simulations.values():
            check(simulation)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"few": measured[str(FEW)], "many": measured[str(n_clients)], "peak": peak}


def elsewhere(name: str, n_clients: int, n_rounds: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    call = f"import json; from benchmarks.many_clients import measure; print(json.dumps(measure({name!r}, "
    command = [sys.executable, "-c", f"{call}{n_clients}, {n_rounds})))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
    if done.returncode:
        raise UserError(f"{name}, {n_clients:,} clients: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def row_of(name: str, n_clients: int, measured: Mapping[str, Any]) -> dict[str, object]:
    """A row of the table."""
    # The first round and the last one, after which models are evaluated, do not count.
    few, many = (np.array(measured[of]["rounds"][1:-1]) for of in ("few", "many"))
    return {
        "method": name,
        "clients": f"{n_clients:,}",
        "assigned, s": f"{measured['many']['assigned']:.1f}",
        "set up, s": f"{measured['many']['set up']:.1f}",
        "a draw, ms": f"{1e3 * measured['many']['drawn']:.1f}",
        "a round, s": middle(many, 2),
        f"over {FEW:,} clients": middle(many / few, 2),
        "median over median": f"{np.median(many) / np.median(few):.2f}",
        f"{EVALUATED} clients evaluated, s": f"{measured['many']['evaluated']:.1f}",
        "peak memory, MiB": f"{measured['peak'] / 2**20:,.0f}",
    }


def table(numbers: list[int], n_rounds: int) -> list[dict[str, object]]:
    """A row for each method and number of clients."""
    return [row_of(name, n, elsewhere(name, n, n_rounds)) for n in numbers for name in METHODS]
