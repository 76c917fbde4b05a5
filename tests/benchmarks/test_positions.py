"""The benchmark of clients by their position, made small, and its measures of draws whose values are known."""

from __future__ import annotations

import pytest

from benchmarks import positions


def test_table_has_a_row_a_way_and_alpha(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(positions, "CLIENTS", (2, 8))
    monkeypatch.setattr("sys.argv", ["positions", "--assigns", "3"])
    positions.main()
    rows = [line.split("|")[1:4] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [cell.strip() for cell in rows[0]] == ["clients", "alpha", "filled"]
    expected = [(str(n), f"{alpha:g}", way) for n in (2, 8) for alpha in positions.ALPHAS for way in positions.WAYS]
    assert [tuple(cell.strip() for cell in row) for row in rows[1:]] == expected


def test_variance_of_the_dirichlet_over_its_own_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "GROUPS", 2)
    row = positions.measure("the Dirichlet's own", 100, 2.0, 100)  # Beta(1, 1) is uniform: E|2 (u - 1/2)| = 1/2
    assert float(row["EMD, all"]) == pytest.approx(0.5, abs=0.02)
    assert float(row["variance, all"]) == pytest.approx(1.0, abs=0.04)
