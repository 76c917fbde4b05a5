"""Peak memory against the number of clients, of which ten take part in a round.

    python -m benchmarks.memory          (two minutes on one core)

The same 20,000 images are assigned to 10, 100, 1,000 and 10,000 clients, and each federation is a process of its
own. At the start every client has a state already, as if all had taken part before, so that the states of 10,000
clients are many times what a process may hold of them; the rest lies on the disk. Where both are possible, a run that
holds all of them must end with the same loss.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from benchmarks.agreement import check_values
from benchmarks.peer_processes.federation import Federation
from benchmarks.peer_processes.ours import Arrays, WithEmbedding
from benchmarks.tables import print_table
from network.algorithms import ALGORITHMS
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.state import add_prefix
from network.sampling import ClientSampling
from network.settings import LocalSettings, SimulationSettings
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script
from utils.runs import Run

METHODS = {"fedavg": 5, "scaffold": 5, "fedamp": 1}  # rounds; in each FedAMP reads the models of all clients
CLIENTS_A_ROUND, BOUND = 10, 16 << 20
_IMAGES, _HELD_OUT = 20_000, 1000


def server_state_kept(method: str, server: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a client of the method keeps between rounds, as it would be after a round that changed nothing."""
    weights = {name: tensor for name, tensor in server.items() if not name.startswith("control.")}
    return {
        "fedavg": {},
        "scaffold": add_prefix("control", {name: torch.zeros_like(tensor) for name, tensor in weights.items()}),
        "fedamp": add_prefix("own", weights),
    }[method]


def federation_of(method: str, n_clients: int, bound: int, folder: Path) -> Simulation:
    """The federation, all of whose clients have a state."""
    federation = Federation("dense", n_clients=1, n_steps=1, batch_size=_IMAGES + _HELD_OUT, lr=0.05)
    data = Arrays(federation)
    train, data.test = np.split(data.test, [_IMAGES])
    settings = LocalSettings(
        batch_size=10,
        sgd_per_epoch=5,
        epoch_per_round=1,
        n_rounds=METHODS[method],
        init_lr=federation.lr,
        momentum=0.0,
        lr_schedule="none",
        lr_decay_rate=1.0,
        no_improvement_tolerance=1,
    )
    clients, held_out = np.array_split(train, n_clients), np.array_split(data.test, n_clients)
    federated = FederatedData(data, clients, held_out, np.zeros(len(data.labels), np.int64))
    sampling = ClientSampling(clients_per_round=CLIENTS_A_ROUND)
    how = SimulationSettings(rand_seed=0, memory=bound)
    model = WithEmbedding(federation.initial_model())
    config = FederationConfig(ALGORITHMS[method](), settings, how, sampling)
    simulation = Simulation(model, federated, config, Accelerator(cpu=True), Run(folder))
    for client in range(n_clients):
        simulation.states.save(client, server_state_kept(method, simulation.server))
    return simulation


def measure(method: str, n_clients: int, bound: int) -> dict[str, float]:
    """What this process finds: its peak memory in bytes, the size of all states, the seconds of training, the loss."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        simulation = federation_of(method, n_clients, bound, Path(folder))
        row = simulation.train()[-1]
        states = sum(tensor.nbytes for tensor in server_state_kept(method, simulation.server).values()) * n_clients
        return {
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "states": states,
            "seconds": row["seconds"],
            "loss": row.get("test_loss", row.get("personal_train_loss_mean")),
        }


def elsewhere(method: str, n_clients: int, bound: int = BOUND) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--measure", method, str(n_clients), str(bound)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    return json.loads(done.stdout.splitlines()[-1])


def rows(method: str, numbers: list[int]) -> list[dict[str, object]]:
    """A method's rows of the table, one for each number of clients."""
    measured = {n_clients: elsewhere(method, n_clients) for n_clients in numbers}
    if method != "fedavg":
        largest = max(n for n in numbers if n <= 1000)  # few enough to hold all their states, too
        check_values(f"{method}: loss", measured[largest]["loss"], elsewhere(method, largest, 1 << 40)["loss"], 1e-6)
    return [
        {
            "method": method,
            "clients": f"{n_clients:,}",
            "all states, MiB": f"{values['states'] / 2**20:.1f}",
            "peak memory, MiB": f"{values['peak'] / 2**20:.0f}",
            "growth, MiB": f"{(values['peak'] - measured[numbers[0]]['peak']) / 2**20:+.0f}",
            f"over {numbers[0]} clients": f"{values['peak'] / measured[numbers[0]]['peak']:.3f}",
            "a round, s": f"{values['seconds']:.2f}",
        }
        for n_clients, values in measured.items()
    ]


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="which")
    parser.add_argument("--clients", nargs="+", type=POSITIVE_INT, default=[10, 100, 1000, 10_000], help="how many")
    parser.add_argument("--measure", nargs=3, metavar=("METHOD", "CLIENTS", "BYTES"), help="one federation, as JSON")
    args = parser.parse_args()
    if args.measure:
        method, *numbers = args.measure
        print(json.dumps(measure(method, *map(int, numbers))))
        return
    table = [row for method in args.methods for row in rows(method, args.clients)]
    print_table(f"{CLIENTS_A_ROUND} clients per round, {BOUND >> 20} MiB of states held at most", table)


if __name__ == "__main__":
    run_script(main)
