"""Writing: the old file or the new one and nothing beside it; reading: errors that name the stage."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.conftest import ROOT
from utils import files
from utils.errors import UserError
from utils.files import files_below, read_json, save_tensors, write_atomically, write_json


@pytest.mark.parametrize("folder", ["", "new/folder"])
def test_file_appears_with_the_end_of_the_block(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "table.csv"
    with write_atomically(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert (temporary.parent.parent, temporary.suffix) == (path.parent, ".csv")
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["table.csv"]


@pytest.mark.parametrize(
    "raised, caught", [(RuntimeError, RuntimeError), (KeyboardInterrupt, KeyboardInterrupt), (OSError, UserError)]
)
def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, raised: type[BaseException], caught: type[BaseException]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(caught), write_atomically(path) as temporary:
        temporary.write_text("half of the n")
        raise raised(28, "No space left on device")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


# What killed processes leave

WRITE = """
import sys
from pathlib import Path
from utils import files
with files.write_atomically(Path("table.csv")) as temporary:
    temporary.write_text("half of")
    print(temporary, flush=True)
    sys.stdin.read()
"""


def writer(folder: Path) -> tuple[subprocess.Popen, Path]:
    """A process in the middle of writing table.csv, and its temporary file in a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, folder / process.stdout.readline().strip()


def write_in_new_process(folder: Path) -> None:
    files._remove_unfinished.cache_clear()  # which a process does once
    write_json(folder / "other.json", {})


def test_what_a_killed_process_left_goes_with_the_next_write_and_what_a_live_one_writes_stays(tmp_path: Path) -> None:
    (killed, left), (live, held) = writer(tmp_path), writer(tmp_path)
    (tmp_path / ".table-notes.csv").write_text("the user's own")
    killed.kill()
    killed.communicate()
    assert left.read_text() == held.read_text() == "half of"
    write_in_new_process(tmp_path)
    assert not left.parent.exists() and held.exists()
    live.communicate()  # the end of its input lets it finish
    assert live.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".table-notes.csv", "other.json", "table.csv"]


def test_files_are_found_while_others_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/deep/summary.json", "a/summary.json", "a/args.json", "summary.json", ".unfinished-x/summary.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    gone = tmp_path / "gone"
    gone.mkdir()
    listed = os.scandir

    def slowly(place: str | Path) -> object:
        if str(place) == str(gone):
            gone.rmdir()
        return listed(place)

    monkeypatch.setattr(os, "scandir", slowly)
    found = files_below(tmp_path, "summary.json")
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "a/summary.json",
        "b/deep/summary.json",
        "summary.json",
    ]
    assert not gone.exists() and files_below(tmp_path / "none", "*") == []


@pytest.mark.parametrize("kind", ["array", "tensors", "json", "table", "picture"])
def test_writers_keep_hold_of_their_file(tmp_path: Path, kind: str) -> None:
    """Whatever they do with the path, closing it or putting another file there, must not let go of its lock."""
    write = {
        "array": lambda path: np.save(path, np.zeros(3)),
        "tensors": lambda path: save_tensors({"a": torch.zeros(3)}, path),
        "json": lambda path: path.write_text("{}"),
        "table": lambda path: pd.DataFrame({"a": [1]}).to_csv(path),
        "picture": lambda path: Image.new("RGB", (4, 4)).save(path),
    }[kind]
    ending = {"array": ".npy", "tensors": ".safetensors", "picture": ".png"}.get(kind, ".txt")
    with write_atomically(tmp_path / f"a{ending}") as temporary:
        write(temporary)
        write_in_new_process(tmp_path)
        assert temporary.exists()
    assert (tmp_path / f"a{ending}").is_file()


def test_file_that_another_process_removed_before_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, seen = fcntl.flock, []

    def late(handle: int, how: int) -> None:
        if not seen:  # the other process was faster
            seen.extend(tmp_path.iterdir())
            shutil.rmtree(seen[0])
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with write_atomically(tmp_path / "a.txt") as temporary:
        assert temporary.parent != seen[0] and temporary.exists()
        temporary.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"table\.csv: cannot be written \(No space left on device\)"),
        write_atomically(tmp_path / "table.csv"),
    ):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_a_plain_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with write_atomically(tmp_path / "atomic") as temporary:
            temporary.write_text("")
        (tmp_path / "plain").write_text("")
        assert os.umask(mask) == mask  # as it was
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")]
    assert modes[0] == modes[1] == 0o666 & ~mask


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UserError, match=r"a\.json: cannot be written \(Permission denied\)"):
            write_json(tmp_path / "a.json", {})
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["file/a.json", "folder"])
def test_place_where_no_file_can_be_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be written"):
        write_json(tmp_path / name, {})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_json_reads_as_it_was_written(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, None, True], "α": {"b": "text"}}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json", "the stage") == content


def test_content_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"path": Path("b")})
    assert read_json(tmp_path / "a.json", "the stage") == 1


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe"])
def test_broken_json_names_the_stage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json: cannot be read .*; run the_stage\.py again"):
        read_json(tmp_path / "a.json", "the_stage.py")


def test_missing_json_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.json is missing; run the_stage\.py first"):
        read_json(tmp_path / "a.json", "the_stage.py")
    with pytest.raises(UserError, match="cannot be read"):
        read_json(tmp_path, "the_stage.py")
