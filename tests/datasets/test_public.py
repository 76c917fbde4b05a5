"""Downloads from plain addresses, against a server of the test's own."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from datasets import public
from datasets.public import PUBLIC, File, fetch
from datasets.sources import SOURCES
from utils.errors import UserError


class Counting(SimpleHTTPRequestHandler):
    """Says nothing, and remembers what was asked for."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server with an archive and a plain file, which stand for the data set "made"."""
    root = tmp_path / "server"
    root.mkdir()
    (root / "plain.npz").write_bytes(b"numbers")
    (tmp_path / "a.jpg").write_bytes(b"picture")
    with tarfile.open(root / "photos.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "a.jpg", "train/a.jpg")
    monkeypatch.setattr(Counting, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Counting, directory=root)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_port}"
        digest = hashlib.md5((root / "photos.tar.gz").read_bytes()).hexdigest()
        files = (File(f"{url}/photos.tar.gz", digest, folder="images"), File(f"{url}/plain.npz", archive=False))
        monkeypatch.setitem(PUBLIC, "made", files)
        yield root
        running.shutdown()


def test_files_come_and_archives_are_unpacked_once(server: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = tmp_path / "data"
    fetch("made", data, dry_run=True)
    assert Counting.asked == [] and not data.exists()
    out = capsys.readouterr().out
    assert "photos.tar.gz" in out and "no checksum is known" in out and "GB free" in out
    fetch("made", data)
    assert (data / "images" / "train" / "a.jpg").read_bytes() == b"picture"
    assert (data / "plain.npz").read_bytes() == b"numbers" and not (data / "photos.tar.gz").exists()
    asked = list(Counting.asked)
    fetch("made", data)
    assert Counting.asked == asked and set(asked) == {"/photos.tar.gz", "/plain.npz"}


def test_another_file_than_the_published_one_is_refused(server: Path, tmp_path: Path) -> None:
    (server / "photos.tar.gz").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"photos\.tar\.gz could not be downloaded"):
        fetch("made", tmp_path / "data")
    assert not (tmp_path / "data" / "images").exists()


def test_what_the_server_does_not_have_is_one_line(server: Path, tmp_path: Path) -> None:
    (server / "plain.npz").unlink()
    with pytest.raises(UserError, match=r"plain\.npz could not be reached"):
        fetch("made", tmp_path / "data")


def test_full_disk_is_told_before(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public.shutil, "disk_usage", lambda _: public.shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(UserError, match="see --data_path"):
        fetch("made", tmp_path / "data")
    assert Counting.asked == []


def test_every_public_data_set_has_a_source_and_sums_are_sums() -> None:
    assert PUBLIC.keys() <= SOURCES.keys()
    for file in (file for files in PUBLIC.values() for file in files):
        assert file.url.startswith("http") and file.name
        assert file.md5 is not None and len(file.md5) == 32 and int(file.md5, 16) >= 0
