"""Which environment the two commands take, and what they install: Python, pip and uname are stand-ins that note it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
# `-m venv` makes an environment whose python is this script again; after `-m pip` nothing is lacking any more.
PYTHON = """#!/usr/bin/env bash
case "$*" in
    "-c "*) exit 0 ;;  # new enough
    "-m venv .venv") echo "venv" >> calls; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip install "*) echo "$0 ${*:2}" >> calls; touch installed ;;
    "scripts/lacking.py "*) [ -f installed ] || echo "torch>=2.11, numpy>=2.0" ;;
    *) exit 9 ;;
esac
"""
PIP = "python -m pip install --requirement requirements.txt --requirement requirements-test.txt"


class Checkout:
    """A folder with the script and stand-ins of `python3` and `uname`, first on the PATH."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "scripts").mkdir()
        shutil.copy(SCRIPTS / "environment.sh", path / "scripts")
        self.program("programs/python3")
        self.program("programs/uname", "#!/bin/sh\necho Linux\n")

    def program(self, name: str, text: str = PYTHON) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return (self.path / "calls").read_text().splitlines() if (self.path / "calls").is_file() else []

    def enter(self, **variables: str) -> subprocess.CompletedProcess:
        """Source the script as run_tests.sh does; prints which python comes first afterwards."""
        command = "set -euo pipefail; source scripts/environment.sh requirements.txt requirements-test.txt; "
        command += "command -v python"
        environment = {"PATH": f"{self.path}/programs:/usr/bin:/bin"} | variables
        return subprocess.run(
            ["bash", "-c", command], cwd=self.path, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_without_an_environment_it_makes_one_and_installs_once(checkout: Checkout) -> None:
    done = checkout.enter()
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == f"{checkout.path}/.venv/bin/python"
    options = "--quiet --disable-pip-version-check"
    installed = f"{checkout.path}/.venv/bin/{PIP.replace('python -m', 'python', 1)} {options}"
    assert checkout.calls == ["venv", installed]
    again = checkout.enter()
    assert again.stdout.splitlines() == [f"{checkout.path}/.venv/bin/python"] and len(checkout.calls) == 2


def test_what_was_added_to_the_requirements_is_installed(checkout: Checkout) -> None:
    checkout.enter()
    (checkout.path / "installed").unlink()
    assert checkout.enter().returncode == 0
    assert [call.split()[0].rsplit("/")[-1] for call in checkout.calls] == ["venv", "python", "python"]


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_is_taken_as_it_is(checkout: Checkout, variable: str) -> None:
    checkout.program("mine/bin/python")
    (checkout.path / "installed").touch()
    done = checkout.enter(**{variable: f"{checkout.path}/mine"}, CONDA_DEFAULT_ENV="mine")
    assert done.returncode == 0 and done.stdout == f"{checkout.path}/mine/bin/python\n" and checkout.calls == []


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_that_lacks_packages_gets_one_line(checkout: Checkout, variable: str) -> None:
    checkout.program("mine/bin/python")
    done = checkout.enter(**{variable: f"{checkout.path}/mine"})
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == "" and checkout.calls == []
    assert line.startswith(f"error: the active environment {checkout.path}/mine lacks torch>=2.11, numpy>=2.0; ")
    assert line.endswith(PIP) and not (checkout.path / ".venv").exists()


def test_the_base_of_conda_is_none(checkout: Checkout) -> None:
    checkout.program("conda/bin/python", "#!/bin/sh\nexit 9\n")
    done = checkout.enter(CONDA_PREFIX=f"{checkout.path}/conda", CONDA_DEFAULT_ENV="base")
    assert done.stdout.splitlines()[-1] == f"{checkout.path}/.venv/bin/python" and checkout.calls[0] == "venv"


def test_its_own_environment_gets_what_it_lacks_when_it_was_entered_by_hand(checkout: Checkout) -> None:
    checkout.enter()
    (checkout.path / "installed").unlink()
    done = checkout.enter(VIRTUAL_ENV=f"{checkout.path}/.venv")
    assert done.returncode == 0 and len(checkout.calls) == 3


def test_an_old_python_makes_nothing(checkout: Checkout) -> None:
    checkout.program("programs/python3", PYTHON.replace("exit 0", "exit 1"))
    done = checkout.enter()
    assert (
        done.returncode == 2 and done.stderr == "error: python3 is not Python 3.11 or newer\n" and checkout.calls == []
    )


def test_an_active_environment_without_python_gets_one_line(checkout: Checkout) -> None:
    (checkout.path / "mine").mkdir()  # as `conda create` without packages makes it
    done = checkout.enter(CONDA_PREFIX=f"{checkout.path}/mine", CONDA_DEFAULT_ENV="mine")
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and checkout.calls == []
    assert line.startswith(f"error: {checkout.path}/mine/bin/python is not Python 3.11 or newer; install one")


def test_other_systems_get_one_line(checkout: Checkout) -> None:
    checkout.program("programs/uname", "#!/bin/sh\necho MINGW64_NT-10.0\n")
    done = checkout.enter()
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "WSL" in done.stderr and not checkout.calls


# What an environment lacks, asked of real ones


def lacking(python: str | Path, *files: Path) -> str:
    command = [python, SCRIPTS / "lacking.py", *files]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_packages_and_versions_that_are_lacking_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("# what is there\npytest>=1  # runner\n\nno-such-package>=1\nnumpy<1\n")
    second.write_text("numpy >= 1, != 1.13.*\nPyTest-Cov\nhypothesis!=6.*\n")
    assert lacking(sys.executable, first, second) == "no-such-package>=1, numpy<1, hypothesis!=6.*"


def test_what_other_systems_need_is_not_lacking(tmp_path: Path) -> None:
    needed = tmp_path / "needed.txt"
    here, elsewhere = f'platform_machine == "{platform.machine()}"', f'platform_machine != "{platform.machine()}"'
    needed.write_text(f"no-such-package>=1; {here} # rays\nno-other-package>=2 ; {elsewhere}\nnumpy<1;{elsewhere}\n")
    assert lacking(sys.executable, needed) == "no-such-package>=1"


def test_an_empty_environment_lacks_everything_and_this_one_nothing(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", symlinks=True)
    needed = SCRIPTS.parent / "requirements.txt"
    names = [line.split(">=")[0] for line in needed.read_text().splitlines() if line[:1].isalpha()]
    said = lacking(tmp_path / "empty/bin/python", needed).split(", ")
    assert len(names) > 15 and [requirement.split(">=")[0] for requirement in said] == names
    assert (
        lacking(sys.executable, *(needed.with_stem(f"requirements{part}") for part in ("", "-taskonomy", "-test")))
        == ""
    )
