"""The benchmark of threads, made small: each way computes the same, and one that does not is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import threads
from benchmarks.threads import WAYS, Federation, rows, run
from tests.conftest import start_in
from utils.errors import UserError


class Fork:
    """What a benchmark asks of `Popen`, as a process that begins with everything imported."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **how: object) -> None:
        folder = Path(mkdtemp(dir=Path.cwd()))
        pipes = [folder / "in", folder / "out"]
        for pipe in pipes:
            os.mkfifo(pipe)
        hook = partial(_talk, *pipes, int(env["OMP_NUM_THREADS"]))
        self._process = start_in(folder, " ".join(command[1:]), hook)
        self.stdin, self.stdout = pipes[0].open("w"), pipes[1].open()

    def kill(self) -> None:
        self._process.kill()

    def communicate(self) -> None:
        self._process.join()
        self.stdin.close(), self.stdout.close()


def _talk(commands: Path, answers: Path, n_threads: int) -> None:
    sys.stdin, sys.stdout = commands.open(), answers.open("w")
    torch.set_num_threads(n_threads)


def test_table_has_a_row_a_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threads, "subprocess", SimpleNamespace(Popen=Fork, PIPE=subprocess.PIPE))
    command = "threads --scale smallest --others 0 --repeats 1 --rounds 1"
    monkeypatch.setattr("sys.argv", command.split())
    monkeypatch.setattr(threads, "WAYS", (WAYS[0], WAYS[-1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads.main()
    lines = [line.split("|")[2:5] for line in capsys.readouterr().out.splitlines() if line.startswith("| smallest")]
    found = [[word.strip() for word in line] for line in lines]
    assert found == [["0", "all: 2", "spinning"], ["0", "by size: 1", "asleep"]]


class Canned:
    """A federation whose steps take 32, 16 or 8 milliseconds, by its way."""

    losses = 0.5

    def __init__(self, scale: str, threads: str, waiting: str) -> None:
        self.slow, self.rounds = 4.0 if waiting == "spinning" else 2.0 if threads == "all" else 1.0, 0

    def __enter__(self) -> Canned:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, n_rounds: int) -> None:
        self.rounds += n_rounds

    def answer(self) -> dict[str, Any]:
        return {"threads": 1, "rounds": self.rounds, "loss": self.losses, "wall": 8 * self.slow, "work": self.slow}


def test_ratios_are_those_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Federation, "start", Canned)
    table = rows("smallest", run("smallest", [0, 2], 3, 5))
    assert [row["times as fast"].split()[0] for row in table] == ["1.00", "2.00", "4.00"] * 2
    assert [row["ms a step"].split()[0] for row in table] == ["32.0", "16.0", "8.0"] * 2


def test_a_way_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Canned):
        @property
        def losses(self) -> float:
            return 0.5 + 0.01 * (self.slow == 1.0)

    monkeypatch.setattr(Federation, "start", Other)
    with pytest.raises(AssertionError, match="by size, asleep: loss of round 2"):
        run("smallest", [0], 1, 1)


def test_a_federation_that_ends_is_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with Federation(process) as federation, pytest.raises(UserError, match="ended"):
        federation.answer()
