"""What several tests share: a small rendered data set, and the scripts run as a user runs them.

What takes seconds to import is imported where it is used: the process that hands out the tests to others needs none.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from utils import interrupt

if TYPE_CHECKING:
    from datasets.table import Table

ROOT = Path(__file__).parent.parent
# The project's modules and scripts, without tests; an environment may lie in the root, and is not searched.
MODULES = [
    *ROOT.glob("*.py"),
    *(path for path in ROOT.glob("[!.]*/**/*.py") if path.relative_to(ROOT).parts[0] != "tests"),
]


def forks() -> ForkServerContext:
    """Where processes begin with everything imported, as a sweep's do: forks of one that has done nothing else.

    That one finds the project by its environment: it is started in whatever folder the first test that needs it is.
    """
    context = multiprocessing.get_context("forkserver")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(ROOT))
        context.set_forkserver_preload(["sweeps.preload", "timm", "tests.conftest"])
        ensure_running()
    return context


def _leave_undrawn(figure: Figure, path: Path, **how: object) -> None:
    if how["format"] == "pdf":
        path.write_bytes(b"%PDF")
    else:
        Image.new("RGB", (1, 1)).save(path, "png")


def _share_a_panel(figure: Figure, nrows: int = 1, ncols: int = 1, *, squeeze: bool = True, **how: object) -> Any:
    panels = np.full((nrows, ncols), figure.add_subplot(), object)
    return (panels.squeeze() if panels.size > 1 else panels.item()) if squeeze else panels


# Drawn, as PNG and as PDF, a figure takes longer than most runs, and so does making one of a hundred panels.
_QUICK: dict[str, Any] = {"savefig": _leave_undrawn, "subplots": _share_a_panel}
IN_FULL = {name: getattr(Figure, name) for name in _QUICK}


def _draw_once(figure: Figure, path: Path, **how: object) -> None:
    (_leave_undrawn if how["format"] == "pdf" else IN_FULL["savefig"])(figure, path, **how)


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Figures are made in one panel and saved as one pixel, but for tests that use `figures`."""
    with pytest.MonkeyPatch.context() as patched:
        for name, quick in _QUICK.items():
            patched.setattr(Figure, name, quick)
        yield


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and drawn in full in this test, in this process, but for their PDF, which is the same again."""
    monkeypatch.setattr(Figure, "savefig", _draw_once)
    monkeypatch.setattr(Figure, "subplots", IN_FULL["subplots"])


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak N`: kill every resumable script N times instead of a few."""
    parser.addoption("--soak", type=int, default=3, metavar="N", help="kills of each script that must resume")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Measure coverage where the tests of what is measured are: it slows what runs in Python by two fifths."""
    if config.pluginmanager.has_plugin("pytest_cov"):
        measured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]["run"]
        for item in items:
            mirrored = item.path.relative_to(ROOT / "tests").parts[0].removeprefix("test_").removesuffix(".py")
            if mirrored not in measured["source"]:
                item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """What is loaded now stays, and is not searched for garbage again and again: with PyTorch, millions of objects."""
    import torch

    torch.set_num_threads(1)  # more make networks this small slower, most of all next to other work
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # runs, tables and figures make many objects that nothing but their count frees


def _as_in_a_terminal() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def signals_and_arguments() -> Iterator[None]:
    """Signals are handled as in a terminal, and they and the arguments put back: scripts leave theirs behind.

    In the background of a script Ctrl-C is ignored, and so it would be in tests that are started there.
    """
    handlers, arguments = {number: signal.getsignal(number) for number in interrupt.SIGNALS}, sys.argv
    _as_in_a_terminal()
    yield
    sys.argv = arguments
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 72 views of two buildings at 32 pixels; not to be changed."""
    pytest.importorskip("embreex", reason="needs embreex, which renders the rooms")
    from datasets.rooms.make import make_sample_rooms
    from datasets.rooms.preview_grid import draw_preview_grid

    path = tmp_path_factory.mktemp("rooms") / "data"
    # In this process: others would take longer to start than these few views to render.
    make_sample_rooms(
        path, n_buildings=2, views_per_building=36, image_size=32, seed=3, n_workers=1, draw=draw_preview_grid
    )
    return path


@pytest.fixture(scope="session")
def table(rendered: Path) -> Table:
    """All its images with all tasks, a quarter held out."""
    from datasets.sources.taskonomy import available_tasks
    from tests.datasets.tables import select_views

    return select_views(rendered, ["aspen", "birch"], available_tasks(rendered), 0.25, 0)


