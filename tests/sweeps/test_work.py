"""What a sweep's processes do before they run jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps import work
from tests.datasets.sources.finding import save_image, select
from utils.errors import UserError


def save_photographs(folder: Path) -> None:
    """Eight photographs of two classes, and the table of them."""
    for label in ("cat", "dog"):
        for number in range(4):
            save_image(folder / label / f"{number}.png")
    select("folder", folder)


@pytest.mark.parametrize(
    "source, listed, stays",
    [(None, True, False), (None, False, False), ("taskonomy", True, False), ("taskonomy", False, True),
     ("folder", False, True), ("folder", True, True)],
)  # fmt: skip
def test_tables_that_this_list_has_not_made_stay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str | None,
    listed: bool,
    stays: bool,
) -> None:
    if source:
        save_photographs(tmp_path)
        about = tmp_path / "filtered_file_paths.json"
        about.write_text(about.read_text().replace('"source": "folder"', f'"source": "{source}"'))
    if listed:
        (tmp_path / "rooms.csv").write_text("aspen\n")
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(work, "call", called.append)
    work.select(("extract_datapoints_for_experiments.py",), tmp_path / "rooms.csv")
    assert len(called) == (not stays)
    assert (f"--source {source} has found" in capsys.readouterr().out) == stays


def test_tasks_without_targets_are_named_before_any_job(tmp_path: Path) -> None:
    save_photographs(tmp_path)
    work.check_tasks(["classification"], tmp_path)
    with pytest.raises(UserError, match=r"no targets of depth_euclidean, normal; .* are: class_scene, classification$"):
        work.check_tasks(["depth_euclidean", "normal", "classification"], tmp_path)
