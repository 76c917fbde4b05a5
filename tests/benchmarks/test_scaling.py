"""The benchmark of several processes, made small: their metrics are compared, and different ones found."""

from __future__ import annotations

import pytest

from benchmarks import scaling
from utils.errors import UserError


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
