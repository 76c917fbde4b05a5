"""Runs of other code or other data are not compared, or a sentence says that they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.finished import check_versions, finished_runs
from utils.errors import UserError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run, each newer than the one before."""
    number = 0

    def write_run(
        code: str | dict | None, data: str | None = "d", *, stage: str = "test_federated", **args: object
    ) -> Path:
        nonlocal number
        number += 1
        path = tmp_path / stage / f"run{number}"
        path.mkdir(parents=True)
        (path / "args.json").write_text(json.dumps({"task": "normal", "method": "fedavg", "rand_seed": number} | args))
        (path / "summary.json").write_text(json.dumps({"last": number}))
        if code is not None:
            (path / "environment.json").write_text(json.dumps({"code_version": code, "data_version": data}))
        os.utime(path / "summary.json", (1000 + number, 1000 + number))
        return path

    return write_run


def test_newest_of_runs_with_equal_arguments_counts(tmp_path: Path, write: Write) -> None:
    write("a", rand_seed=0, result_path="here")
    write("b", rand_seed=1)
    write("b", rand_seed=0, result_path="there")
    assert [run.summary["last"] for run in finished_runs(tmp_path, "last")] == [2, 3]
    assert check_versions(tmp_path, False) == []  # what was made anew no longer counts


def test_runs_of_one_row_by_two_versions_of_the_code_are_refused_by_name(tmp_path: Path, write: Write) -> None:
    write({"engine": "a" * 64})
    write({"engine": "a" * 64}, type="iid")
    last = write({"engine": "b" * 64}, type="class_based")
    fault = "runs of normal by fedavg were made with 2 versions of the code (engine): aaaaaaaa (2 runs, the last "
    with pytest.raises(UserError) as error:
        check_versions(tmp_path, False)
    assert str(error.value).startswith(fault) and f"bbbbbbbb (1 runs, the last {last})" in str(error.value)
    assert "--mixed_versions True" in str(error.value)
    [line] = check_versions(tmp_path, True)
    assert line.startswith(f"warning: {fault}") and "--mixed_versions" not in line


def test_rows_may_have_versions_of_their_own_and_that_is_said(tmp_path: Path, write: Write) -> None:
    for method, engine in (("fedavg", "a"), ("fedprox", "a"), ("mine", "b"), ("moon", "b"), ("ditto", "b")):
        write({"engine": engine, f"network.algorithms.ALGORITHMS[{method}]": method}, method=method)
    write({"engine": "b"}, method="mine", task="reshading")
    expected = ["2 versions of the code (engine), but one within each task and method: a (normal by fedavg, "
                "normal by fedprox); b (normal by mine, normal by moon, normal by ditto, 1 more)"]  # fmt: skip
    assert check_versions(tmp_path, False) == check_versions(tmp_path, True) == expected


def test_parts_of_the_code_that_one_run_alone_works_with_do_not_count(tmp_path: Path, write: Write) -> None:
    for rule, version in (("iid", "c"), ("paper", "d"), ("paper", "d")):  # an IID split has a rule of its own
        write({"engine": "a", f"network.partition.rules.PARTITIONERS[{rule}]": version})
    assert check_versions(tmp_path, False) == []
    write({"engine": "a", "network.partition.rules.PARTITIONERS[paper]": "e"})
    with pytest.raises(UserError, match=r"2 versions of the code \(PARTITIONERS\[paper\]\): d \(2 runs"):
        check_versions(tmp_path, False)


def test_runs_on_two_versions_of_the_data_are_refused(tmp_path: Path, write: Write) -> None:
    write("a", "one", image_size=32)
    write("a", "two", image_size=64)  # other pixels at another size are no other data
    write("a", "three", task="reshading", image_size=32)
    assert check_versions(tmp_path, False) == []
    write("a", "four", image_size=32, method="mine")
    with pytest.raises(UserError, match=r"2 versions of the data of normal at 32 px: one .*four"):
        check_versions(tmp_path, False)
    assert len(check_versions(tmp_path, True)) == 1


def test_central_models_are_rows_of_their_own(tmp_path: Path, write: Write) -> None:
    write("a", stage="train_centralized", method=None)
    write("b")  # by another script
    assert check_versions(tmp_path, False) == []
    write("c", stage="train_centralized", method=None)
    with pytest.raises(UserError, match=r"runs of normal were made with 2 versions of the code"):
        check_versions(tmp_path, False)


def test_unknown_versions_agree_with_each_other_only(tmp_path: Path, write: Write) -> None:
    write(None)
    write(None)
    assert check_versions(tmp_path, False) == []
    write({"engine": "c"})
    with pytest.raises(UserError, match=r"unknown \(2 runs"):
        check_versions(tmp_path, False)
