"""How many clients to train at once, measured with the machine, the model and the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from datasets.task_data import TaskData
from models.networks.threads import threads_for
from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, ClientRound, copy_into
from network.engine.local_training import LocalTraining
from network.engine.workspace import Workspace
from network.settings import LocalSettings

# Two numbers of clients are compared in at least _TURNS turns of _STEPS steps each, and in more until each has run for
# _SECONDS, so that a single disturbance does not decide.
_STEPS, _TURNS, _SECONDS = 3, 3, 0.1
_CLEARLY = 0.95  # of the time: a larger number of clients that takes more is not worth its memory
_DOUBTFUL = 0.25  # of the pairs of turns: a choice that more of them contradict is reported


@dataclass(frozen=True)
class Choice:
    """The chosen number of clients, and what it rests on.

    `least` maps each measured number to its least seconds per client and step; `contrary` maps those on which turns
    disagreed to the number of contrary turns and of all turns.
    """

    n: int
    least: dict[int, float] = field(default_factory=dict)
    contrary: dict[int, tuple[int, int]] = field(default_factory=dict)


def fastest(most: int, prepare: Callable[[int], Callable[[], float]]) -> Choice:
    """The number of clients up to `most` that takes the fewest seconds per client and step.

    The number is doubled for as long as that clearly helps, so that only one comparison is wasted, and until memory is
    exhausted. The two numbers that are compared take turns, so that other work on the machine affects both, and the
    least time of each counts.

    Args:
        most: the number of clients there are.
        prepare: sets up training of n clients; returns a function that measures a turn: seconds per client and step.
    """
    if most == 1:
        return Choice(1)
    least: dict[int, float] = {}
    contrary: dict[int, tuple[int, int]] = {}
    best, turn = 1, prepare(1)
    while best < most:
        n = min(2 * best, most)
        try:
            other = prepare(n)
            taken = _in_turns({best: turn, n: other})
        except torch.OutOfMemoryError:
            break
        of_best, of_n = taken.min(axis=0)
        least |= {best: min(of_best, least.get(best, of_best)), n: of_n}
        faster = of_n <= _CLEARLY * of_best
        otherwise = (taken[:, 1] <= _CLEARLY * taken[:, 0]) != faster
        if otherwise.mean() > _DOUBTFUL:
            contrary[n] = (int(otherwise.sum()), len(taken))
        if not faster:
            break
        best, turn = n, other
    return Choice(best, least, contrary)


def measure(
    most: int,
    build: Callable[[int], Workspace],
    model: nn.Module,
    data: TaskData,
    settings: LocalSettings,
    groups: Tensor,
) -> dict[str, Any]:
    """The choice of `vectorised_clients`, and the milliseconds per client and step that it rests on.

    `build` makes the workspace of n clients. Each n is measured on as many threads as it would be trained on. The model
    is left unchanged.
    """
    start = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    before = torch.get_num_threads()
    choice = fastest(
        most, partial(_turns, build=build, model=model, start=start, data=data, settings=settings, groups=groups)
    )
    torch.set_num_threads(before)
    copy_into(model.state_dict(), start)
    return {
        "vectorised_clients": choice.n,
        "ms_by_clients": {n: round(1e3 * seconds, 3) for n, seconds in choice.least.items()},
        "contrary_turns": choice.contrary,
    }


def print_vectorisation(vectorisation: Mapping[str, Any]) -> None:
    """Print what was measured, where turns disagreed, and why clients train one by one if they must."""
    if reason := vectorisation.get("one_by_one"):
        print(f"clients train one by one: {reason}")
    if times := ", ".join(f"{n}: {ms}" for n, ms in vectorisation.get("ms_by_clients", {}).items()):
        print(
            f"clients at once: {vectorisation['vectorised_clients']} (ms per client and step by that number: {times})"
        )
        for n, (contrary, turns) in vectorisation["contrary_turns"].items():
            print(
                f"{contrary} of {turns} turns of {n} clients at once say otherwise: other work disturbs them, or the "
                "number makes no difference"
            )


def _turns(
    n: int,
    build: Callable[[int], Workspace],
    model: nn.Module,
    start: Mapping[str, Tensor],
    data: TaskData,
    settings: LocalSettings,
    groups: Tensor,
) -> Callable[[], float]:
    """A function that trains n clients at once for a few FedAvg steps and returns the seconds per client and step."""
    space, threads = build(n), threads_for(model, data, n * settings.batch_size)
    training = LocalTraining(space, data, FedAvg(), groups, 0)
    short = replace(settings, n_rounds=1)

    def turn(n_steps: int = _STEPS) -> float:
        """Seconds per client and step."""
        part = ClientRound(data.train[: settings.batch_size], n_steps, 1.0, 1.0)
        clients = [
            ClientContext(i, part, 0, model, tensors, start, start, {}, short, frozenset(start))
            for i, tensors in enumerate(space.tensors)
        ]
        for local in clients:
            local.load(start)
        torch.set_num_threads(threads)
        begin = _now(data.device)
        training(clients)
        return (_now(data.device) - begin) / n / n_steps

    turn(1)  # warm-up: choice of kernels, memory, a compiled graph
    return turn


def _in_turns(ways: Mapping[int, Callable[[], float]]) -> np.ndarray:
    """Seconds per client and step of two numbers of clients that take turns: (turns, 2)."""
    sizes = np.array(list(ways)) * _STEPS
    taken: list[list[float]] = []
    while len(taken) < _TURNS or (np.sum(taken, axis=0) * sizes).min() < _SECONDS:
        taken.append([turn() for turn in ways.values()])
    return np.array(taken)


def _now(device: torch.device) -> float:
    """A clock in seconds: on the CPU this thread's time, so that other programs do not count; elsewhere wall time.

    Where PyTorch uses several threads, this one does its share of every operation and sleeps while it waits for others.
    """
    if device.type == "cpu":
        return time.thread_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()
