"""Versions of code change with what the code does, and with nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from utils import versions

FILES = {
    "stage.py": '"""A stage."""\nfrom package import part\nimport numpy\n\ndef main():\n    return part.run()\n',
    "package/part.py": "from package.deep.base import Base\n\ndef run():\n    return Base\n",
    "package/deep/base.py": "class Base:\n    size = 3\n",
    "package/deep/__init__.py": "",
    "package/__init__.py": "",
    "package/unused.py": "x = 1\n",
    "utils/plots.py": "import package.unused\n",
}
Version = Callable[..., str]


@pytest.fixture
def version_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Version]:
    """The version of a small project's stage with some files' content replaced."""
    monkeypatch.setattr(versions, "ROOT", tmp_path)

    def version(changed: Mapping[str, str] = MappingProxyType({})) -> str:
        for name, text in {**FILES, **changed}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        versions.code_version.cache_clear()
        found = versions.code_version("somewhere/stage.py")
        assert found is not None
        return found

    yield version
    versions.code_version.cache_clear()


@pytest.mark.parametrize(
    "changed",
    [
        {"package/unused.py": "x = 2\n"},
        {"stage.py": '"""Text."""\nfrom package import part  # why\nimport numpy\ndef main(): return part.run()\n'},
        {"package/deep/base.py": 'class Base:\n    """A docstring\n    of two lines."""\n\n    size = (3)\n'},
        {"README.md": "text"},
        {"utils/plots.py": "draw = 1\n", "stage.py": FILES["stage.py"]},
    ],
)
def test_text_layout_and_strangers_leave_the_version_alone(version_of: Version, changed: dict[str, str]) -> None:
    assert version_of(changed) == version_of()


@pytest.mark.parametrize(
    "changed",
    [
        {"stage.py": FILES["stage.py"].replace("run()", "run(1)")},
        {"package/deep/base.py": "class Base:\n    size = 4\n"},  # three imports away
        {"stage.py": FILES["stage.py"].replace("import numpy", "import package.unused")},
    ],
)
def test_code_that_a_stage_needs_changes_its_version(version_of: Version, changed: dict[str, str]) -> None:
    assert version_of(changed) != version_of()


def test_what_a_package_runs_when_imported_counts(version_of: Version) -> None:
    for name in ("package/deep/__init__.py", "package/__init__.py"):
        assert version_of({name: "flag = True\n"}) != version_of({name: ""})


def test_modules_that_only_draw_have_no_part_in_it(version_of: Version) -> None:
    drawing = {"stage.py": FILES["stage.py"] + "import utils.plots\n"}
    others = {"utils/plots.py": "import package.part\n", "package/unused.py": "x = 9\n"}
    assert version_of(drawing) == version_of(drawing | others)


def test_no_script_has_no_version(version_of: Version) -> None:
    version_of()
    assert versions.code_version("pytest") is None and versions.code_version("missing.py") is None


def test_stages_depend_on_what_their_numbers_come_from() -> None:
    scripts = (versions.ROOT / f"{name}.py" for name in ("test_fed", "model_initialization"))
    federated, initial = (set(versions._sources(script)) for script in scripts)
    algorithms = {path.relative_to(versions.ROOT).as_posix() for path in versions.ROOT.glob("network/algorithms/*.py")}
    assert algorithms <= federated and not algorithms & initial
    assert {"losses.py", "utils/metrics.py"} <= federated
    for sources in (federated, initial):
        assert "datasets/tasks.py" in sources
        assert not any(name.startswith(("tests/", "benchmarks/", "sweeps/")) or "plots" in name for name in sources)


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
