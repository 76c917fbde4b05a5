"""Versions say what a run was made with: what its code declares, the sources as loaded, and the files that it read."""

from __future__ import annotations

import hashlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from datasets.tasks import TASKS
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.algorithms.fedprox import FedProx
from network.partition.rules import PARTITIONERS
from utils import versions
from utils.versions import CodePolicy, code_version

GIVEN = {"method": "fednova", "task": "normal", "type": "class_based", "partition": "paper", "encoder": "tiny",
         "decoder": "taskonomy", "alpha": 0.1}  # fmt: skip


def test_version_names_all_that_the_arguments_choose() -> None:
    assert code_version("somewhere/test_fed.py", GIVEN) == {
        "engine": versions.ENGINE["test_fed"], "method FedAvg": 1, "method FedProx": 1, "method FedNova": 1,
        "task normal": 1, "partition paper": 1, "encoder tiny": 1, "decoder taskonomy": 1,
    }  # fmt: skip
    # An IID split has its own rule, and networks of timm have no entry.
    other = code_version("test_fed.py", GIVEN | {"type": "iid", "encoder": "timm:resnet18", "method": "fedavg"})
    assert set(other) == {"engine", "method FedAvg", "task normal", "partition iid", "decoder taskonomy"}
    assert code_version("train_centralized_task_model.py", {"task": "normal"}) == {"engine": 1, "task normal": 1}
    assert code_version("pytest", GIVEN) is None


@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_methods_version_changes_with_each_class_that_it_is_built_on(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: code_version("test_fed.py", GIVEN | {"method": name}) for name in ALGORITHMS}
    for parent in (each for each in ALGORITHMS[method].mro() if issubclass(each, FedAvg)):
        with monkeypatch.context() as patched:
            patched.setattr(parent, "version", 7, raising=False)
            after = {name: code_version("test_fed.py", GIVEN | {"method": name}) for name in ALGORITHMS}
        assert after[method] != before[method]
        heirs = {name for name, each in ALGORITHMS.items() if issubclass(each, parent)}
        assert {name for name in ALGORITHMS if after[name] != before[name]} == heirs


@pytest.mark.parametrize("registry, name", [(TASKS, "normal"), (PARTITIONERS, "paper")])
def test_an_entrys_version_is_of_runs_that_use_it(registry: dict, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_version("test_fed.py", GIVEN)
    others = [entry for entry in registry if entry != name]
    monkeypatch.setitem(registry, others[0], replace(registry[others[0]], version=2))
    assert code_version("test_fed.py", GIVEN) == before
    monkeypatch.setitem(registry, name, replace(registry[name], version=2))
    assert code_version("test_fed.py", GIVEN) != before


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
    policies = (CodePolicy(), CodePolicy(accept_code=True), CodePolicy(refuse_code=True))
    verdicts = [policy.judge(noted, NOW) for policy in policies]
    assert [verdict.counts for verdict in verdicts] == [by_default, accepted, refused]
    assert all(bool(verdict.difference) == (noted != NOW) for verdict in verdicts)


def test_difference_is_said_in_words() -> None:
    noted = NOW | {"code_version": {"engine": 1, "method FedAvg": 1, "method FedProx": 3}}
    difference = "version 1 of method FedAvg (now 2), version 3 of method FedProx (now none)"
    assert CodePolicy().judge(noted, NOW).difference == difference
    assert CodePolicy().judge(OLD, NOW).difference.startswith("an unknown version of the code")


def test_policy_is_passed_on_as_arguments() -> None:
    for accept, refuse in product((False, True), repeat=2):
        words = CodePolicy(accept, refuse).words
        assert words == ("--accept_code", "True") * accept + ("--refuse_code", "True") * refuse


def test_a_warning_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    versions.warn.cache_clear()
    for line in ("a", "b", "a"):
        versions.warn(line)
    assert capsys.readouterr().err == "warning: a\nwarning: b\n"


def test_provenance_is_of_the_script_and_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    monkeypatch.setattr(sys, "argv", ["test_fed.py"])
    monkeypatch.setattr(FedProx, "version", 4, raising=False)
    found = versions.provenance(Namespace(**GIVEN, result_path=tmp_path), "data", [tmp_path / "model"])
    assert found["code_version"]["method FedProx"] == 4 and found["source_hash"] == versions.source_hash()
    assert (found["data_version"], list(found["inputs"])) == ("data", ["model"])


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
