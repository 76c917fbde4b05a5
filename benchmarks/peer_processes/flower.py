"""The federation by Flower's Simulation Runtime: messages, `FedAvg` of `flwr.serverapp`, clients in Ray actors.

It is the engine that `flwr run` starts, and the rounds are those of `Strategy.start` without its evaluation. The server
looks for replies every millisecond instead of every tenth of a second, which favours Flower.
"""

from __future__ import annotations

import os
import sys

from federation import Federation, RoundControl
from flower_client import SPECIFICATION, app
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

server = ServerApp()
RAY = {"include_dashboard": False, "object_store_memory": 200 << 20}


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds as the benchmark asks for them."""
    federation = Federation.of_text(sys.argv[1])
    control = RoundControl(federation)
    strategy, round = FedAvg(fraction_evaluate=0.0), 0
    grid.pull_interval = 1e-3
    arrays = ArrayRecord(federation.initial_model().state_dict())
    while control.go():
        round += 1
        replies = grid.send_and_receive(strategy.configure_train(round, arrays, ConfigRecord(), grid), timeout=600)
        mean, _ = strategy.aggregate_train(round, replies)
        arrays = mean or arrays
        control.done()
    control.finish({name: array.numpy() for name, array in arrays.items()})


if __name__ == "__main__":
    federation = Federation.of_text(sys.argv[1])
    os.environ[SPECIFICATION] = sys.argv[1]
    run_simulation(
        server,
        app,
        federation.n_clients,
        backend_config={
            "init_args": RAY | {"num_cpus": federation.cores},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
