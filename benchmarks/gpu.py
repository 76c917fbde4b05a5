"""What this project does on a GPU, for a machine that has one for a short time: what matters most first.

    python -m benchmarks.gpu --minutes 6                              (one GPU; results in results/gpu)
    python -m benchmarks.gpu --minutes 2 --device cpu --small         (a trial of the command itself)

Nothing is downloaded: images are noise, weights are random. Each result is on the disk as soon as it is there, a line
in `results.jsonl` and a row of the table in `rows.md`, which is that of docs/speed_and_many_machines.md. A piece is a
process of its own, so that one that fails or takes too long costs only its own results; called again, the command goes
on with the pieces that are not done. `scripts/wheels.py` makes a folder of the packages that such a machine lacks.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torchvision

from benchmarks.on_gpu import against_cpu, decoding, programs, rates
from benchmarks.on_gpu.measures import Measure, NotHere, Result, Results, Setup
from benchmarks.processes import elsewhere, end, forked
from utils.args import POSITIVE, Parser
from utils.errors import UserError, explained, run_script


@dataclass(frozen=True)
class Piece:
    """Rows that are measured together; `whole` is one that starts programs, too long for a trial of all."""

    run: Callable[[Setup], Iterator[Result]]
    is_large: bool = False


PIECES = {
    **{network: Piece(partial(against_cpu.measure, network)) for network in against_cpu.NETWORKS},
    "paper": Piece(rates.paper),
    "dense": Piece(rates.dense),
    "steps": Piece(rates.steps),
    "decoding": Piece(decoding.measure),
    "comparison": Piece(programs.comparison, is_large=True),
    "pfl": Piece(programs.pfl, is_large=True),
    "several": Piece(programs.several, is_large=True),
}


def measures() -> list[Measure]:
    """The rows of the table."""
    of_rates = [*rates.paper_measures(), *rates.dense_measures(), *rates.step_measures()]
    of_programs = [*programs.comparison_measures(), *programs.pfl_measures(), *programs.several_measures()]
    return [*against_cpu.measures(), *of_rates, *decoding.measures(), *of_programs]


def machine(device: str) -> dict[str, object]:
    """What a reader of the results wants to know of the machine; in a process of its own, as all that uses the GPU."""
    machine_info: dict[str, object] = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    machine_info |= {
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
    }
    if device == "cuda" and torch.cuda.is_available():
        machine_info["gpu"], machine_info["gpus"] = torch.cuda.get_device_name(), torch.cuda.device_count()
        machine_info |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return machine_info


def take(name: str, setup: Setup, results: Results) -> None:
    """A piece, in this process, which exits with what there is to say of it."""
    start = time.monotonic()
    try:
        for result in PIECES[name].run(setup):
            print(results.add(name, result), flush=True)
        outcome = "done"
    except NotHere as error:
        outcome = f"left out: {error}"
    except Exception as error:
        outcome = f"failed: {explained(error) or repr(error)}"
    results.end(name, outcome, time.monotonic() - start)


def run(names: Sequence[str], setup: Setup, results: Results, minutes: float) -> dict[str, str]:
    """The pieces one after the other; how each of them has ended."""
    deadline, outcomes = time.monotonic() + 60 * minutes, {}
    for name in names:
        start = time.monotonic()
        if start >= deadline:
            outcomes[name] = "not begun: time was up"
            continue
        process = forked(take, name, setup, results)
        try:
            process.join(deadline - start)
        finally:
            late = process.is_alive()
            end(process)
        if late or process.exitcode:
            outcome = "cut off: time was up" if late else f"failed: it ended with {process.exitcode}"
            results.end(name, outcome, time.monotonic() - start)
        outcomes[name] = results.outcome(name)
    return outcomes


def main() -> None:
    """Measure, and print the table; exit code 1 if a piece has failed or the GPU computes something else."""
    parser = Parser(__doc__.split("\n")[0])
    add = parser.add_argument
    add("--minutes", type=POSITIVE, default=6.0, help="when to stop, whatever is left")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="where to compute")
    add("--pieces", nargs="+", choices=PIECES, help="which; default: all, at the small size those of no program")
    add("--output_path", type=Path, default=Path("results/gpu"), help="folder of the results")
    parser.add_flag("--small", False, "a trial, with sizes at which numbers mean nothing")
    args = parser.parse_args()
    setup = Setup(args.device, args.small, args.output_path)
    machine_info = elsewhere(machine, args.device)
    if args.device == "cuda" and "gpu" not in machine_info:
        raise UserError("PyTorch finds no GPU here; try the command itself by --device cpu --small")
    results = Results(args.output_path, measures())
    pieces = args.pieces or [name for name, piece in PIECES.items() if not (args.small and piece.is_large)]
    names = [name for name in pieces if name not in results.done()]
    results.details(machine_info)
    outcomes = run(names, setup, results, args.minutes)
    print(f"\n{results.table()}\n")
    for name, outcome in outcomes.items():
        if outcome != "done":
            print(f"{name}: {outcome}")
    wrong = {row.name for row in against_cpu.measures()}.intersection(results.missed())
    if wrong or any(outcome.startswith("failed") for outcome in outcomes.values()):
        sys.exit(1)


if __name__ == "__main__":
    run_script(main)
