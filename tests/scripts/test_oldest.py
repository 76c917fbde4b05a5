"""The quick part of the tests at both ends of the requirements' ranges: uv and pytest are stand-ins that note it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Makes environments whose python is a stand-in: tests fail where a file of that name says so.
UV = """#!/usr/bin/env bash
echo "$*" >> calls
for last in "$@"; do :; done
if [ "$1" = venv ]; then mkdir -p "$last/bin"; cp python "$last/bin/python"; fi
"""
PYTHON = """#!/usr/bin/env bash
echo "$0 $*" >> calls
[ ! -f "$(dirname "$0")/../fails" ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/oldest.sh", tmp_path / "scripts")
    for name, text in (("programs/uv", UV), ("python", PYTHON)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(checkout: Path, *pythons: str) -> subprocess.CompletedProcess:
    environment = {"PATH": f"{checkout}/programs:/usr/bin:/bin"}
    command = ["bash", str(checkout / "scripts/oldest.sh"), *pythons]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def calls(checkout: Path) -> list[str]:
    return (checkout / "calls").read_text().splitlines()


def test_each_python_runs_the_lowest_and_the_newest_versions(checkout: Path) -> None:
    done = run(checkout, "3.11", "3.13")
    assert done.returncode == 0 and done.stderr == ""
    tested = [call.split()[0] for call in calls(checkout) if call.endswith("@tests/quick.txt")]
    ends = [f"{python}-{end}" for python in ("3.11", "3.13") for end in ("lowest-direct", "highest")]
    assert tested == [f".ends/{end}/bin/python" for end in ends]
    chosen = [call for call in calls(checkout) if call.split()[:2] == ["pip", "compile"]]
    for call, end in zip(chosen, ends, strict=True):
        assert f"--resolution {end.partition('-')[2]} " in call and f"--output-file .ends/{end}/versions.txt " in call
    installed = [call.split()[-1] for call in calls(checkout) if call.split()[:2] == ["pip", "sync"]]
    assert installed == [f".ends/{end}/versions.txt" for end in ends]


def test_all_is_run_before_what_fails_is_named(checkout: Path) -> None:
    (checkout / ".ends/python3-lowest-direct").mkdir(parents=True)
    (checkout / ".ends/python3-lowest-direct/fails").touch()
    done = run(checkout)
    assert done.returncode == 1
    assert done.stderr == "error: tests fail on Python python3 with the lowest-direct versions\n"
    assert calls(checkout)[-1].startswith(".ends/python3-highest/bin/python -m pytest ")


def test_versions_are_chosen_for_every_file_that_the_suite_needs(checkout: Path) -> None:
    run(checkout)
    [lowest, _] = [call for call in calls(checkout) if call.split()[:2] == ["pip", "compile"]]
    suite = (ROOT / "run_tests.sh").read_text().replace("\\\n", " ").partition("environment.sh ")[2].splitlines()[0]
    assert set(suite.split()) <= set(lowest.split())
    assert all((ROOT / word).is_file() for word in lowest.split() if word.startswith("requirements"))


def test_the_quick_part_is_files_that_are_there_once_each() -> None:
    names = (ROOT / "tests/quick.txt").read_text().splitlines()
    assert all((ROOT / name).is_file() for name in names) and len(names) == len(set(names)) > 20
