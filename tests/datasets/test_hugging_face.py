"""This project's `datasets` beside Hugging Face's package of the same name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import datasets
from tests.conftest import ROOT


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages, as if installed: another `datasets`, and a program that takes something from it."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets/__init__.py").write_text("Dataset = 'the other one'\n")
    (tmp_path / "partitioner.py").write_text("from datasets import Dataset\nprint(Dataset)\n")
    return tmp_path


def start(installed: Path, *options: str) -> subprocess.CompletedProcess:
    """Import the program in the checkout, as `python -c "import flwr_datasets"` does."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, *options, "-c", "import partitioner"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_program_in_the_checkout_learns_what_to_do(installed: Path) -> None:
    done = start(installed)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == (
        f"ImportError: Dataset is of Hugging Face's package datasets, which the folder {ROOT / 'datasets'} hides: "
        "start the program in another folder, or with python -P, which leaves the program's folder out of the path"
    )


def test_what_the_line_says_helps(installed: Path) -> None:
    done = start(installed, "-P")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the other one\n", "")


def test_other_names_are_missing_as_in_any_module() -> None:
    assert not hasattr(datasets, "no_such_name") and not hasattr(datasets, "__wrapped__")
