"""The same federation by this project, by Apple's pfl, by BlazeFL and by Flower's simulation engines.

    python -m benchmarks.peers          (about six minutes; systems that are not installed are left out)
    python -m benchmarks.peers --blazefl_python ENVIRONMENT/bin/python      (BlazeFL needs Python 3.14, others do not)

Every system runs in processes of its own, in turn with the others. All have the same model, clients, batches in the
same order, plain SGD and equal weights, and must end with the weights of the plain loop. With one core, each is one
process with one thread (Flower one actor, beside its server); with two, ours is two processes of `accelerate launch`,
pfl two of `torchrun`, Flower two actors, BlazeFL two threads.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.agreement import check_values, check_weights
from benchmarks.peer_processes.federation import Federation, arrays_of
from benchmarks.processes import several
from benchmarks.tables import middle, print_table
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script

ROOT = Path(__file__).parent.parent
PROCESSES = ROOT / "benchmarks" / "peer_processes"
BLAZEFL = "BlazeFL"
# The program that runs each system, and the package that it needs.
SYSTEMS = {
    "bare steps": ("plain.py", "torch"),
    "ours": ("ours.py", "torch"),
    "pfl": ("apple_pfl.py", "pfl"),
    BLAZEFL: ("blaze_fl.py", "blazefl"),
    "Flower": ("flower.py", "ray"),
    "Flower, legacy": ("flower_legacy.py", "ray"),
}
CASES = {
    "dense": Federation("dense", n_clients=50, n_steps=10, batch_size=10, lr=0.05),
    "conv": Federation("conv", n_clients=10, n_steps=20, batch_size=16, lr=0.05),
    "large_conv": Federation("large_conv", n_clients=10, n_steps=5, batch_size=16, lr=0.05),
}
_TOLERANCE = 1e-3
_PATIENCE = 180.0  # seconds that a system may take to start, and for its rounds


def command_of(name: str, federation: Federation, python: str = sys.executable) -> list[str]:
    """What starts a system by this Python, without its arguments; ours always runs by the benchmark's own."""
    program, _ = SYSTEMS[name]
    if name == "ours":
        return [*several(federation.cores), "-m", f"benchmarks.peer_processes.{program[:-3]}"]
    if name == "pfl" and federation.cores > 1:
        torchrun = f"-m torch.distributed.run --standalone --nproc_per_node {federation.cores}"
        return [python, *torchrun.split(), str(PROCESSES / program)]
    return [python, str(PROCESSES / program)]


