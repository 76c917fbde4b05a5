"""The folder of wheels for a machine without a network: what it lacks, what fits, and how it is unpacked there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import wheels
from scripts.wheels import closure, fitting, make, named, roots_of
from tests.conftest import ROOT
from utils.errors import UserError

# What pip would report: the machine has torch and what that needs, by an extra, too.
REPORT = {
    "torch": ["sympy>=1.13", 'toolkit[fft,blas]==13; sys_platform == "linux"', 'opt; extra == "opt"'],
    "sympy": [],
    "toolkit": ['cufft==1; extra == "fft"', 'cublas==1; extra == "blas"', "cusolver==1; extra == 'solver'"],
    "cufft": [],
    "cublas": [],
    "cusolver": [],
    "timm": ["torch", "Hub_Client>=1"],
    "hub-client": [],
    "scipy": [],
    "scikit-learn": ["scipy>=1.8", "joblib"],
    "joblib": [],
    "pandas": ['fsspec; extra == "all"'],
}
SIZES = {"timm": 3, "hub-client": 1, "scipy": 35, "scikit-learn": 9, "joblib": 1, "pandas": 11, "cusolver": 2}
PACKAGES = {name: {"name": name.title(), "version": "1.0", "requires_dist": needs} for name, needs in REPORT.items()}


@pytest.fixture
def _index(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index, as pip reads it, of packages whose wheels have so many megabytes."""

    def pip(*words: str) -> None:
        if words[0] == "install":
            installed = [{"metadata": package} for package in PACKAGES.values()]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": installed}))
            return
        folder = Path(words[words.index("--dest") + 1])
        folder.mkdir()
        for name in (word.partition("==")[0] for word in words if "==" in word):
            with (folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl").open("wb") as file:
                file.truncate(SIZES[name] * 1_000_000)

    monkeypatch.setattr(wheels, "pip", pip)


def settings(tmp_path: Path, megabytes: float, **more: Any) -> dict[str, Any]:
    (tmp_path / "requirements.txt").write_text(
        "torch>=2\n# others\nscikit-learn>=1.6  # K-means\npandas\ntimm>=1 # encoders\n"
    )
    given = {"has": ["torch==2.11.*"], "requirements": [tmp_path / "requirements.txt"], "further": []}
    return given | {"megabytes": megabytes, "output_path": tmp_path / "out"} | more


@pytest.mark.usefixtures("_index")
@pytest.mark.parametrize(
    ("megabytes", "inside", "left_out"),
    [
        (60, {"timm", "hub_client", "pandas", "scikit_learn", "scipy", "joblib"}, ["cusolver 1.0 (2.0 MB)"]),
        (
            59.9,
            {"timm", "hub_client", "pandas"},
            ["cusolver 1.0 (2.0 MB)", "scipy 1.0 (35.0 MB)", "scikit-learn 1.0 (9.0 MB)", "joblib 1.0 (1.0 MB)"],
        ),
        (14.9, {"pandas"}, None),
    ],
)
def test_what_the_machine_lacks_is_taken_by_importance_and_what_does_not_fit_named(
    megabytes: float, inside: set[str], left_out: list[str] | None, tmp_path: Path
) -> None:
    named = make(**settings(tmp_path, megabytes))
    assert {path.name.partition("-")[0] for path in (tmp_path / "out").iterdir()} == inside
    assert left_out is None or named == left_out


@pytest.mark.usefixtures("_index")
def test_what_comes_with_what_the_machine_has_does_not_travel(tmp_path: Path) -> None:
    make(**settings(tmp_path, 1000, has=["torch", "scikit_learn==1.9.1"]))
    names = {path.name.partition("-")[0] for path in (tmp_path / "out").iterdir()}
    assert names == {"timm", "hub_client", "pandas"}
    with pytest.raises(UserError, match="out is not empty"):
        make(**settings(tmp_path, 1000))


def test_extras_bring_what_they_name() -> None:
    assert closure(["torch"], PACKAGES) == ["torch", "sympy", "toolkit", "cufft", "cublas"]
    assert closure(["timm"], PACKAGES)[0] == "timm" and "hub-client" in closure(["timm"], PACKAGES)
    assert named("Scikit_Learn[all]>=1 # x") == "scikit-learn"


def test_a_root_that_does_not_fit_takes_no_room() -> None:
    needs = {"a": ["a", "b"], "c": ["c", "b"], "d": ["d"]}
    assert fitting(["a", "c", "d"], needs, {"a": 5, "b": 3, "c": 1, "d": 3}, 7) == ["c", "b", "d"]


def test_what_every_measurement_imports_is_required_and_comes_first() -> None:
    roots = [named(line) for line in roots_of([ROOT / "requirements.txt"])]
    assert roots[: len(wheels.FIRST)] == [named(name) for name in wheels.FIRST]
    assert len(roots) == len(set(roots)) and {"torch", "scipy", "matplotlib"} <= set(roots)


def test_what_pip_refuses_is_named() -> None:
    with pytest.raises(UserError, match=r"pip: .*no-such-file\.txt"):
        wheels.pip("install", "--dry-run", "-r", "no-such-file.txt")


# Unpacking


def wheel(folder: Path, tag: str) -> None:
    """A wheel of one module that says where it lies."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"carried-1.0-{tag}.whl", "w") as file:
        file.writestr("carried.py", "WHERE = __file__\n")
        about = "carried-1.0.dist-info"
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{about}/RECORD", "")


def started(*words: object) -> subprocess.CompletedProcess:
    command = ["bash", str(ROOT / "scripts/with_wheels.sh"), *map(str, words)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_a_program_finds_what_the_folder_has_and_nothing_stays(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "py3-none-any")
    done = started(tmp_path / "wheels", sys.executable, "-c", "import carried, losses; print(carried.WHERE); exit(3)")
    assert done.returncode == 3 and done.stderr == ""
    assert done.stdout.strip().endswith("/carried.py") and not Path(done.stdout.strip()).parent.exists()


def test_a_wheel_of_another_python_is_named(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "cp27-cp27m-linux_x86_64")
    done = started(tmp_path / "wheels", sys.executable, "-c", "")
    assert done.returncode == 2
    assert done.stderr == "error: carried-1.0-cp27-cp27m-linux_x86_64.whl is not a supported wheel on this platform.\n"
    assert started(tmp_path, sys.executable, "-c", "").stderr.startswith("error: give a folder of wheels")
