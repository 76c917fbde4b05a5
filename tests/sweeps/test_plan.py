"""What --dry_run prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.grid import Job
from sweeps.plan import lines, preparation
from sweeps.runner import Runner

TRAIN = Job("train", (("init.py", "--task", "normal"), ("train.py", "--task", "normal")))
FED = Job("fed", (("fed.py", "--task", "normal", "--method", "moon", "--note", "two words"),), ("train",))
STATES = {"train": "done", "fed": "cut off"}
DURATIONS = {"fed.py normal moon": [3000.0, 5000.0], "fed.py": [9.0], "train.py": [7.0]}


def test_a_plan_for_readers() -> None:
    assert list(lines([TRAIN, FED], STATES, DURATIONS, False)) == [
        "train: done",
        "    python init.py --task normal && python train.py --task normal",
        "fed: cut off, about 1:06:40; needs train",
        "    python fed.py --task normal --method moon --note 'two words'",
        "2 jobs: 1 done, 1 cut off; nothing was written",
    ]
    many = Job("last", (("x.py",),), tuple("abcde"))
    assert next(lines([many], {"last": "new"}, {}, False)) == "last: new; needs the 5 jobs above"


def test_a_plan_for_programs() -> None:
    assert [line.split("\t") for line in lines([TRAIN, FED], STATES, DURATIONS, True)] == [
        ["name", "state", "seconds", "needs", "command"],
        ["train", "done", "7", "", "python init.py --task normal && python train.py --task normal"],
        ["fed", "cut off", "4000", "train", "python fed.py --task normal --method moon --note 'two words'"],
    ]


def test_the_images_come_before_what_needs_nothing_else() -> None:
    made = preparation([("stage.py",)], [TRAIN, FED])
    assert [(job.name, job.needs) for job in made] == [("data", ()), ("train", ("data",)), ("fed", ("train",))]


def test_times_are_kept_for_later_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # put back after the test
    runner = Runner(tmp_path / "logs", 1)
    assert runner.known_durations() == {}
    seen: dict[str, list[float]] = {}
    for job, seconds in ((FED, 10.0), (TRAIN, 2.0), (FED, 20.0)):
        runner._keep_duration(seen, job, seconds)
    with (tmp_path / "logs/durations.tsv").open("a") as file:
        file.write("fed.py norm")  # by a sweep that was killed
    assert runner.known_durations() == seen
    assert seen["fed.py normal moon"] == [10.0, 20.0] and seen[""] == [10.0, 2.0, 20.0]