class System:
    """One system at work in its processes, which `with` ends."""

    def __init__(self, name: str, federation: Federation, folder: Path, python: str = sys.executable) -> None:
        program, self._over = SYSTEMS[name][0], False
        self.name, self._weights, self._log = name, folder / f"{program}.npz", folder / f"{program}.log"
        ours = name == "ours"  # which imports from the repository root, while a peer must not see that
        environment = {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT) if ours else "",
            "PFL_PYTORCH_DEVICE": federation.device,
        }
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "TQDM_DISABLE": "1"}
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("w") as log:
            listener.bind(str(folder / program))
            listener.listen()
            listener.settimeout(1.0)
            self._process = subprocess.Popen(
                [*command_of(name, federation, python), federation.text(), str(folder / program), str(self._weights)],
                cwd=ROOT if ours else folder,
                env=os.environ | quiet | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            self._connection = self._accepted(listener)
        self._connection.settimeout(_PATIENCE)
        self._talk = self._connection.makefile("rw", buffering=1)

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """The connection that the system opens; UserError if it ends before, or takes too long."""
        for _ in range(int(_PATIENCE)):
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    break
        self._process.terminate()
        raise self._silent()

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        try:
            self._process.wait(20.0 if self._over else 0.0)  # Ray takes its time to end its processes
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()

    def rounds(self, n: int) -> list[float]:
        """Run so many rounds; the seconds of each."""
        return json.loads(self._ask(n))

    def weights(self) -> dict[str, np.ndarray]:
        """The server's model; there are no rounds after that."""
        self._ask(0)
        self._over = True
        with np.load(self._weights, allow_pickle=False) as saved:
            return dict(saved)

    def _ask(self, n: int) -> str:
        """Write a number of rounds, and wait for the answer; UserError if there is none."""
        try:
            print(n, file=self._talk)
            answer = self._talk.readline()
        except OSError as error:
            raise self._silent() from error
        if not answer:
            raise self._silent()
        return answer

    def _silent(self) -> UserError:
        """That there is no answer, with the end of the log."""
        last = " | ".join(self._log.read_text(errors="replace").splitlines()[-5:])
        return UserError(f"{self.name} does not answer: {last}")


def installed() -> list[str]:
    """The systems whose packages are there."""
    return [name for name, (_, package) in SYSTEMS.items() if importlib.util.find_spec(package)]


def run(
    federation: Federation, systems: Collection[str], repeats: int, rounds: int, blazefl_python: str = sys.executable
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Rounds in turn: the seconds per round of each system and turn, (repeats,), and the weights at the end."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pythons = {name: blazefl_python if name == BLAZEFL else sys.executable for name in systems}
        at_work = [stack.enter_context(System(name, federation, Path(folder), pythons[name])) for name in systems]
        for system in at_work:
            system.rounds(2)  # the first rounds are not counted
        turns = [{system.name: np.mean(system.rounds(rounds)) for system in at_work} for _ in range(repeats)]
        seconds = {name: np.array([turn[name] for turn in turns]) for name in systems}
        return seconds, {system.name: system.weights() for system in at_work}


def check(federation: Federation, weights: dict[str, dict[str, np.ndarray]]) -> None:
    """AssertionError if a system has not computed what the plain loop has, by weights and by loss."""
    expected, start = weights["bare steps"], arrays_of(federation.initial_model())
    losses = {}
    for name, trained in weights.items():
        check_weights(name, trained, expected, start, _TOLERANCE)
        model = federation.initial_model()
        model.load_state_dict({key: torch.from_numpy(array) for key, array in trained.items()})
        losses[name] = federation.loss(model)
        check_values(f"{name}: loss", losses[name], losses["bare steps"], _TOLERANCE)


def rows(federation: Federation, seconds: dict[str, np.ndarray]) -> list[dict[str, object]]:
    """A row of the table for each system."""
    least = seconds["bare steps"] / federation.cores
    size = sum(parameter.numel() for parameter in federation.initial_model().parameters())
    return [
        {
            "model": federation.model,
            "parameters": f"{size:,}",
            "cores": federation.cores,
            "system": name,
            "round, ms": middle(1e3 * taken, 0),
            "over the bare steps": middle(taken / least, 2),
            "overhead a client, ms": middle(1e3 * (taken - least) / federation.n_clients, 2),
            "over ours": middle(taken / seconds["ours"], 2),
        }
        for name, taken in seconds.items()
        if name != "bare steps"
    ]


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES), help="which federations")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS)[2:], help="which peers; default: those installed")
    parser.add_argument("--blazefl_python", help="the Python that has BlazeFL, 3.14 or later; default: this one")
    parser.add_argument("--cores", nargs="+", type=POSITIVE_INT, default=[1, 2], help="processes at once")
    parser.add_flag("--processor_time", False, "count processor time, so that other programs disturb less; on one core")
    parser.add_argument("--repeats", type=POSITIVE_INT, default=5, help="turns of each system")
    args = parser.parse_args()
    systems = ["bare steps", "ours", *args.systems] if args.systems else installed()
    if args.blazefl_python and BLAZEFL not in systems:
        systems.append(BLAZEFL)
    if args.processor_time and (args.cores != [1] or any(SYSTEMS[name][1] == "ray" for name in systems)):
        raise UserError("--processor_time is of one process: give --cores 1, and --systems without Flower")
    table, python = [], args.blazefl_python or sys.executable
    for model in args.models:
        for cores in args.cores:
            federation = replace(CASES[model], cores=cores, processor_time=args.processor_time)
            seconds, weights = run(federation, systems, args.repeats, 3 if model == "dense" else 1, python)
            check(federation, weights)
            table += rows(federation, seconds)
    print_table(f"rounds of all clients, median (min to max) of {args.repeats} turns", table)


if __name__ == "__main__":
    run_script(main)
