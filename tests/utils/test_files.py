"""Writing: the old file or the new one and nothing beside it; reading: errors that name the stage."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from utils.errors import UserError
from utils.files import read_json, write_atomically, write_json


@pytest.mark.parametrize("folder", ["", "new/folder"])
def test_file_appears_with_the_end_of_the_block(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "table.csv"
    with write_atomically(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert (temporary.parent, temporary.suffix) == (path.parent, ".csv")
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
