"""The download against a server of the test's own: what is asked for, what it takes, and what goes wrong."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("omnidata_tools", reason="omnidata-tools is not installed")
from omnidata_tools.dataset import download as omnitools
from omnidata_tools.dataset.starter_dataset import STARTER_DATASET_REMOTE_SERVER_METADATAS, TaskonomyMetadata

from datasets import download
from datasets.sources.taskonomy import View, read_buildings, read_class_names
from utils.errors import UserError

DOMAINS = ("rgb", "class_scene", "normal", "edge_texture", "reshading", "depth_euclidean")
BUILDINGS = ("hanson", "merom", "klickitat", "onaga")  # the first of tiny.csv
FILE_SIZE = 3000
# Stands in for aria2c: takes `-d FOLDER -o NAME … URL`.
ARIA2C = """#!{python}
import sys, urllib.request
words = sys.argv[1:]
folder, name = words[words.index("-d") + 1], words[words.index("-o") + 1]
import os; os.makedirs(folder, exist_ok=True)
urllib.request.urlretrieve(words[-1], os.path.join(folder, name))
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server that has two views per building and domain, in place of the real one."""
    root = tmp_path / "server" / "taskonomy"
    root.mkdir(parents=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root.parent)) as running:
        url = f"http://127.0.0.1:{running.server_port}/taskonomy"
        links = []
        for building in BUILDINGS:
            for domain in DOMAINS:
                links.append(f"{url}/{building}_{domain}.tar")
                with tarfile.open(root / f"{building}_{domain}.tar", "w") as tar:
                    for point in range(2):
                        entry = tarfile.TarInfo(f"{domain}/{View(building, point, 0).path(domain).name}")
                        entry.size = FILE_SIZE
                        tar.addfile(entry, io.BytesIO(bytes(FILE_SIZE)))
        (root / "links.txt").write_text("\n".join(links))
        (root / "md5sum.txt").write_text("")
        monkeypatch.setattr(TaskonomyMetadata, "checksum", lambda self, url: None)
        real = STARTER_DATASET_REMOTE_SERVER_METADATAS[:]
        STARTER_DATASET_REMOTE_SERVER_METADATAS[:] = [TaskonomyMetadata(url)]
        monkeypatch.setattr(omnitools.urllib.request, "urlopen", lambda url: None)  # the form that takes the name
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield root
        running.shutdown()
        STARTER_DATASET_REMOTE_SERVER_METADATAS[:] = real


@pytest.fixture
def aria2c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "aria2c"
    program.parent.mkdir()
    program.write_text(ARIA2C.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def run(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(sys, "argv", ["download", *command.split()])
    download.main()


def test_by_default_all_is_asked_for_that_taskonomy_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(domains: Sequence[str], buildings: Sequence[str]) -> list:
        asked.extend(domains)
        raise UserError("noted")

    monkeypatch.setattr(download, "find_archives", note)
    with pytest.raises(UserError, match="noted"):
        run(monkeypatch, f"--data_path {tmp_path}")
    # Of the folders that the omnidata starter set has for Taskonomy's buildings.
    assert sorted(asked) == [
        "class_scene",
        "depth_euclidean",
        "edge_texture",
        "keypoints3d",
        "normal",
        "principal_curvature",
        "reshading",
        "rgb",
        "segment_semantic",
    ]
    with pytest.raises(UserError, match="--tasks: invalid choice: 'detection'"):
        run(monkeypatch, f"--data_path {tmp_path} --tasks detection")


def test_fetches_the_domains_of_the_tasks_and_the_lists(
    server: Path, aria2c: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    data, names = tmp_path / "data", "--name N --email n@example.org --agree_all"
    command = f"--data_path {data} --tasks edge_texture reshading --taskonomy_clients_to_include 2 {names}"
    run(monkeypatch, command)
    found = {tuple(path.relative_to(data).parts[:3:2]) for path in data.rglob("*_domain_*")}
    needed = ("rgb", "edge_texture", "reshading", "depth_euclidean", "class_scene")  # depth masks reshading
    assert found == {(domain, building) for domain in needed for building in ("hanson", "merom")}
    assert View("merom", 1, 0).find(data, "edge_texture").stat().st_size == FILE_SIZE
    assert read_buildings(data / "tiny.csv")[:4] == list(BUILDINGS)
    assert len(read_class_names(data / "places_class_names.txt")) == 365
    assert not list(data.rglob("*.tar"))
    # A second time there is nothing left to do, and nothing to need space for.
    capsys.readouterr()
    run(monkeypatch, command)
    assert "0.00 GB needed" in capsys.readouterr().out


def test_sizes_are_those_of_the_server(server: Path) -> None:
    archives = download.find_archives(["rgb", "normal"], ["merom", "hanson"])
    assert [(a.building, a.domain) for a in archives] == [
        ("merom", "rgb"),
        ("merom", "normal"),
        ("hanson", "rgb"),
        ("hanson", "normal"),
    ]
    for archive in archives:
        assert archive.size == (server / f"{archive.building}_{archive.domain}.tar").stat().st_size


def test_dry_run_prints_gigabytes_and_downloads_nothing(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for path in server.glob("hanson_*.tar"):
        with path.open("r+b") as file:
            file.truncate(20_000_000)  # sparse: 0.02 GB
    run(monkeypatch, f"--data_path {tmp_path / 'data'} --tasks normal --taskonomy_clients_to_include 1 --dry_run")
    printed = capsys.readouterr().out
    assert [line.split("|")[3].strip() for line in printed.splitlines() if line.startswith("| rgb")] == ["0.02"]
    # Three domains of 0.02 GB, and four archives at a time.
    assert "0.14 GB needed while downloading" in printed
    assert not (tmp_path / "data").exists()


def test_full_disk_is_said_beforehand(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})())
    with pytest.raises(UserError, match=r"GB needed and 0\.00 GB free; see --data_path"):
        run(monkeypatch, f"--data_path {tmp_path / 'data'} --tasks normal")


def test_what_the_server_lacks_is_named(server: Path) -> None:
    with pytest.raises(UserError, match="does not list keypoints3d of hanson"):
        download.find_archives(["rgb", "keypoints3d"], ["hanson"])


def test_server_out_of_reach_is_one_line(server: Path) -> None:
    (server / "hanson_rgb.tar").unlink()
    with pytest.raises(UserError, match="the list of files could not be downloaded"):
        download.find_archives(["rgb"], ["hanson"])


def test_archive_that_does_not_come_is_named(
    server: Path, aria2c: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server / "hanson_normal.tar").write_bytes(b"no archive")
    command = f"--data_path {tmp_path / 'data'} --tasks normal --taskonomy_clients_to_include 1"
    with pytest.raises(UserError, match=r"normal/taskonomy/hanson could not be downloaded; run the same"):
        run(monkeypatch, f"{command} --name N --email n@example.org --agree_all")


def test_missing_program_and_name_are_said(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("USER", raising=False)
    command = f"--data_path {tmp_path / 'data'} --tasks normal --agree_all"
    with pytest.raises(UserError, match="--agree_all True needs --name"):
        run(monkeypatch, command)
    with pytest.raises(UserError, match="--email '' is not an address"):
        run(monkeypatch, f"{command} --name N")
    with pytest.raises(UserError, match="aria2c"):
        run(monkeypatch, f"{command} --name N --email n@example.org")


def test_paper_uses_the_first_three_buildings_of_the_list() -> None:
    assert read_buildings(download.subset_list("tiny"))[:3] == ["hanson", "merom", "klickitat"]
