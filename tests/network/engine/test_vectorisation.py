"""Choosing how many clients to train at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.networks.task_model import Outputs
from network.engine.client import ClientContext
from network.engine.local_training import LocalTraining
from network.engine.vectorisation import Choice, fastest, measure, print_vectorisation
from network.engine.workspace import workspace
from tests.network import quadratic as q
from utils.errors import UserError


def steady(times: dict[int, float], tried: list[int]) -> Callable[[int], Callable[[], float]]:
    """Clients that always take these seconds per client and step; notes what is made ready."""

    def prepare(n: int) -> Callable[[], float]:
        tried.append(n)
        return lambda: times[n]

    return prepare


@pytest.mark.parametrize(
    "times, most, best, tried",
    [
        ({1: 8.0, 2: 5.0, 4: 3.0, 8: 3.5}, 25, 4, [1, 2, 4, 8]),  # worse again at 8
        ({1: 8.0, 2: 7.9}, 25, 1, [1, 2]),  # not clearly better
        ({1: 8.0, 2: 5.0, 4: 3.0, 5: 2.0}, 5, 5, [1, 2, 4, 5]),  # as many as there are
    ],
)
def test_the_number_is_doubled_while_that_helps(
    times: dict[int, float], most: int, best: int, tried: list[int]
) -> None:
    ready: list[int] = []
    assert fastest(most, steady(times, ready)) == Choice(best, times, {})
    assert ready == tried


def test_a_client_alone_is_not_measured() -> None:
    assert fastest(1, steady({}, [])) == Choice(1, {}, {})


@pytest.mark.parametrize("late", [False, True], ids=["when made ready", "at work"])
def test_what_does_not_fit_into_the_memory_is_not_chosen(late: bool) -> None:
    def too_large() -> float:
        raise torch.OutOfMemoryError

    def prepare(n: int) -> Callable[[], float]:
        if n == 4:
            return too_large if late else too_large()
        return lambda: 1 / n

    assert fastest(16, prepare) == Choice(2, {1: 1.0, 2: 0.5}, {})


def test_other_work_that_begins_in_the_middle_falls_on_both() -> None:
    now = 0.0

    def prepare(n: int) -> Callable[[], float]:
        def turn() -> float:
            nonlocal now
            seconds = 1 / n * (10.0 if now > 2.5 else 1.0)  # after two turns of one client and of two
            now += seconds
            return seconds

        return turn

    choice = fastest(8, prepare)
    assert choice.n == 8 and choice.least == {1: 1.0, 2: 0.5, 4: 2.5, 8: 1.25} and choice.contrary == {}


def test_turns_that_disagree_are_named() -> None:
    turns = {1: iter([1.0] * 3), 2: iter([0.4, 3.0, 3.0] * 2), 4: iter([0.9] * 3)}

    def prepare(n: int) -> Callable[[], float]:
        return lambda: next(turns[n])

    choice = fastest(4, prepare)  # two clients were faster once, and the least counts; so it is with four against two
    assert choice.n == 2 and choice.least == {1: 1.0, 2: 0.4, 4: 0.9}
    assert choice.contrary == {2: (2, 3), 4: (2, 3)}


def disturbed(monkeypatch: pytest.MonkeyPatch, cost: dict[int, float], load: list[float]) -> list[int]:
    """Training takes `cost` seconds of work by the number of clients, and on the wall's clock `load` times that, turn
    by turn and then once; returns the number of clients of every turn, as they come."""
    wall = thread = 0.0
    turns: list[int] = []

    def train(_: LocalTraining, clients: list[ClientContext]) -> None:
        nonlocal wall, thread
        thread += cost[len(clients)]
        wall += cost[len(clients)] * (load[len(turns)] if len(turns) < len(load) else 1.0)
        turns.append(len(clients))

    monkeypatch.setattr(LocalTraining, "__call__", train)
    monkeypatch.setattr("network.engine.vectorisation.time.perf_counter", lambda: wall)
    monkeypatch.setattr("network.engine.vectorisation.time.thread_time", lambda: thread)
    return turns


def choice_of(most: int) -> dict[str, object]:
    """What is measured on the quadratic problems."""
    model, data = q.Quadratic(), q.QuadraticData()
    data.train = q.CLIENTS[1]
    build = partial(workspace, model, image_shape=(5,))
    return measure(most, build, model, data, q.SETTINGS, torch.zeros(11).long())


def test_other_processes_do_not_count_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Any number takes as long as one: eight are eight times as fast. All but one alone wait for others' work.
    disturbed(monkeypatch, dict.fromkeys((1, 2, 4, 8), 1 / 16), [1, 1, 40, 1, 40, 1, 40, 1, 40, *[40] * 20])
    choice = choice_of(8)
    assert choice["vectorised_clients"] == 8
    assert choice["ms_by_clients"] == {n: round(1e3 / 16 / 3 / n, 3) for n in (1, 2, 4, 8)}  # three steps per turn


@pytest.mark.parametrize("seconds, each", [(1 / 64, 7), (0.25, 3)])
def test_short_turns_are_measured_for_a_tenth_of_a_second_one_after_the_other(
    seconds: float, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = disturbed(monkeypatch, {1: seconds, 2: 2 * seconds}, [])
    assert choice_of(2)["vectorised_clients"] == 1
    assert turns == [1, 2] + [1, 2] * each  # the first of each, which pays for what the others find, is not measured


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = q.Quadratic()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = q.QuadraticData()
    data.train = q.CLIENTS[1]
    build = partial(workspace, model, image_shape=(5,))
    choice = measure(4, build, model, data, q.SETTINGS, torch.zeros(11).long())
    assert choice["vectorised_clients"] in (1, 2, 4) and set(choice["ms_by_clients"]) >= {1, 2}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# What a run does with the choice


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine and networks with work for two threads; afterwards there is one, as in all tests."""
    monkeypatch.setattr("network.engine.trainer.threads_for", lambda *_: 2)
    monkeypatch.setattr("network.engine.vectorisation.threads_for", lambda *_: 2)
    yield
    torch.set_num_threads(1)


