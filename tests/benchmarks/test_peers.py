"""The benchmark against other systems, made small: who is installed takes part, and a wrong one is found."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks import peers
from benchmarks.peer_processes.federation import MODELS, Federation, arrays_of
from benchmarks.processes import several
from tests.conftest import start_in, start_spread
from utils.errors import UserError

SMALL = Federation("dense", n_clients=3, n_steps=2, batch_size=4, lr=0.1)


def by_hand(federation: Federation, n_rounds: int) -> dict[str, np.ndarray]:
    """The server's model after some rounds: w <- mean over clients of w - lr * gradient, batch by batch."""
    model = federation.initial_model()
    server = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(n_rounds):
        ends = []
        for client in range(federation.n_clients):
            for parameter, tensor in zip(model.parameters(), server, strict=True):
                parameter.data.copy_(tensor)
            for step in range(federation.n_steps):
                first = client * federation.images_a_client + step * federation.batch_size
                images, labels = (tensor[first : first + federation.batch_size] for tensor in federation.data)
                loss = F.cross_entropy(model(images), labels)
                for parameter, gradient in zip(
                    model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
                ):
                    parameter.data -= federation.lr * gradient
            ends.append([parameter.detach().clone() for parameter in model.parameters()])
        server = [torch.stack(of_clients).mean(0) for of_clients in zip(*ends, strict=True)]
    return {name: tensor.numpy() for name, tensor in zip(model.state_dict(), server, strict=True)}


@pytest.mark.parametrize(
    ("system", "package"), [("pfl", "pfl"), ("BlazeFL", "blazefl"), ("Flower", "ray"), ("Flower, legacy", "ray")]
)
@pytest.mark.parametrize("cores", [1, 2])
def test_peers_compute_what_the_plain_loop_does(system: str, package: str, cores: int) -> None:
    pytest.importorskip(package)
    federation = replace(SMALL, cores=cores, processor_time=cores == 1)
    seconds, weights = peers.run(federation, ["bare steps", system], repeats=2, rounds=1)
    assert all(taken.shape == (2,) and (taken > 0).all() for taken in seconds.values())
    peers.check(federation, weights)


def test_blazefl_runs_by_the_python_that_has_it_and_the_others_by_this_one(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho this is another Python: $1\nexit 1\n")
    other.chmod(0o755)
    with pytest.raises(UserError, match=r"BlazeFL does not answer: this is another Python: .*/blaze_fl\.py"):
        peers.run(SMALL, ["BlazeFL"], repeats=1, rounds=1, blazefl_python=str(other))


@pytest.mark.parametrize("more", [["--cores", "1", "2"], ["--cores", "1", "--systems", "Flower"]])
def test_processor_time_is_refused_where_others_work_for_a_system(
    more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["peers", "--processor_time", *more])
    with pytest.raises(UserError, match="--cores 1, and --systems without Flower"):
        peers.main()


class Forks:
    """What a benchmark asks of `Popen`, as processes that begin with everything imported and without a launcher.

    `tests/utils/test_processes.py` starts the launcher.
    """

    def __init__(self, command: Sequence[str], **how: object) -> None:
        n = next(n for n in (2, 1) if command[: len(several(n))] == several(n))
        words = " ".join(word.replace(" ", "") for word in command[len(several(n)) :])  # of JSON
        folder = Path(command[-1]).parent
        self._processes = start_spread(folder, words, n) if n > 1 else [start_in(folder, words)]

    def poll(self) -> int | None:
        return self._processes[0].exitcode

    def wait(self, seconds: float | None = None) -> None:
        for process in self._processes:
            process.join()

    def terminate(self) -> None:
        for process in self._processes:
            process.terminate()


def start(command: Sequence[str], **how: Any) -> Forks | subprocess.Popen:
    """Ours as `Forks`; the plain loop, which must run without the project, as it is."""
    return (Forks if "benchmarks.peer_processes.ours" in command else subprocess.Popen)(command, **how)


@pytest.mark.parametrize("cores", [1, 2])
def test_plain_loop_and_ours_are_federated_averaging_by_hand(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
    federation = replace(SMALL, cores=cores)
    # The plain loop is of one process whatever the cores.
    _, weights = peers.run(federation, ["bare steps", "ours"][cores - 1 :], repeats=1, rounds=2)
    expected = by_hand(federation, 4)  # two rounds are run before those that are counted
    weights = {"bare steps": expected} | weights
    for found in weights.values():
        assert found.keys() == expected.keys()
        assert all(np.allclose(found[name], expected[name], rtol=1e-4, atol=1e-6) for name in expected)
    peers.check(federation, weights)
    (row,) = peers.rows(federation, {"bare steps": np.array([2.0, 4.0]), "ours": np.array([3.0, 8.0])})
    assert row["over the bare steps"] == {1: "1.75 (1.50 to 2.00)", 2: "3.50 (3.00 to 4.00)"}[cores]


def test_a_system_that_computes_something_else_is_found() -> None:
    expected = by_hand(SMALL, 2)
    name = next(iter(expected))
    wrong = expected | {name: expected[name] + 1e-3}
    with pytest.raises(AssertionError, match="peer is off"):
        peers.check(SMALL, {"bare steps": expected, "peer": wrong})
    with pytest.raises(AssertionError, match="peer is off"):  # or has run a round less
        peers.check(SMALL, {"bare steps": expected, "peer": by_hand(SMALL, 1)})


def test_a_system_that_fails_is_named_with_the_end_of_its_log() -> None:
    broken = replace(SMALL, model="none")
    with pytest.raises(UserError, match=r"bare steps does not answer: .*KeyError: 'none'"):
        peers.run(broken, ["bare steps"], repeats=1, rounds=1)


@pytest.mark.parametrize(("name", "parameters"), [("dense", 4_876), ("conv", 126_480), ("large_conv", 1_666_448)])
def test_models_have_the_size_that_they_say(name: str, parameters: int) -> None:
    federation = replace(SMALL, model=name)
    model = federation.initial_model()
    assert sum(array.size for array in arrays_of(model).values()) == parameters
    images, labels = federation.of_client(1)
    assert images.shape == (8, *MODELS[name][1]) and model(images).shape == (8, 16) and labels.max() < 16
