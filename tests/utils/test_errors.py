"""What a script ends with: one line and a code; tests/test_bad_input.py has the mistakes themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from utils.errors import UserError, run_script

def main():
    {body}

run_script(main)
"""


def unread(buffered: bool, *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a Python program whose standard output nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"},
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "body",
    ["print('a line')", "print('a line\\n' * 10**6)", "print('a line', flush=True)", "print('x'); raise SystemExit"],
)
def test_a_reader_that_has_gone_ends_a_script_quietly(body: str, buffered: bool) -> None:
    assert unread(buffered, "-c", SCRIPT.format(body=body)) == (141, "")


def test_help_that_nobody_reads_ends_quietly() -> None:
    assert unread(True, "make_tables.py", "--help") == (141, "")


def test_other_mistakes_keep_their_line_and_code() -> None:
    body = "print('a line'); raise UserError('too small')"
    assert unread(True, "-c", SCRIPT.format(body=body)) == (2, "error: too small\n")


def test_a_pipe_of_the_scripts_own_is_a_fault_of_the_program() -> None:
    body = "import os; reader, writer = os.pipe(); os.close(reader); os.write(writer, b'x')"
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(body=body)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "BrokenPipeError" in done.stderr


def test_a_package_that_is_not_installed_is_named_with_the_remedy() -> None:
    """As in a shell that is not in the environment; `-S` hides all packages that are installed."""
    arguments = ["-S", "extract_datapoints_for_experiments.py", "--data_path", "photos"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: no package ") and done.stderr.endswith("install -r requirements.txt\n")


@pytest.mark.parametrize(
    "command", ["make_certificates.py --n_clients 1", "deploy_client.py --superlink a:1 --folder b"]
)
def test_packages_beyond_the_main_requirements_are_named_with_their_own_file(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", *command.split()], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: no package ")
    assert done.stderr.endswith("install -r requirements.txt -r requirements-flower.txt\n")


@pytest.mark.parametrize("module", ["utils.nothing", "torch.nothing"])
def test_a_module_that_an_installed_package_lacks_is_a_fault_of_the_program(module: str) -> None:
    code = SCRIPT.format(body=f"import {module}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr
