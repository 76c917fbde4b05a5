"""Ctrl-C and SIGTERM at delicate moments, each brought about by the process itself: one line, never a traceback."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

from tests.conftest import ROOT, start_in
from utils import interrupt
from utils.errors import UserError, run_script

ME = "import os, signal, sys, time; me = os.getpid(); "
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run some code with the project at hand, and with Ctrl-C as in a terminal."""
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *code.split("\0")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("package", ["numpy", "torch"])  # for the arguments, and after them
def test_interrupted_while_packages_are_imported(tmp_path: Path, package: str, number: signal.Signals) -> None:
    (tmp_path / f"{package}.py").write_text(f"{ME}os.kill(me, {number}); time.sleep(60)")
    done = run(f"{ROOT}/test_fed.py\0--task\0normal", tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def script(body: str) -> str:
    """A script's code whose `main` is `body`."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"-c\0{ME}from utils.errors import UserError, run_script\n\ndef main():\n{lines}\n\nrun_script(main)"


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    os.kill(me, {0}); time.sleep(60)\nfinally:\n    os.kill(me, {0}); time.sleep(60)",
        "try:\n    os.kill(me, {0}); time.sleep(60)\nexcept KeyboardInterrupt:\n    os.kill(me, {0}); time.sleep(60)",
        "from utils import interrupt\n"
        "with interrupt.deferred():\n"
        "    try:\n        os.kill(me, {0}); os.kill(me, {0}); time.sleep(60)\n"
        "    finally:\n        os.kill(me, {0}); time.sleep(60)",
        "from utils import interrupt\n"
        "try:\n    with interrupt.deferred():\n        os.kill(me, {0}); os.kill(me, {0}); time.sleep(60)\n"
        "finally:\n    os.kill(me, {0}); time.sleep(60)",
    ],
    ids=["cleaning up", "swallowed", "in a training", "after a training"],
)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_further_signal_ends_what_the_first_has_left(tmp_path: Path, body: str, number: signal.Signals) -> None:
    done = run(script(body.format(int(number))), tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("body", "line", "code"),
    [
        ("os.kill(me, {0}); time.sleep(60)", "interrupted\n", 130),
        ("raise UserError('wrong')", "error: wrong\n", 2),
        ("print('all is well')", "", 0),
        ("print('all is well'); sys.exit(1)", "", 1),
    ],
)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_when_all_is_said_changes_nothing_that_was(
    tmp_path: Path, body: str, line: str, code: int, number: signal.Signals
) -> None:
    late = f"import atexit; atexit.register(lambda: (os.kill(me, {number}), time.sleep(60)))\n"
    for before, expected in (("", code), (late, -number)):
        done = run(script(before + body.format(int(number))), tmp_path)
        assert (done.returncode, done.stderr) == (expected, line)
        assert done.stdout == ("" if line else "all is well\n")


def _until_it_is_closed(terminal: FileIO) -> Iterator[bytes]:
    """What is written on a terminal; when nobody can write any more, reading it ends, on Linux with an error."""
    with suppress(OSError):
        yield from iter(lambda: terminal.read(1000), b"")


@pytest.mark.parametrize("rank", ["0", "1"])  # of two processes on one terminal, one says it
def test_at_a_terminal_a_training_says_that_it_has_heard(rank: str) -> None:
    ours, theirs = pty.openpty()
    body = f"from utils import interrupt\nwith interrupt.deferred():\n    os.kill(me, {int(signal.SIGTERM)})"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "LOCAL_RANK": rank}
    command = [sys.executable, *script(body).split("\0")]
    done = subprocess.run(command, env=environment, stderr=theirs, check=False, timeout=300)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        said = b"".join(_until_it_is_closed(terminal)).decode().splitlines()
    heard = ["", "stopping when this step or evaluation is done and saved; once more, and it stops at once"]
    assert (done.returncode, said[:-1]) == (130, heard if rank == "0" else [])
    assert said[-1].startswith("interrupted; all is saved; go on with: python ")


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN); "
    code = script("os.kill(me, signal.SIGINT)\nprint('went on')").replace(ME, ME + ignored)
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


class Interrupting(UserError):
    """A mistake whose text interrupts whoever reads it."""

    def __str__(self) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "never said"


@pytest.mark.parametrize(
    ("error", "line"), [(Interrupting, "interrupted"), (lambda: interrupt.Interrupted("saved"), "saved")]
)
def test_one_line_whatever_happens_while_it_is_made(
    error: Callable[[], BaseException], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error()

    with pytest.raises(SystemExit) as caught:
        run_script(main)
    assert (caught.value.code, capsys.readouterr().err) == (130, f"{line}\n")


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def test_these_tests_do_not_ask_where_they_are_started(tmp_path: Path) -> None:
    command = f"-m pytest -p no:cacheprovider {__file__} -k whatever_happens_while"
    process = start_in(ROOT, command, _ignore, output=tmp_path / "output.txt")
    process.join()
    output = (tmp_path / "output.txt").read_text()
    assert process.exitcode == 0 and "2 passed" in output, output
