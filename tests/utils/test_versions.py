"""Versions say what a run was made with: the code as it was loaded, and the files as they are."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils import versions
from utils.program import ENGINE, Program


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of one script with a registry, in place of this one."""
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    (tmp_path / "stage.py").write_text('PARTS: Registry = {"a": 1, "b": 2}\nprint(PARTS)\n')
    yield tmp_path
    versions.code_version.cache_clear()
    versions._program.cache_clear()


def test_the_version_is_of_the_code_as_it_was_loaded(project: Path) -> None:
    before = Program(project / "stage.py").version("ab")
    assert len(before) == 3
    assert versions.code_version("somewhere/stage.py") == {ENGINE: before[ENGINE]}
    (project / "stage.py").write_text("print()")
    assert versions.code_version("stage.py", frozenset("ab")) == before


def test_no_script_has_no_version(project: Path) -> None:
    assert versions.code_version("pytest") is None and versions.code_version("missing.py") is None


def test_words_of_arguments() -> None:
    arguments = {"task": "normal", "tasks": ["a", "b"], "alpha": 0.1, "data_path": Path("data"), "bn": None, "k": [4]}
    assert versions.words_of(arguments) == {"normal", "a", "b"}


def test_provenance_is_of_the_script_and_its_arguments(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["stage.py", "--part", "a"])
    found = versions.provenance(Namespace(part="a", result_path=project), "data", [project / "stage.py"])
    assert found["code_version"] == Program(project / "stage.py").version("a")
    assert (found["data_version"], list(found["inputs"])) == ("data", ["stage.py"])


def test_versions_need_none_of_the_libraries() -> None:
    code = "import sys; from utils.versions import code_version; assert code_version('test_fed.py', frozenset())\n"
    code += "assert not {'torch', 'numpy', 'pandas'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=versions.ROOT, check=True)


def test_stages_depend_on_what_their_numbers_come_from() -> None:
    reached = {
        script: {
            piece.module.name for piece in Program(versions.ROOT / f"{script}.py", versions._ASIDE).parts()[ENGINE]
        }
        for script in ("test_fed", "model_initialization")
    }
    assert "network.simulation" in reached["test_fed"] and "network.simulation" not in reached["model_initialization"]
    for modules in reached.values():
        assert "datasets.tasks" in modules
        assert not any(name.startswith(("tests", "benchmarks", "sweeps")) or "plots" in name for name in modules)


def test_digests_hold_when_all_moves_together(tmp_path: Path) -> None:
    (tmp_path / "old/models").mkdir(parents=True)
    (tmp_path / "old/models/a").write_bytes(b"weights")
    recorded = versions.digests([tmp_path / "old/models/a", tmp_path / "old/none"], tmp_path / "old/runs")
    assert recorded == {"../models/a": hashlib.sha256(b"weights").hexdigest()}
    (tmp_path / "old/runs").mkdir()
    (tmp_path / "old").rename(tmp_path / "new")
    assert versions.unchanged(recorded, tmp_path / "new/runs")
    (tmp_path / "new/models/a").write_bytes(b"others")
    assert not versions.unchanged(recorded, tmp_path / "new/runs")
    (tmp_path / "new/models/a").unlink()
    assert not versions.unchanged(recorded, tmp_path / "new/runs")
