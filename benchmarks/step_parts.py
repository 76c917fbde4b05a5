"""Where a local step's time goes: the bare step, with what clients need beside it added one by one, and ours.

    python -m benchmarks.step_parts          (some minutes on one core)

The model is `conv` of `benchmarks/peers.py`. Every way takes the steps of one client in turn with the others, on one
thread, and its time is the thread's, so that other work counts little.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.peer_processes.ours import simulation_of
from benchmarks.peers import CASES
from benchmarks.tables import middle, print_table
from losses import LOSSES
from network.engine.simulation import Simulation
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

_Batches = Callable[[], Iterator[tuple[Tensor, Tensor, Tensor]]]


def ways_of(simulation: Simulation, lr: float) -> dict[str, Callable[[], object]]:
    """The steps of client 0's round: plain memory order, as ours has it, with parts of ours, and ours."""
    data, cohort = simulation.data.images, {0: simulation.cohort(0)[0]}
    size = simulation.config.local.batch_size
    plan = list(cohort[0].images.reshape(-1, size))
    cut = [(batch.images.clone(), batch.target.clone(), batch.valid.clone()) for _, batch in data.batches(plan)]
    plain = [(images.contiguous(), *others) for images, *others in cut]

    def gathered() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches that are taken from all images when they are needed."""
        return ((batch.images, batch.target, batch.valid) for _, batch in data.batches(plan))

    def steps(batches: _Batches, per_example: bool, order: torch.memory_format) -> Callable[[], None]:
        """Bare steps, with a loss per example that knows what counts, or with one for the batch."""
        model = copy.deepcopy(simulation.model.classifier).to(memory_format=order)

        def go() -> None:
            """The steps of a round."""
            optimizer = torch.optim.SGD(model.parameters(), lr=lr, fused=True)
            for images, target, valid in batches():
                optimizer.zero_grad(set_to_none=True)
                output = model(images)
                if per_example:
                    LOSSES["cross_entropy"](output, target, valid).mean().backward()
                else:
                    F.cross_entropy(output, target).backward()
                optimizer.step()

        return go

    last = torch.channels_last
    return {
        "bare, plain memory order": steps(lambda: iter(plain), False, torch.contiguous_format),
        "bare": steps(lambda: iter(cut), False, last),
        "and batches gathered": steps(gathered, False, last),
        "and a loss per example, masked": steps(gathered, True, last),
        "ours": lambda: list(simulation.trainer.train(cohort, simulation.server, 0)),
    }


def measure(turns: int, n_steps: int) -> dict[str, np.ndarray]:
    """Each way's milliseconds a step in each turn, (turns,)."""
    federation = replace(CASES["conv"], n_clients=4, n_steps=n_steps, at_once=1)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulation_of(federation, Path(folder))
        simulation.resolve_vectorisation()
        torch.set_num_threads(1)
        ways = ways_of(simulation, federation.lr)
        taken = [{name: seconds_of(way) for name, way in ways.items()} for _ in range(turns + 1)][1:]
    return {name: 1e3 * np.array([turn[name] for turn in taken]) / n_steps for name in ways}


def seconds_of(call: Callable[[], object]) -> float:
    """Seconds of this thread."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument(
        "--repeats", type=POSITIVE_INT, default=30, help="turns of each way, beside one that does not count"
    )
    parser.add_argument("--steps", type=POSITIVE_INT, default=20, help="of the client in a turn")
    args = parser.parse_args()
    measured = measure(args.repeats, args.steps)
    rows = [
        {
            "steps": name,
            "ms a step": middle(taken, 2),
            "more than bare, ms": middle(taken - measured["bare"], 2),
            "over bare": middle(taken / measured["bare"], 3),
        }
        for name, taken in measured.items()
    ]
    print_table(f"conv, one thread, its processor time, median (min to max) of {args.repeats} turns", rows)


if __name__ == "__main__":
    run_script(main)
