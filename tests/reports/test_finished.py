"""Runs of other code or other data are not compared, or a sentence says that they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.finished import Results, check_versions, finished_runs
from tests.reports.finish import finish
from utils.errors import UserError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run, each newer than the one before; `code` is its declared versions, or that of the engine."""
    number = 0

    def write_run(code: object, data: str | None = "d", *, stage: str = "test_federated", **args: object) -> Path:
        nonlocal number
        number += 1
        declared = {"engine": code} if isinstance(code, int) else code
        made_with = None if code is None else {"code_version": declared, "data_version": data}
        args = {"task": "normal", "method": "fedavg", "rand_seed": number} | args
        return finish(tmp_path, args, {"last": number}, stage=stage, environment=made_with)

    return write_run


def test_newest_of_runs_with_equal_arguments_counts(tmp_path: Path, write: Write) -> None:
    write(1, rand_seed=0, result_path="here")
    write(2, rand_seed=1)
    write(2, rand_seed=0, result_path="there")
    assert [run.summary["last"] for run in finished_runs(tmp_path)] == [3, 2]
    assert check_versions(Results(tmp_path), False) == []  # what was made anew no longer counts


def test_the_runs_of_a_stage_are_read_once(tmp_path: Path, write: Write) -> None:
    path, results = write(1), Results(tmp_path)
    assert [run.path for run in results["test_federated"]] == [path] and results["train_centralized"] == []
    (path / "args.json").write_text("{")
    assert results["test_federated"][0].args["task"] == "normal" and check_versions(results, False) == []


def test_runs_stand_in_the_order_of_their_arguments_whichever_ended_first(tmp_path: Path, write: Write) -> None:
    expected = [
        {"task": "depth", "method": "moon", "rand_seed": 0},
        {"task": "normal", "method": "fedavg", "rand_seed": 9, "alpha": 0.1},
        {"task": "normal", "method": "fedavg", "rand_seed": 10, "alpha": None},
        {"task": "normal", "method": "fedavg", "rand_seed": 10, "alpha": 1},
        {"task": "normal", "method": "fedavg", "rand_seed": 10, "alpha": 1.5},
        {"task": "normal", "method": "fedavg", "rand_seed": 10, "alpha": "auto"},
        {"task": "normal", "method": "fedavg", "rand_seed": 10, "alpha": ["auto", 1]},
        {"task": "normal", "method": "moon", "rand_seed": 0, "tau": 0.5},
        {"task": "normal", "method": "moon", "rand_seed": 0, "tau": 0.5, "alpha": 0.1},
    ]
    for args in (expected[at] for at in (5, 2, 8, 0, 7, 3, 6, 1, 4)):
        write(1, **args)
    assert [run.args for run in finished_runs(tmp_path)] == expected


def test_runs_of_one_row_by_two_versions_of_the_code_are_refused_by_name(tmp_path: Path, write: Write) -> None:
    write({"engine": 1, "method FedAvg": 1})
    write({"engine": 1, "method FedAvg": 1}, type="iid")
    last = write({"engine": 1, "method FedAvg": 2}, type="class_based")
    fault = "runs of normal by fedavg were made with 2 versions of the code (method FedAvg): 1 (2 runs, such as "
    with pytest.raises(UserError) as error:
        check_versions(Results(tmp_path), False)
    assert str(error.value).startswith(fault) and f"2 (1 runs, such as {last})" in str(error.value)
    assert "--mixed_versions True" in str(error.value)
    [line] = check_versions(Results(tmp_path), True)
    assert line.startswith(f"warning: {fault}") and "--mixed_versions" not in line


def test_rows_may_have_versions_of_their_own_and_that_is_said(tmp_path: Path, write: Write) -> None:
    for method, engine in (("fedavg", 1), ("fedprox", 1), ("mine", 2), ("moon", 2), ("ditto", 2)):
        write({"engine": engine, f"method {method}": 5}, method=method)
    write(2, method="mine", task="reshading")
    expected = [
        "2 versions of the code (engine), but one within each task and method: 1 (normal by fedavg, "
        "normal by fedprox); 2 (normal by ditto, normal by mine, normal by moon and 1 more)"
    ]
    assert check_versions(Results(tmp_path), False) == check_versions(Results(tmp_path), True) == expected


def test_parts_of_the_code_that_one_run_alone_works_with_do_not_count(tmp_path: Path, write: Write) -> None:
    for rule, version in (("iid", 3), ("paper", 4), ("paper", 4)):  # an IID partition has a rule of its own
        write({"engine": 1, f"partition {rule}": version})
    assert check_versions(Results(tmp_path), False) == []
    write({"engine": 1, "partition paper": 5})
    with pytest.raises(UserError, match=r"2 versions of the code \(partition paper\): 4 \(2 runs"):
        check_versions(Results(tmp_path), False)


def test_sources_that_changed_no_declared_version_are_no_other_version(tmp_path: Path, write: Write) -> None:
    for sources in "ab":
        path = write(1) / "environment.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"source_hash": sources}))
    assert check_versions(Results(tmp_path), False) == []


def test_runs_on_two_versions_of_the_data_are_refused(tmp_path: Path, write: Write) -> None:
    write(1, "one", image_size=32)
    write(1, "two", image_size=64)  # other pixels at another size are no other data
    write(1, "three", task="reshading", image_size=32)
    assert check_versions(Results(tmp_path), False) == []
    write(1, "four", image_size=32, method="mine")
    with pytest.raises(UserError, match=r"2 versions of the data of normal at 32 px: one .*four"):
        check_versions(Results(tmp_path), False)
    assert len(check_versions(Results(tmp_path), True)) == 1


def test_central_models_are_rows_of_their_own(tmp_path: Path, write: Write) -> None:
    write(1, stage="train_centralized", method=None)
    write(2)  # by another script
    assert check_versions(Results(tmp_path), False) == []
    write(3, stage="train_centralized", method=None)
    with pytest.raises(UserError, match=r"runs of normal were made with 2 versions of the code"):
        check_versions(Results(tmp_path), False)


@pytest.mark.parametrize("noted", [None, "9f" * 32, {"engine": "9f" * 32, "network.algorithms.ALGORITHMS[fedavg]": ""}])
def test_unknown_versions_agree_with_each_other_only(tmp_path: Path, write: Write, noted: object) -> None:
    write(None)  # from before versions were declared, as is what noted hashes of the code
    write(noted, None)
    assert check_versions(Results(tmp_path), False) == []
    write(3)
    with pytest.raises(UserError, match=r"unknown \(2 runs"):
        check_versions(Results(tmp_path), False)
