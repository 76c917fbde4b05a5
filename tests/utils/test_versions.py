"""Sources and files are told by what they were when they were read, and runs count by the versions that they note."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils import versions
from utils.args import Parser
from utils.errors import UserError
from utils.stage import add_code
from utils.versions import CodePolicy


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of two files, in place of this one."""
    (tmp_path / "models/deep").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for name in ("stage.py", "models/deep/layers.py", "tests/test_stage.py"):
        (tmp_path / name).write_text("print()\n")
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    versions.source_hash.cache_clear()
    yield tmp_path
    versions.source_hash.cache_clear()


def test_hash_is_of_all_sources_as_they_were_loaded(project: Path) -> None:
    def hash_now() -> str:
        versions.source_hash.cache_clear()
        return versions.source_hash()

    before = hash_now()
    (project / "tests/test_stage.py").write_text("other")
    (project / "models/weights.bin").write_text("other")
    assert hash_now() == before
    (project / "models/deep/layers.py").write_text("print()  # aloud\n")
    assert versions.source_hash() == before  # whatever becomes of the files
    changed = hash_now()
    (project / "models/deep/layers.py").rename(project / "models/layers.py")
    assert len({before, changed, hash_now()}) == 3


# Which runs count

NOW = {"code_version": {"engine": 1, "method FedAvg": 2}, "source_hash": "a"}
OLD = {"code_version": {"engine": "4be1"}}  # a hash for each part, as it was noted once


@pytest.mark.parametrize(
    "noted, by_default, accepted, refused",
    [
        (NOW, True, True, True),
        (NOW | {"source_hash": "b"}, True, True, False),
        (NOW | {"code_version": {"engine": 1, "method FedAvg": 1}}, False, True, False),
        (OLD, False, True, False),
        ({"code_version": "4be1"}, False, True, False),
        ({}, False, True, False),
    ],
)
def test_declared_versions_decide_unless_it_is_said_otherwise(
    noted: dict, by_default: bool, accepted: bool, refused: bool
) -> None:
    policies = (CodePolicy(), CodePolicy("any"), CodePolicy("same_source"))
    verdicts = [policy.judge(noted, NOW) for policy in policies]
    assert [verdict.counts for verdict in verdicts] == [by_default, accepted, refused]
    assert all(bool(verdict.difference) == (noted != NOW) for verdict in verdicts)


def test_difference_is_said_in_words() -> None:
    noted = NOW | {"code_version": {"engine": 1, "method FedAvg": 1, "method FedProx": 3}}
    difference = "version 1 of method FedAvg (now 2), version 3 of method FedProx (now none)"
    assert CodePolicy().judge(noted, NOW).difference == difference
    assert CodePolicy().judge(OLD, NOW).difference.startswith("an unknown version of the code")


def test_policy_is_passed_on_as_arguments() -> None:
    assert CodePolicy().words == () and CodePolicy("any").words == ("--reuse", "any")


@pytest.mark.parametrize(
    ("words", "reuse"),
    [
        ("", "same_version"), ("--reuse same_source", "same_source"), ("--accept_code True", "any"),
        ("--accept_code", "any"), ("--refuse_code True", "same_source"), ("--refuse_code False", "same_version"),
    ],
)  # fmt: skip
def test_flags_of_before_say_what_is_reused(words: str, reuse: str) -> None:
    parser = Parser("a script")
    add_code(parser)
    assert CodePolicy.from_config(vars(parser.parse_args(words.split()))) == CodePolicy(reuse)
    assert "accept_code" not in parser.format_help()


@pytest.mark.parametrize("words", ["--accept_code True --refuse_code True", "--reuse any --refuse_code True"])
def test_what_is_reused_is_said_once(words: str) -> None:
    parser = Parser("a script")
    add_code(parser)
    with pytest.raises(UserError, match="not allowed with argument"):
        parser.parse_args(words.split())


def test_a_warning_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    versions.warn.cache_clear()
    for line in ("a", "b", "a"):
        versions.warn(line)
    assert capsys.readouterr().err == "warning: a\nwarning: b\n"


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
