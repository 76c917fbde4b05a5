"""The federation written out plainly: what every system must compute, and the time of its bare steps alone."""

from __future__ import annotations

import sys

import torch
from federation import Federation, RoundControl, arrays_of


def main() -> None:
    """Rounds as the benchmark asks for them; their seconds are those of forward, backward and optimiser step."""
    federation = Federation.of_text(sys.argv[1])
    control = RoundControl(federation)
    model = federation.initial_model()
    server = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batches = [federation.batches(client) for client in range(federation.n_clients)]
    while control.go():
        seconds = 0.0
        mean = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in server.items()}
        for of_client in batches:
            model.load_state_dict(server)
            start = federation.now
            federation.train(model, of_client)
            seconds += federation.now - start
            for name, tensor in model.state_dict().items():
                mean[name] += tensor / federation.n_clients
        server = {name: tensor.float() for name, tensor in mean.items()}
        control.done(seconds)
    model.load_state_dict(server)
    control.finish(arrays_of(model))


if __name__ == "__main__":
    main()
