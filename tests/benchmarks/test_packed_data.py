"""The benchmark of the packed arrays runs, compares the batches of its ways, and prints its ratios."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import packed_data


def test_table_has_a_row_a_task(own_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    sizes = "--image_size 16 --repeats 2 --images 8 --workers 1"
    command = f"packed_data --data_path {own_copy} --tasks reshading depth_euclidean {sizes}"
    monkeypatch.setattr("sys.argv", command.split())
    packed_data.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == ["task", "reshading", "depth_euclidean"]
    assert "packed / decoded" in rows[0]
