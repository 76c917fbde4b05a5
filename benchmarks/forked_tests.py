"""Tests that run in forks of a process which has imported other people's packages: that takes longer than most tests.

Run as a module, this is that process. A line of its standard input is a JSON list of pytest's arguments, the line that
follows on standard output pytest's exit code; what pytest has to say lies in `LOG`. What is tested is the checkout in
the present folder, as it is when the line comes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

LOG = "tests.log"
LONGEST = 600.0  # seconds of a call of pytest
PACKAGES = (
    "torch._dynamo",
    "torchvision.models",
    "torchmetrics.image",
    "accelerate",
    "sklearn.cluster",
    "scipy.stats",
    "matplotlib.pyplot",
    "networkx",
    "trimesh",
    "pandas",
    "safetensors.torch",
    "flwr.app",
)


class ForkedTests:
    """The process for a checkout; it starts with the first call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process: subprocess.Popen[str] | None = None

    def exit_code(self, arguments: list[str]) -> int:
        """Pytest's exit code; that of failed tests where they do not end in time."""
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-m", "benchmarks.forked_tests"],
            cwd=self.root,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout
        print(json.dumps(arguments), file=process.stdin, flush=True)
        if select.select([process.stdout], [], [], LONGEST)[0]:
            return int(process.stdout.readline())
        self.close()
        return int(pytest.ExitCode.TESTS_FAILED)

    def last_line(self) -> str:
        """The last line that pytest has printed."""
        return (self.root / LOG).read_text(errors="replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        """End the process, with all that it has started."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def main() -> None:
    """Answer until standard input ends."""
    for name in PACKAGES:
        with suppress(ImportError):
            import_module(name)
    for line in sys.stdin:
        if not (child := os.fork()):
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1), os.dup2(log, 2)
            os._exit(pytest.main(json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
