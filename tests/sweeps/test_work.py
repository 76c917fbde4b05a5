"""What a sweep's processes do before they run jobs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasets.table import DatasetInfo
from network.provenance import provenance
from sweeps import work
from sweeps.expand import parsed
from sweeps.preload import MODULES
from tests.datasets.sources.finding import save_image, select
from utils.command import command_line, in_place_of_own
from utils.errors import UserError
from utils.interrupt import resume_command
from utils.runs import Run


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
    kept: list[dict] = []
    found = SimpleNamespace(info=DatasetInfo("taskonomy", ("rgb",)))
    stage = SimpleNamespace(
        find=lambda args: found,
        keep=lambda args, found: kept.append(args),
    )
    monkeypatch.setitem(MODULES, "extract_datapoints_for_experiments.py", stage)
    work.select(("extract_datapoints_for_experiments.py", "--data_path", "x"), tmp_path / "rooms.csv", [])
    assert len(kept) == (not stays)
    assert (f"--source {source} has found" in capsys.readouterr().out) == stays


def test_tasks_without_targets_are_named_before_any_job(tmp_path: Path) -> None:
    save_photographs(tmp_path)
    stage, csv = ("extract_datapoints_for_experiments.py",), tmp_path / "rooms.csv"
    work.select(stage, csv, ["classification"])
    with pytest.raises(UserError, match=r"no targets of depth_euclidean, normal; .* are: class_scene, classification$"):
        work.select(stage, csv, ["depth_euclidean", "normal", "classification"])


def test_a_job_reads_and_records_its_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (
        "train_centralized_task_model.py",
        "--task",
        "normal",
        "--result_path",
        str(tmp_path),
        "--rand_seed",
        "7",
    )
    begin = SimpleNamespace(main=lambda: Run.create((of := parsed(command_line())) | provenance(of), "run"))
    monkeypatch.setitem(MODULES, command[0], begin)
    before = [*sys.argv]
    work.call(command)
    args, made_with = (json.loads((tmp_path / f"run/{name}.json").read_text()) for name in ("args", "environment"))
    assert args["rand_seed"] == 7 and "engine" in args["code_version"] and made_with["command"] == [*command]
    with in_place_of_own(command):
        assert resume_command() == f"python {' '.join(command)} --resume_training True"
    assert sys.argv == before and command_line() == before


def test_images_without_the_targets_are_not_selected(own_copy: Path, tmp_path: Path) -> None:
    csv, options = own_copy / "rooms.csv", ("--client_file_name", "rooms.csv", "--data_path", str(own_copy))
    for path in own_copy.glob("filtered*"):
        path.unlink()
    command = ("extract_datapoints_for_experiments.py", *options, "--result_path", str(tmp_path / "out"))
    before = {*tmp_path.rglob("*")}
    with pytest.raises(UserError, match="no targets of segmentation"):
        work.select(command, csv, ["normal", "segmentation"])
    assert {*tmp_path.rglob("*")} == before
