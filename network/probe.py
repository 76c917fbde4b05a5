"""How many clients to train at once, and on how many threads: measured on the machine, the model and the data."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from datasets.task_data import TaskData
from network.algorithms.fedavg import FedAvg
from network.client import Local, LocalSettings, Turn, copy_into
from network.local_training import LocalTraining
from network.workspace import Workspace

# Short steps are measured more often than `_REPEATS`, for so many seconds: one disturbance must not decide.
_STEPS, _REPEATS, _SECONDS = 3, 2, 0.1
_CLEARLY = 0.95  # what is not faster by this is not worth its memory


def fastest(most: int, seconds: Callable[[int], float]) -> tuple[int, dict[int, float]]:
    """The number of clients up to `most` with the least `seconds` a client and step, and what was measured.

    It doubles the number for as long as that helps clearly, so that a bad choice costs one measurement; a number that
    does not fit into the memory ends it too.
    """
    measured = {1: seconds(1)}
    best, n = 1, 2
    while best < most:
        n = min(2 * best, most)
        try:
            measured[n] = seconds(n)
        except torch.OutOfMemoryError:
            break
        if measured[n] > _CLEARLY * measured[best]:
            break
        best = n
    return best, measured


def seconds_a_step(
    n: int, build: Callable[[int], Workspace], model: nn.Module, data: TaskData, settings: LocalSettings, groups: Tensor
) -> float:  # fmt: skip
    """Seconds a client and step of `n` clients at once, by FedAvg, in what `build` makes; the model stays as it was."""
    space = build(n)
    start = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    training = LocalTraining(space, data, FedAvg(Namespace()), groups, 0)
    settings = replace(settings, n_rounds=1)

    def run(n_steps: int) -> float:
        turn = Turn(data.train[: settings.batch_size], n_steps, 1.0, 1.0, 1.0)
        clients = [
            Local(i, turn, 0, model, tensors, start, start, {}, settings, frozenset(start))
            for i, tensors in enumerate(space.tensors)
        ]
        for local in clients:
            local.load(start)
        _wait(data.device)
        begin = time.perf_counter()
        training(clients)
        _wait(data.device)
        return time.perf_counter() - begin

    run(1)  # what the first step alone pays for: kernels to be chosen, memory, a compiled graph
    taken: list[float] = []
    while len(taken) < _REPEATS or sum(taken) < _SECONDS:
        taken.append(run(_STEPS))
    copy_into(model.state_dict(), start)
    return min(taken) / n / _STEPS


def fastest_threads(seconds: Callable[[], float]) -> tuple[int, dict[int, float]]:
    """All threads or one, whichever takes fewer `seconds`, and what was measured; PyTorch is left at the choice."""
    most = best = torch.get_num_threads()
    measured = {most: seconds()}
    if most > 1:
        torch.set_num_threads(1)
        measured[1] = seconds()
        best = 1 if measured[1] < _CLEARLY * measured[most] else most
        torch.set_num_threads(best)
    return best, measured


def measure(
    most: int, build: Callable[[int], Workspace], model: nn.Module, data: TaskData, settings: LocalSettings,
    groups: Tensor,
) -> dict[str, Any]:  # fmt: skip
    """The choice of `clients_per_batch` and `threads`, and the milliseconds a client and step that it rests on."""
    seconds = partial(seconds_a_step, build=build, model=model, data=data, settings=settings, groups=groups)
    n, of_clients = fastest(most, seconds)
    choice: dict[str, Any] = {"clients_per_batch": n, "threads": torch.get_num_threads()}
    choice["ms_by_clients"] = {clients: round(1e3 * value, 3) for clients, value in of_clients.items()}
    if data.device.type == "cpu":
        choice["threads"], of_threads = fastest_threads(partial(seconds, n))
        choice["ms_by_threads"] = {threads: round(1e3 * value, 3) for threads, value in of_threads.items()}
    return choice


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
