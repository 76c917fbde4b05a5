"""How threads wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def said(program: str, **environment: str) -> str:
    """What a program prints on both streams, where nothing but this says how threads wait."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=plain | environment, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def test_pytorchs_threads_sleep_where_the_project_is_imported_first() -> None:
    lines = [line for line in said("import utils, torch", OMP_DISPLAY_ENV="TRUE").splitlines() if "WAIT_POLICY" in line]
    if not lines:
        pytest.skip("the runtime of PyTorch's threads does not tell its settings")
    assert all("PASSIVE" in line for line in lines)


def test_what_the_user_says_holds() -> None:
    program = "import os, utils; print(os.environ['OMP_WAIT_POLICY'])"
    assert said(program, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE\n"
