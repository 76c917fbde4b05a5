"""Runs of other code or other data are never put into one table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from utils.errors import UserError
from utils.finished import finished_runs

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run, each newer than the one before."""
    number = 0

    def write_run(code: str | None, data: str | None = "d", **args: object) -> Path:
        nonlocal number
        number += 1
        path = tmp_path / f"run{number}"
        path.mkdir()
        (path / "args.json").write_text(json.dumps({"task": "normal", "rand_seed": number} | args))
        (path / "summary.json").write_text(json.dumps({"last": number}))
        if code is not None:
            (path / "environment.json").write_text(json.dumps({"code_version": code, "data_version": data}))
        os.utime(path / "summary.json", (1000 + number, 1000 + number))
        return path

    return write_run


def test_runs_of_two_versions_of_the_code_are_refused_by_name(tmp_path: Path, write: Write) -> None:
    write("a" * 64)
    write("a" * 64)
    last = write("b" * 64)
    with pytest.raises(UserError) as error:
        finished_runs(tmp_path, "last")
    text = str(error.value)
    assert "runs of normal were made with 2 versions of the code" in text
    assert "aaaaaaaa (2 runs" in text and f"bbbbbbbb (1 runs, the last {last})" in text


def test_runs_on_two_versions_of_the_data_are_refused(tmp_path: Path, write: Write) -> None:
    write("a", "one", image_size=32)
    write("a", "two", image_size=64)  # other pixels at another size are no other data
    write("a", "three", task="reshading", image_size=32)
    assert len(finished_runs(tmp_path, "last")) == 3
    write("a", "four", image_size=32)
    with pytest.raises(UserError, match=r"2 versions of the data: one .*four"):
        finished_runs(tmp_path, "last")


def test_tasks_may_have_versions_of_their_own(tmp_path: Path, write: Write) -> None:
    write("a", task="normal")
    write("b", task="reshading")
    assert len(finished_runs(tmp_path, "last")) == 2


def test_run_that_was_made_anew_no_longer_counts(tmp_path: Path, write: Write) -> None:
    write("a", rand_seed=0, result_path="here")
    write("b", rand_seed=1)
    write("b", rand_seed=0, result_path="there")
    assert [run.summary["last"] for run in finished_runs(tmp_path, "last")] == [2, 3]


def test_unknown_versions_agree_with_each_other_only(tmp_path: Path, write: Write) -> None:
    write(None)
    write(None)
    assert len(finished_runs(tmp_path, "last")) == 2
    write("c")
    with pytest.raises(UserError, match=r"unknown \(2 runs"):
        finished_runs(tmp_path, "last")
