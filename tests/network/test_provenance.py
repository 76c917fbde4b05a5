"""What a run was made with: the versions of all that its arguments choose, the sources, and the files that it read."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from datasets.tasks import TASKS
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.algorithms.fedprox import FedProx
from network.partition.rules import PARTITIONERS
from network.provenance import code_version, provenance
from utils.versions import ENGINE, source_hash

GIVEN = {"method": "fednova", "task": "normal", "type": "class_based", "partition": "paper", "encoder": "tiny",
         "decoder": "taskonomy", "alpha": 0.1}  # fmt: skip


def test_version_names_all_that_the_arguments_choose() -> None:
    assert code_version("somewhere/test_fed.py", GIVEN) == {
        "engine": ENGINE["test_fed"],
        "method FedAvg": 1,
        "method FedProx": 1,
        "method FedNova": 1,
        "task normal": 1,
        "partition paper": 1,
        "encoder tiny": 1,
        "decoder taskonomy": 1,
    }
    # An IID partition has its own rule, and networks of timm have no entry.
    other = code_version("test_fed.py", GIVEN | {"type": "iid", "encoder": "timm:resnet18", "method": "fedavg"})
    assert set(other) == {"engine", "method FedAvg", "task normal", "partition iid", "decoder taskonomy"}
    # Batch norm has a version where a model is changed for it.
    names = {given: set(code_version("test_fed.py", {"batch_norm": given}) or ()) for given in ("averaged", "group")}
    assert names == {"averaged": {"engine"}, "group": {"engine", "batch_norm group"}}
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
    assert before == code_version("train_federated.py", GIVEN)
    others = [entry for entry in registry if entry != name]
    monkeypatch.setitem(registry, others[0], replace(registry[others[0]], version=2))
    assert code_version("test_fed.py", GIVEN) == before
    monkeypatch.setitem(registry, name, replace(registry[name], version=2))
    assert code_version("test_fed.py", GIVEN) != before


def test_provenance_is_of_the_script_and_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    monkeypatch.setattr(sys, "argv", ["test_fed.py"])
    monkeypatch.setattr(FedProx, "version", 4, raising=False)
    found = provenance(GIVEN | {"result_path": tmp_path}, "data", [tmp_path / "model"])
    assert found["code_version"]["method FedProx"] == 4 and found["source_hash"] == source_hash()
    assert (found["data_version"], list(found["inputs"])) == ("data", ["model"])
