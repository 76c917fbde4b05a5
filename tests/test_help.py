"""`--help` of every script: quick, because nothing is imported that only a run needs, and in whole phrases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.conftest import ROOT

SCRIPTS = sorted(path.name for path in ROOT.glob("*.py") if "run_script(main" in path.read_text(encoding="utf-8"))
# Each takes a quarter of a second to two seconds to import.
LISTING = {"pandas", "PIL"}  # which the sources of images list files with
HEAVY = {"accelerate", "matplotlib", "pandas", "PIL", "scipy", "sklearn", "torch", "torchmetrics", "torchvision"}


@cache
def help_of(script: str) -> tuple[str, set[str]]:
    """What `--help` prints, and the packages that are imported for it."""
    command = [sys.executable, "-X", "importtime", str(ROOT / script), "--help"]
    environment = os.environ | {"COLUMNS": "120"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported = re.findall(r"^import time:.*\|\s*([\w.]+)$", done.stderr, re.MULTILINE)
    assert "argparse" in imported
    return done.stdout, {name.split(".")[0] for name in imported}


def test_all_scripts_are_found() -> None:
    assert len(SCRIPTS) == 16 and {"test_fed.py", "train_federated.py"} <= {*SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_imports_little_and_says_all(script: str) -> None:
    text, imported = help_of(script)
    assert not imported & (HEAVY - LISTING if script.startswith("extract_datapoints") else HEAVY)
    assert "None" not in text and "[]" not in text and "['" not in text
    # Every argument has a phrase of its own, on its line or below.
    arguments = re.findall(r"^  (--\w+.*(?:\n {4,}.*)*)", text, re.MULTILINE)
    assert len(arguments) >= 2
    for argument in arguments:
        phrase = re.split(r"\s{2,}|\n\s+", argument, maxsplit=1)[1:]
        assert phrase and len(phrase[0].split()) > 1, argument


def test_arguments_stand_under_headings() -> None:
    text, _ = help_of("test_fed.py")
    headings = re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)
    assert {"data", "partition", "local training", "method", "output"} <= set(headings)
    parts = dict(zip(headings, re.split(r"^\w[\w ]+:$", text, flags=re.MULTILINE)[1:], strict=True))
    assert "--data_path" in parts["data"] and "--alpha" in parts["partition"] and "--init_lr" in parts["local training"]
    assert "--mu" in parts["method"] and "--result_path" in parts["output"]
