"""The benchmark of several processes, made small: their metrics are compared, and different ones found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from benchmarks import scaling
from benchmarks.processes import several
from tests.conftest import start_in, start_spread
from utils.errors import UserError


@pytest.fixture(autouse=True)
def in_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs begin with everything imported, without the launcher, with which `test_peers.py` runs ours."""

    def run(command: Sequence[str], **how: object) -> CompletedProcess:
        n = next(n for n in (2, 1) if command[: len(several(n))] == several(n))
        program, (output, errors) = " ".join(command[len(several(n)) :]), ("output.txt", "errors.txt")
        started = start_spread(tmp_path, program, n) if n > 1 else [start_in(tmp_path, program, errors=errors)]
        for process in started:
            process.join()
        texts = [(tmp_path / name).read_text() for name in (output, errors if n == 1 else output)]
        return CompletedProcess(command, max(process.exitcode for process in started), *texts)

    monkeypatch.setattr(scaling.subprocess, "run", run)


def test_table_has_a_row_a_number_of_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    command = "scaling --repeats 1 --rounds 2 --scale smallest"
    monkeypatch.setattr("sys.argv", command.split())
    scaling.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == ["processes", "1", "2"]


def test_other_metrics_are_found() -> None:
    alone = [{"round": 1, "seconds": 1.0, "test_loss": 0.5, "test_delta1": float("nan")}]
    scaling.check(2, [{"round": 1, "seconds": 0.5, "test_loss": 0.500001, "test_delta1": float("nan")}], alone)
    with pytest.raises(AssertionError, match="2 processes: test_loss"):
        scaling.check(2, [alone[0] | {"test_loss": 0.501}], alone)


def test_a_run_that_fails_says_why() -> None:
    with pytest.raises(UserError, match=r"1 processes: .*--scale"):
        scaling.launched("none", 1, 1)
