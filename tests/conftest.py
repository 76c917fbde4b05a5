"""What several tests share: a small rendered data set, and the scripts run as a user runs them."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from datasets.sample_rooms import make_sample_rooms
from datasets.selection import Selection, read_selection, select, write_selection
from datasets.taskonomy import read_buildings
from datasets.tasks import TASKS

ROOT = Path(__file__).parent.parent
# More than one thread makes networks this small slower, most of all next to other work.
torch.set_num_threads(1)
# Processes that begin with everything imported: a fork of one that has done nothing else.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["test_fed", "train_centralized_task_model", "extract_embeddings"])


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak N`: kill every resumable script N times instead of a few."""
    parser.addoption("--soak", type=int, default=3, metavar="N", help="kills of each script that must resume")


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 72 views of two buildings at 32 pixels; not to be changed."""
    path = tmp_path_factory.mktemp("rooms") / "data"
    make_sample_rooms(path, n_buildings=2, views_per_building=36, image_size=32, seed=3)
    return path


@pytest.fixture(scope="session")
def selection(rendered: Path) -> Selection:
    """All its images with all tasks, a quarter held out."""
    table, missing = select(rendered, read_buildings(rendered / "rooms.csv"), list(TASKS), 0.25, 0)
    assert not missing
    write_selection(rendered, table, missing)
    return read_selection(rendered)


@pytest.fixture
def own_copy(rendered: Path, selection: Selection, tmp_path: Path) -> Path:
    """A copy of the data folder that a test may break."""
    return Path(shutil.copytree(rendered, tmp_path / "copy"))


def run_in(folder: Path, command: str, processes: int = 1) -> subprocess.CompletedProcess:
    """Run a script of the project with its arguments in a working folder, over several processes if asked."""
    script, *arguments = command.split()
    launch = [sys.executable]
    if processes > 1:
        launch += f"-m accelerate.commands.launch --multi_gpu --num_processes {processes} --num_machines 1".split()
        launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command_line = [*launch, str(ROOT / script), *arguments]
    return subprocess.run(command_line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def start_in(
    folder: Path, command: str, hook: Callable[[], None] | None = None, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """Start a script like `run_in`, in a process without the seconds of imports; output goes to `folder`/output.txt.

    `hook` is called first, there.
    """
    process = _FORKS.Process(target=_run_forked, args=(folder, command, hook, dict(environment or {})))
    process.start()
    return process


def _run_forked(folder: Path, command: str, hook: Callable[[], None] | None, environment: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ |= {"OMP_NUM_THREADS": "1"} | environment
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    rank = environment.get("RANK", "0")
    output = os.open("output.txt" if rank == "0" else f"output{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    if hook:
        hook()
    script, *sys.argv[1:] = command.split()
    sys.argv[0] = script
    runpy.run_path(str(ROOT / script), run_name="__main__")


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run a script in a working folder of the test's own; the test fails where the script does.

    Without the seconds of imports where one process is enough; its output and errors are then both in `stdout`.
    """

    def run(command: str, processes: int = 1) -> subprocess.CompletedProcess:
        if processes > 1 or not (ROOT / command.split()[0]).is_file():
            done = run_in(tmp_path, command, processes)
        else:
            process = start_in(tmp_path, command)
            process.join()
            output = (tmp_path / "output.txt").read_text(encoding="utf-8")
            done = subprocess.CompletedProcess(command, process.exitcode or 0, output, output)
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    return run


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run a script in this process, in a working folder of the test's own: quick, and with what the test patched."""
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> None:
        script, *arguments = command.split()
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(ROOT / script), run_name="__main__")

    return run


@pytest.fixture(scope="session")
def run_anywhere() -> Callable[..., subprocess.CompletedProcess]:
    """Run a script in a given working folder, whatever its exit code: `run_anywhere(folder, command)`."""
    return run_in