def test_a_run_notes_its_pace_and_computes_with_it(tmp_path: Path, two_threads: None) -> None:
    q.trained(q.method("fedavg"), tmp_path, vectorised_clients=1)
    assert json.loads((tmp_path / "pace.json").read_text()) == {"vectorised_clients": 1, "threads": 2}
    assert torch.get_num_threads() == 2


def test_threads_are_those_of_the_clients_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("network.engine.trainer.threads_for", lambda model, data, n_images: asked.append(n_images) or 1)
    for n in (1, 2, 5):  # of two clients, with batches of eight
        q.simulation(q.method("fedavg"), tmp_path, vectorised_clients=n).resolve_vectorisation()
    assert asked == [8, 16, 16]


def test_a_resumed_run_keeps_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = iter([2, 1])

    def chosen(*_: object) -> dict[str, object]:
        return {"vectorised_clients": next(choices), "ms_by_clients": {1: 2.0}, "contrary_turns": {}}

    monkeypatch.setattr("network.engine.trainer.measure", chosen)
    settings = replace(q.SETTINGS, n_rounds=1)
    q.trained(q.method("fedavg"), tmp_path, settings, vectorised_clients=None)
    resumed = q.simulation(q.method("fedavg"), tmp_path, replace(settings, n_rounds=2), vectorised_clients=None)
    resumed.resume()
    resumed.train()
    assert resumed.trainer.vectorisation["vectorised_clients"] == 2 and next(choices) == 1


def test_a_resumed_run_keeps_the_number_of_threads(
    tmp_path: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would round otherwise."""
    settings = replace(q.SETTINGS, n_rounds=1)
    q.trained(q.method("fedavg"), tmp_path, settings, vectorised_clients=1)
    monkeypatch.setattr("network.engine.trainer.threads_for", lambda *_: 1)
    torch.set_num_threads(1)
    resumed = q.simulation(q.method("fedavg"), tmp_path, replace(settings, n_rounds=2), vectorised_clients=1)
    resumed.resume()
    resumed.train()
    assert torch.get_num_threads() == 2 and resumed.trainer.vectorisation == {"vectorised_clients": 1, "threads": 2}


class Chosen(q.Quadratic):
    """What vmap cannot compute: a choice by a number."""

    def forward(self, images: Tensor) -> Outputs:
        return super().forward(images if images.sum().item() > 1e9 else images + 0)


def test_clients_train_one_by_one_where_copies_cannot_train_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = q.trained(q.method("fedavg"), tmp_path / "one", vectorised_clients=1).server
    for name, n in (("fastest", None), ("resumed", 2)):
        run = q.simulation(q.method("fedavg"), tmp_path / name, model=Chosen(), vectorised_clients=n)
        if n:  # as in a checkpoint of before this was looked at
            run.trainer.vectorisation |= {"threads": 1}
        run.train()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in run.server.items())
    printed = (
        "clients train one by one: copies of this network that train side by side do not end where each does alone"
    )
    assert capsys.readouterr().out.splitlines() == [printed]
    refused = q.simulation(q.method("fedavg"), tmp_path / "asked", model=Chosen(), vectorised_clients=2)
    with pytest.raises(UserError, match=r"--vectorised_clients 2: copies .* alone; give --vectorised_clients 1"):
        refused.train()
    assert not refused.rows


def test_what_was_measured_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_vectorisation({"vectorised_clients": 1, "threads": 2})
    assert capsys.readouterr().out == ""
    measured = {"vectorised_clients": 2, "ms_by_clients": {1: 4.5, 2: 3.0, 4: 2.9}, "contrary_turns": {4: (2, 5)}}
    print_vectorisation(measured)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "clients at once: 2 (ms per client and step by that number: 1: 4.5, 2: 3.0, 4: 2.9)"
    assert second.startswith("2 of 5 turns of 4 clients at once say otherwise")
