"""Choosing how many clients to train at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from network.client import Local
from network.local_training import LocalTraining
from network.probe import fastest, fastest_threads, measure, seconds_a_step
from network.workspace import workspace
from tests.network import quadratic as q


@pytest.mark.parametrize(
    "times, most, best, tried",
    [
        ({1: 8.0, 2: 5.0, 4: 3.0, 8: 3.5}, 25, 4, [1, 2, 4, 8]),  # worse again at 8
        ({1: 8.0, 2: 7.9}, 25, 1, [1, 2]),  # not clearly better
        ({1: 8.0, 2: 5.0, 4: 3.0, 5: 2.0}, 5, 5, [1, 2, 4, 5]),  # as many as there are
        ({1: 8.0}, 1, 1, [1]),
    ],
)
def test_the_number_is_doubled_while_that_helps(
    times: dict[int, float], most: int, best: int, tried: list[int]
) -> None:  # fmt: skip
    assert fastest(most, times.__getitem__) == (best, times)
    assert list(times) == tried


def test_what_does_not_fit_into_the_memory_is_not_chosen() -> None:
    def seconds(n: int) -> float:
        if n == 4:
            raise torch.OutOfMemoryError
        return 1 / n

    assert fastest(16, seconds) == (2, {1: 1.0, 2: 0.5})


@pytest.mark.parametrize("by_threads, best", [({3: 1.0, 1: 0.5}, 1), ({3: 1.0, 1: 0.99}, 3)])
def test_one_thread_is_taken_where_it_is_clearly_faster(by_threads: dict[int, float], best: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert fastest_threads(lambda: by_threads[torch.get_num_threads()]) == (best, by_threads)
        assert torch.get_num_threads() == best
    finally:
        torch.set_num_threads(before)


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = q.Quadratic()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = q.QuadraticData()
    data.train = q.CLIENTS[1]
    build = partial(workspace, model, image_shape=(5,))
    choice = measure(4, build, model, data, q.SETTINGS, torch.zeros(11).long())
    assert choice["clients_per_batch"] in (1, 2, 4) and set(choice["ms_by_clients"]) >= {1, 2}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("seconds, measured", [(1 / 64, 4), (0.25, 2)])
def test_short_steps_are_measured_for_a_tenth_of_a_second_and_the_fastest_counts(
    seconds: float, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, trainings = 0.0, 0

    def train(_: LocalTraining, clients: list[Local]) -> None:
        nonlocal now, trainings
        trainings += 1
        now += seconds * (4.0 if trainings == 2 else 1.0)  # the first that is measured is disturbed

    monkeypatch.setattr(LocalTraining, "__call__", train)
    monkeypatch.setattr("network.probe.time.perf_counter", lambda: now)
    model, data = q.Quadratic(), q.QuadraticData()
    data.train = q.CLIENTS[1]
    build = partial(workspace, model, image_shape=(5,))
    found = seconds_a_step(2, build, model, data, q.SETTINGS, torch.zeros(11).long())
    assert found == pytest.approx(seconds / 2 / 3)  # two clients, three steps
    assert trainings == 1 + measured  # the first of all is not


def test_a_resumed_run_keeps_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = iter([2, 1])

    def chosen(*_: object) -> dict[str, object]:
        return {"clients_per_batch": next(choices), "threads": torch.get_num_threads(), "ms_by_clients": {1: 2.0}}

    monkeypatch.setattr("network.trainer.measure", chosen)
    settings = replace(q.SETTINGS, n_rounds=1)
    q.trained(q.method("fedavg"), tmp_path, settings, clients_per_batch=None)
    resumed = q.simulation(q.method("fedavg"), tmp_path, replace(settings, n_rounds=2), clients_per_batch=None)
    resumed.resume()
    resumed.train()
    assert resumed.trainer.pace["clients_per_batch"] == 2 and next(choices) == 1
