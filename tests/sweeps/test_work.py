"""What a sweep's processes do before they run jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps import work
from tests.datasets.sources.finding import save_image, select


@pytest.mark.parametrize("source", [None, "taskonomy", "folder"])
def test_table_of_another_source_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: str | None
) -> None:
    if source:
        for label in ("cat", "dog"):
            for number in range(4):
                save_image(tmp_path / label / f"{number}.png")
        select("folder", tmp_path)
        about = tmp_path / "filtered_file_paths.json"
        about.write_text(about.read_text().replace('"source": "folder"', f'"source": "{source}"'))
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(work, "call", called.append)
    work.select(("extract_datapoints_for_experiments.py",), tmp_path)
    assert len(called) == (source != "folder")
    assert ("--source folder has found" in capsys.readouterr().out) == (source == "folder")
