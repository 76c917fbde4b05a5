"""The benchmark of selecting and packing, made small: its images arrive, and memory is measured."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import table


@pytest.mark.parametrize("source", table.SOURCES)
def test_images_are_selected_packed_and_compared(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table.write_images(source, tmp_path, 120)
    found = table.measure(source, tmp_path)
    assert found["images"] == 120 and found["select"] > 0 and found["pack"] > 0
    monkeypatch.setattr(table, "image", lambda number: np.zeros((32, 32, 3), np.uint8))
    with pytest.raises(AssertionError, match="is another image"):
        table.measure(source, tmp_path)


def test_memory_is_what_is_held_in_the_block() -> None:
    before = np.ones(16 << 20, np.uint8)
    with table.PeakMemory() as memory:
        # Of the system itself: what earlier tests have freed would be handed out again, and nothing would grow.
        held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held.write(bytes([1]) * len(held))
        deadline = time.monotonic() + 30
        while memory.growth < 50 << 20 and time.monotonic() < deadline:  # the watcher looks every 10 ms at best
            time.sleep(0.01)
        del held
        after = before[:10].copy()
    assert len(after) == 10 and 50 << 20 < memory.growth < 90 << 20


def test_table_has_a_row_for_each_source_and_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(table, "elsewhere", table.measure)
    monkeypatch.setattr("sys.argv", ["table", "--images", "110", "120"])
    table.main()
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in cells] for cells in rows] == [
        ["source", "images"], ["arrays", "110"], ["arrays", "120"], ["folder", "110"], ["folder", "120"],
    ]  # fmt: skip
