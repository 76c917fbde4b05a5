"""Rows of arrays in `.npz` files: large ones are unpacked once, into a file that takes no memory and goes again."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from datasets import stored
from datasets.stored import forget_members, open_member, read_member, read_photograph
from tests.datasets.sources.finding import noise
from utils.errors import UserError


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_those_of_the_array(tmp_path: Path, save: object, order: str) -> None:
    images, deep = noise(0, 6, 5, 7, 3), noise(1, 4, 9, 9).astype(np.uint16) * 256 + 99
    save(tmp_path / "a.npz", x=np.asarray(images, order=order), deep=np.asarray(deep, order=order))
    for row in (0, 5, 3):
        np.testing.assert_array_equal(read_photograph(tmp_path, f"a.npz#x/{row}"), images[row].transpose(2, 0, 1))
    np.testing.assert_array_equal(read_photograph(tmp_path, "a.npz#deep/3"), np.repeat(deep[3][None] >> 8, 3, axis=0))
    np.testing.assert_array_equal(read_member(tmp_path / "a.npz", "deep"), deep)
    with open_member(tmp_path / "a.npz", "x") as member:
        assert (member.shape, member.dtype) == ((6, 5, 7, 3), np.uint8)


def test_a_member_is_unpacked_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(stored, "open_member", lambda path, name: opened.append(name) or open_member(path, name))
    np.savez_compressed(tmp_path / "a.npz", x=noise(0, 30, 8, 8), y=np.arange(30))
    for row in range(30):
        read_photograph(tmp_path, f"a.npz#x/{row}")
    assert opened == ["x"] and [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    np.savez_compressed(tmp_path / "a.npz", x=noise(1, 30, 8, 8))
    os.utime(tmp_path / "a.npz", ns=(0, 0))
    np.testing.assert_array_equal(read_photograph(tmp_path, "a.npz#x/7")[1], noise(1, 30, 8, 8)[7])
    forget_members()
    read_photograph(tmp_path, "a.npz#x/7")
    assert opened == ["x", "x", "x"]


def test_what_is_wrong_is_found_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(stored, "open_member", lambda path, name: opened.append(name) or open_member(path, name))
    np.savez_compressed(tmp_path / "a.npz", x=noise(0, 200, 32, 32))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    for row in range(5):
        with pytest.raises(ValueError, match=rf"row x/{row} of a\.npz cannot be read \(a\.npz has no readable array x"):
            read_photograph(tmp_path, f"a.npz#x/{row}")
    assert opened == ["x"]


def header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a `.npy` file of bytes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "no readable array x"),
        (b"", "no readable array x|magic"),
        (b"text, and long enough to have a header", "magic"),
        (header((10**6, 10**6, 3)) + bytes(3000), "mmap|length"),
        (header((0, 8, 8)), "empty|mmap|out of bounds"),
    ],
)
def test_broken_members_are_said(tmp_path: Path, content: bytes | None, reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("y.npy" if content is None else "x.npy", content or b"")
    with pytest.raises(ValueError, match=reason):
        read_photograph(tmp_path, "a.npz#x/0")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(ValueError, match="nothing is unpickled"):
        read_photograph(tmp_path, "a.npz#x/0")


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive"])
def test_a_broken_archive_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="no readable array x"):
        read_photograph(tmp_path, "a.npz#x/0")


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    np.savez(tmp_path / "a.npz", x=noise(0, 3, 8, 8))
    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(UserError, match=r"cannot unpack an array there \(No space left on device\); make room"):
        read_photograph(tmp_path, "a.npz#x/0")


def test_rows_of_mnists_own_files(tmp_path: Path) -> None:
    images = noise(0, 3, 4, 6)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(16) + images.tobytes())
    read = read_photograph(tmp_path, f"train-images-idx3-ubyte#{16 + 2 * 24}:4x6")
    np.testing.assert_array_equal(read, np.repeat(images[2][None], 3, axis=0))
