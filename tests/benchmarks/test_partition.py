"""The benchmark of the partitioners, made small: a row a rule and number of clients, and reasons for the gaps."""

from __future__ import annotations

import pytest

from benchmarks import partition
from network.partition.rules import PARTITIONERS


def test_table_has_every_rule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(partition, "IMAGES", (200, 2000))
    monkeypatch.setattr(partition, "CLIENTS", (10, 300))
    monkeypatch.setattr(partition, "GROUPS", (4,))
    partition.main()
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("| ")]
    expected = sorted((rule, n_clients) for rule in PARTITIONERS for n_clients in ("10", "300"))
    assert sorted((row[0], row[1]) for row in rows[1:]) == expected
    of_iid = next(row for row in rows if row[:2] == ["iid", "300"])
    assert of_iid[2] == "–" and "s, x" in of_iid[3]  # 200 images are too few for 300 clients
    assert "iid, 300 clients, 200 images, 4 groups: 200 images cannot be assigned to 300 clients" in printed
