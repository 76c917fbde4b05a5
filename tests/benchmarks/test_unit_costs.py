"""The benchmark of unit costs, made small: a row for every part."""

from __future__ import annotations

import pytest

from benchmarks import unit_costs


def test_every_part_has_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(unit_costs, "_FEW", 2)
    monkeypatch.setattr(unit_costs, "_STATES", 3)
    monkeypatch.setattr(unit_costs, "_DRAWN_FROM", 1000)
    monkeypatch.setattr("sys.argv", ["unit_costs", "--clients", "120"])
    unit_costs.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    units = {"an image", "a client", "a client of ten million", "a client of the round"}
    assert len(rows) == 16 and {row[3].strip() for row in rows} == units
    assert all(float(row[2].replace(",", "")) >= 0 for row in rows)


def test_costs_are_microseconds_a_unit() -> None:
    assert unit_costs.row("assigned", 0.5, 1000, "an image")["processor time, µs"] == "500"
