"""Rounds a second with one process and several, as `accelerate launch` starts them; or rounds of very many clients.

    python -m benchmarks.scaling                        (three minutes on two CPU cores)
    python -m benchmarks.scaling --processes 1 2 4 8
    python -m benchmarks.scaling --use_accelerator      (a GPU for each process, where there are as many)
    python -m benchmarks.scaling --clients 1000000      (some minutes on one core)

The federation over processes, with one thread each, is that of `benchmarks/bare_loop.py`. The number of processes must
not change the metrics. For that of very many clients see `benchmarks/many_clients.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from benchmarks.agreement import check_values
from benchmarks.bare_loop import SCALES
from benchmarks.generated import simulation_of
from benchmarks.many_clients import A_ROUND, IMAGES_A_CLIENT, table
from benchmarks.processes import several
from benchmarks.tables import middle, print_table
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script

ROOT = Path(__file__).parent.parent


def measure(scale: str, n_rounds: int, accelerator: Accelerator) -> list[dict[str, float]]:
    """This process's part of a federation; the metrics of all rounds."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return simulation_of(SCALES[scale], n_rounds, accelerator, Path(folder)).train()


def launched(scale: str, n_processes: int, n_rounds: int, on_gpus: bool = False) -> list[dict[str, float]]:
    """The metrics of a federation over so many processes."""
    words = f"-m benchmarks.scaling --scale {scale} --measure {n_rounds} --use_accelerator {on_gpus}"
    command = [*several(n_processes), *words.split()]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{n_processes} processes: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))


def check(n_processes: int, rows: list[dict[str, float]], alone: list[dict[str, float]]) -> None:
    """AssertionError if a metric of the last round is not that of a single process."""
    for column, value in alone[-1].items():
        if column != "seconds" and not np.isnan(value):
            check_values(f"{n_processes} processes: {column}", rows[-1][column], value, 1e-4)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--processes", nargs="+", type=POSITIVE_INT, default=[1, 2], help="how many; 1 comes first")
    parser.add_argument("--scale", choices=SCALES, default="builtin", help="how large the federation is")
    parser.add_argument("--clients", nargs="+", type=POSITIVE_INT, help="how many instead, in one process")
    parser.add_argument("--rounds", type=POSITIVE_INT, help="of each run, first included; default: 6, of clients 11")
    parser.add_argument("--repeats", type=POSITIVE_INT, default=3, help="runs of each number of processes")
    parser.add_argument("--measure", type=POSITIVE_INT, metavar="ROUNDS", help="this process's part, as JSON")
    parser.add_flag("--use_accelerator", False, "compute on GPUs, one for each process")
    args = parser.parse_args()
    if args.measure:
        accelerator = Accelerator(cpu=not args.use_accelerator)
        rows = measure(args.scale, args.measure, accelerator)
        if accelerator.is_main_process:
            print(json.dumps(rows))
        return
    if args.clients:
        caption = (
            f"{IMAGES_A_CLIENT} images a client, {A_ROUND} clients a round, one core, median (min to max) of rounds"
        )
        print_table(caption, table(args.clients, args.rounds or 11))
        return
    processes_table(args.scale, args.processes, args.rounds or 6, args.repeats, args.use_accelerator)


def processes_table(scale: str, processes: Sequence[int], n_rounds: int, repeats: int, on_gpus: bool) -> None:
    """Print rounds a second by the number of processes."""
    speeds: dict[int, list[float]] = {n_processes: [] for n_processes in processes}
    for _ in range(repeats):
        alone: list[dict[str, float]] = []
        for n_processes in processes:
            rows = launched(scale, n_processes, n_rounds, on_gpus)
            alone = alone or rows
            check(n_processes, rows, alone)
            speeds[n_processes].append(1 / np.median([row["seconds"] for row in rows[2:]]))
    shown = []
    for n_processes, of_repeat in speeds.items():
        faster = np.array(of_repeat) / speeds[processes[0]]
        shown.append(
            {
                "processes": n_processes,
                "rounds a second": middle(of_repeat, 2),
                f"over {processes[0]}": middle(faster, 2),
                "efficiency": middle(faster * processes[0] / n_processes, 2),
            }
        )
    where = f"{torch.cuda.device_count()} GPUs" if on_gpus else f"{len(os.sched_getaffinity(0))} cores"
    print_table(f"{scale}, {where}, a thread per process, median (min to max) of {repeats} runs", shown)


if __name__ == "__main__":
    run_script(main)
