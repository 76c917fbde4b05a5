"""The federation by Flower's engine before the present one, `start_simulation`, with `FedAvg` of `flwr.server`."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from federation import Federation, RoundControl, arrays_of
from flower import RAY
from flower_client import SPECIFICATION, client_fn
from flwr.common import Parameters, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import start_simulation


class ControlledRounds(FedAvg):
    """Waits for the benchmark before each round, and tells it the time after."""

    def __init__(self, control: RoundControl, first: dict[str, np.ndarray], n_clients: int) -> None:
        parameters = ndarrays_to_parameters(list(first.values()))
        super().__init__(fraction_evaluate=0.0, min_available_clients=n_clients, initial_parameters=parameters)
        self.control, self.names = control, list(first)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> list:
        """Before a round; ends the process after the last one."""
        if not self.control.go():
            self.control.finish(dict(zip(self.names, parameters_to_ndarrays(parameters), strict=True)))
            sys.exit()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: list, failures: list) -> tuple:
        """After a round."""
        mean = super().aggregate_fit(server_round, results, failures)
        self.control.done()
        return mean


def main() -> None:
    """Rounds as the benchmark asks for them."""
    federation = Federation.of_text(sys.argv[1])
    control = RoundControl(federation)
    os.environ[SPECIFICATION] = sys.argv[1]
    strategy = ControlledRounds(control, arrays_of(federation.initial_model()), federation.n_clients)
    start_simulation(
        client_fn=client_fn,
        num_clients=federation.n_clients,
        strategy=strategy,
        client_resources={"num_cpus": 1, "num_gpus": 0.0},
        config=ServerConfig(num_rounds=10**9),
        ray_init_args=RAY
        | {"num_cpus": federation.cores, "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}},
    )


if __name__ == "__main__":
    main()
