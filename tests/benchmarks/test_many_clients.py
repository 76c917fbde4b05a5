"""The benchmark of very many clients, made small: each has its own images, and rounds are held against a few's."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any

import pytest

from benchmarks import many_clients, scaling
from utils.errors import UserError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FEW": 20, "A_ROUND": 6, "EVALUATED": 5, "_POOL": 80, "_HELD_OUT": 30}.items():
        monkeypatch.setattr(many_clients, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", many_clients.METHODS)
def test_rounds_of_few_clients_and_of_many_are_measured_in_turn(name: str) -> None:
    found = many_clients.measure(name, 300, 3)
    for of in ("few", "many"):
        assert len(found[of]["rounds"]) == 3 and found[of]["assigned"] > 0
    row = many_clients.row_of(name, 300, found)
    assert row["method"] == name and row["clients"] == "300" and found["peak"] > 1e8


def test_a_table_has_a_row_a_method(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    few = {"assigned": 1.0, "set up": 0.5, "drawn": 1e-3, "evaluated": 2.0, "rounds": [9.0, 1.0, 2.0, 4.0, 9.0]}
    many = few | {"rounds": [9.0, 1.1, 2.4, 4.0, 9.0]}

    def found(name: str, n_clients: int, n_rounds: int) -> dict[str, Any]:
        assert (n_clients, n_rounds) == (5000, 11)
        return {"few": few, "many": many, "peak": 2 << 30}

    monkeypatch.setattr(many_clients, "elsewhere", found)
    monkeypatch.setattr("sys.argv", ["scaling", "--clients", "5000"])
    scaling.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert [row.split("|")[1].strip() for row in rows] == list(many_clients.METHODS)
    assert all("1.10 (1.00 to 1.20)" in row for row in rows)  # the first round and the last do not count


def test_a_federation_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], **how: object) -> CompletedProcess:
        """A program of the command line, in this process, which has imported everything."""
        try:
            exec(command[-1], {})
        except Exception:
            return CompletedProcess(command, 1, "", traceback.format_exc())
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(many_clients.subprocess, "run", run)
    with pytest.raises(UserError, match="none, 10 clients: KeyError: 'none'"):
        many_clients.elsewhere("none", 10, 1)