@pytest.fixture(scope="session")
def tiny_diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Stable Diffusion with random weights; tests that need it skip without the optional packages."""
    for package in ("diffusers", "transformers"):
        pytest.importorskip(package, reason=f"needs {package}, of requirements-diffusion.txt")
    from tests.models.teacher.tiny_diffusion import save_tiny_diffusion

    return save_tiny_diffusion(tmp_path_factory.mktemp("diffusion"))


@pytest.fixture
def own_copy(rendered: Path, table: Table, tmp_path: Path) -> Path:
    """A copy of the data folder that a test may break."""
    return Path(shutil.copytree(rendered, tmp_path / "copy"))


def run_in(folder: Path, command: str) -> subprocess.CompletedProcess:
    """Run a script of the project with its arguments in a working folder.

    As a user starts it, and so with the seconds of imports that `run_forked` does without.
    """
    script, *arguments = command.split()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command_line = [sys.executable, str(ROOT / script), *arguments]
    return subprocess.run(command_line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def run_forked(folder: Path, command: str) -> subprocess.CompletedProcess:
    """Run a script like `run_in`, in a process that begins with everything imported; a sweep's jobs are forks of it."""
    hook = fork_all if command.startswith("run_sweep.py") else None
    with TemporaryDirectory() as streams:
        output, errors = Path(streams, "output.txt"), Path(streams, "errors.txt")
        process = start_in(folder, command, hook, output=output, errors=errors)
        process.join()
        texts = [path.read_text(encoding="utf-8") for path in (output, errors)]
    return subprocess.CompletedProcess(command, process.exitcode or 0, *texts)


def start_in(
    folder: Path,
    command: str,
    hook: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
    output: str | Path = "output.txt",
    errors: str | Path = "",
) -> BaseProcess:
    """Start a script like `run_forked`; its output goes to a file in `folder`, and its errors there or to another.

    `hook` is called first, there.
    """
    streams = (output, errors or output)
    process = forks().Process(target=_run_forked, args=(folder, command, hook, dict(environment or {}), streams))
    process.start()
    return process


def start_spread(
    folder: Path, command: str, processes: int, hook: Callable[[], None] | None = None
) -> list[BaseProcess]:
    """Start a script over several processes, as a launcher does; `hook` is called in the last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(port)}
    return [
        start_in(
            folder,
            command,
            hook if rank == processes - 1 else None,
            shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            f"output{rank or ''}.txt",
        )
        for rank in range(processes)
    ]


def _run_forked(
    folder: Path,
    command: str,
    hook: Callable[[], None] | None,
    environment: Mapping[str, str],
    streams: tuple[str | Path, str | Path],
) -> None:
    import torch

    os.chdir(folder)
    os.environ |= {"OMP_NUM_THREADS": "1"} | environment
    torch.set_num_threads(1)
    for name, quick in _QUICK.items():
        setattr(Figure, name, quick)
    _as_in_a_terminal()
    for name in streams:
        Path(name).write_bytes(b"")
    for stream, name in enumerate(streams, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), stream)
    if hook:
        hook()
    _run_script((*command.split(),))


def fork_all() -> None:
    """Let a sweep in this process fork all that it starts: a server, tables and figures would import everything anew.

    Sweeps that are started as a user starts them are in `tests/sweeps/test_runner.py`.
    """
    from tqdm import tqdm

    from sweeps import outputs, sources
    from utils.errors import UserError

    fork = multiprocessing.get_context("fork")

    def run(command: tuple[str, ...]) -> None:
        process = fork.Process(target=_run_script, args=(command,))
        process.start()
        process.join()
        if process.exitcode:
            raise UserError(f"{command} ended with exit code {process.exitcode}")

    tqdm.monitor_interval = 0  # no thread, whose locks forks would inherit
    multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment, misc]
    outputs.run = sources.run = run  # type: ignore[assignment]


def _run_script(command: tuple[str, ...]) -> None:
    sys.argv = list(command[command[0] == "-m" :])
    if command[0] == "-m":
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(ROOT / command[0]), run_name="__main__")


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run a script in a working folder of the test's own; the test fails where the script does."""

    def run(command: str) -> subprocess.CompletedProcess:
        done = run_forked(tmp_path, command)
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
def run_anywhere() -> Callable[[Path, str], subprocess.CompletedProcess]:
    """Run a script in a given working folder, whatever its exit code: `run_anywhere(folder, command)`."""
    return run_forked
