"""Runs pytest in forks of one process that has imported other people's packages, which takes longer than most tests.

A line of standard input is a JSON list of pytest's arguments; the line that follows on standard output is its exit
code, and what pytest has to say lies in `LOG`. What is tested is the checkout in the present folder, as it is when the
line comes.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module

import pytest

LOG = "tests.log"
PACKAGES = ("torch._dynamo", "torchvision.models", "torchmetrics.image", "accelerate", "sklearn.cluster", "scipy.stats",
            "matplotlib.pyplot", "pandas", "safetensors.torch", "flwr.app")  # fmt: skip


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
