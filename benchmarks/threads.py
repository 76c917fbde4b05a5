"""What a step costs alone and beside other runs, by how many threads compute it and how they wait for each other.

    python -m benchmarks.threads                          (ten minutes on two CPU cores)

"All, spinning" is what PyTorch does by itself; "by size, asleep" is what the scripts do (`models/networks/threads.py`,
`utils/__init__.py`). Runs are processes of their own, because the runtime of threads reads how they wait when it is
loaded. Those beside a run are of its kind, and all are measured: the federation of all is the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from benchmarks.agreement import check_values
from benchmarks.generated import Scale, simulation_of
from benchmarks.tables import middle, print_table
from network.engine.trainer import LOSS
from utils.args import POSITIVE_INT, Parser, number
from utils.errors import UserError, run_script

ROOT = Path(__file__).parent.parent
SCALES = {
    "smallest": Scale("tiny", 16, "group", n_clients=2, n_steps=2, batch_size=4, images_a_client=8),  # for trying out
    "builtin": Scale("tiny", 32, "group", n_clients=2, n_steps=10),
    "conv64": Scale("tiny", 64, "group", n_clients=1, n_steps=10),
    "conv128": Scale("tiny", 128, "group", n_clients=1, n_steps=5, images_a_client=16),
}
# How waiting threads are asked for: 300,000 turns and then to sleep is what the runtime (libgomp) does by itself.
WAITING = {"spinning": {"GOMP_SPINCOUNT": "300000"}, "asleep": {"OMP_WAIT_POLICY": "PASSIVE"}}
WAYS = (("all", "spinning"), ("all", "asleep"), ("by size", "asleep"))  # the last one is the scripts'
Key = tuple[int, tuple[str, str]]  # the number of others, and the way
ClientRound = list[dict[str, Any]]  # what each of those at work found
_ROUNDS = 1000  # more than are ever run: the learning rate's schedule needs a number


@dataclass(frozen=True)
class Federation:
    """A federation in a process of its own, which waits to be told how many rounds to run."""

    process: subprocess.Popen

    @classmethod
    def start(cls, scale: str, threads: str, waiting: str) -> Federation:
        """Start it."""
        command = f"-m benchmarks.threads --scale {scale} --serve {threads == 'all'}"
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        return cls(
            subprocess.Popen(
                [sys.executable, *command.split()],
                cwd=ROOT,
                env=environment | WAITING[waiting],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )

    def tell(self, n_rounds: int) -> None:
        """Let it run so many rounds."""
        print(n_rounds, file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """What it measured."""
        line = self.process.stdout.readline()
        if not line:
            raise UserError("a federation ended; its messages are above")
        return json.loads(line)

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def serve(scale: Scale, every: bool) -> None:
    """Be such a process: for each number of rounds from the input, print milliseconds a step and the last loss."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulation_of(scale, _ROUNDS, Accelerator(cpu=True), Path(folder))
        if every:
            simulation.trainer.vectorisation["threads"] = torch.get_num_threads()
        simulation.resolve_vectorisation()
        done = 0
        for line in sys.stdin:
            wall, work = time.perf_counter(), time.process_time()
            for _ in range(int(line)):
                loss = simulation._train_round(done)[LOSS]
                done += 1
            n_steps = int(line) * scale.n_clients * scale.n_steps
            answer = {"threads": torch.get_num_threads(), "rounds": done, "loss": loss}
            answer["wall"] = 1e3 * (time.perf_counter() - wall) / n_steps
            answer["work"] = 1e3 * (time.process_time() - work) / n_steps
            print(json.dumps(answer), flush=True)


def turn(federations: Sequence[Federation], n_rounds: int) -> ClientRound:
    """What federations find that run at once."""
    for federation in federations:
        federation.tell(n_rounds)
    return [federation.answer() for federation in federations]


def run(scale: str, numbers: Sequence[int], repeats: int, n_rounds: int) -> dict[Key, list[ClientRound]]:
    """The turns of each way with each number of others; AssertionError if two have not computed the same."""
    rounds: dict[Key, list[ClientRound]] = {key: [] for key in product(numbers, WAYS)}
    losses: dict[int, float] = {}
    with ExitStack() as stack:
        at_work = {
            way: [stack.enter_context(Federation.start(scale, *way)) for _ in range(max(numbers) + 1)] for way in WAYS
        }
        for federations in at_work.values():
            turn(federations, 1)  # not counted
        for n, way in [key for _ in range(repeats) for key in rounds]:
            rounds[n, way].append(turn(at_work[way][: n + 1], n_rounds))
            for each in rounds[n, way][-1]:
                expected = losses.setdefault(each["rounds"], each["loss"])
                check_values(f"{', '.join(way)}: loss of round {each['rounds']}", each["loss"], expected, 1e-3)
    return rounds


def rows(scale: str, rounds: dict[Key, list[ClientRound]]) -> list[dict[str, object]]:
    """The rows of a scale."""
    mean = {
        key: {
            kind: np.array([np.mean([kind_times[kind] for kind_times in turn]) for turn in turns])
            for kind in ("wall", "work")
        }
        for key, turns in rounds.items()
    }
    return [
        {
            "scale": scale,
            "others": n,
            "threads": f"{way[0]}: {turns[0][0]['threads']}",
            "waiting": way[1],
            "ms a step": middle(mean[n, way]["wall"], 1),
            "processor time, ms": middle(mean[n, way]["work"], 1),
            "times as fast": middle(mean[n, WAYS[0]]["wall"] / mean[n, way]["wall"], 2),
        }
        for (n, way), turns in rounds.items()
    ]


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    add = parser.add_argument
    add("--scale", nargs="+", choices=SCALES, default=["builtin", "conv64", "conv128"], help="how large a step is")
    add("--others", nargs="+", type=number(int, least=0), default=[0, 1, 3], help="runs beside the one")
    add("--repeats", type=POSITIVE_INT, default=5, help="turns of each")
    add("--rounds", type=POSITIVE_INT, default=2, help="in a turn")
    parser.add_flag("--serve", None, "be a federation, on all threads or not, that reads its commands")
    args = parser.parse_args()
    if args.serve is not None:
        serve(SCALES[args.scale[0]], args.serve)
        return
    table = [row for name in args.scale for row in rows(name, run(name, args.others, args.repeats, args.rounds))]
    cores = len(os.sched_getaffinity(0))
    print_table(f"{cores} cores, median (min to max) of {args.repeats} turns of {args.rounds} rounds", table)


if __name__ == "__main__":
    run_script(main)
