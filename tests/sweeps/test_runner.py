"""Whole sweeps, as a user starts, kills and repeats them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from sweeps import work
from sweeps.grid import Job
from sweeps.runner import Runner, _give_up, _note, _progress, _Running, _seconds_left
from tests.conftest import ROOT, fork_all, run_in, start_in
from utils.errors import UserError

COLUMNS = ["train_loss_mean", "train_loss_std", "local_test_loss_mean", "test_loss"]
SWEEP = (
    "run_sweep.py --data_path data --result_path results --tasks normal --seeds 0 --n_clusters 4 --alphas 1 --jobs 2 "
    "--test_mode "
)
RUNS = "results/test_federated/fedavg/normal"


def start(folder: Path, command: str) -> subprocess.Popen:
    """A sweep in the background, with a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *f"{ROOT}/{command}".split()],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def paths(folder: Path) -> dict[Path, bytes | None]:
    """Everything in a folder, files with their content."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def swept(
    rendered: Path, table: object, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[subprocess.CompletedProcess]]:
    """Two sweeps of one grid at once, in which one learning rate is much too high: their folder, and how they ended."""
    folder = tmp_path_factory.mktemp("sweep")
    shutil.copytree(rendered, folder / "data")
    command = f"{SWEEP} --types class_based embedding_based --init_lr 0.05 1e20"
    streams = [(f"output{number}.txt", f"errors{number}.txt") for number in range(2)]
    sweeps = [start_in(folder, command, fork_all, None, *names) for names in streams]
    for sweep in sweeps:
        sweep.join()
    texts = [[(folder / name).read_text() for name in names] for names in streams]
    done = [(sweep.exitcode, *each) for sweep, each in zip(sweeps, texts, strict=True)]
    return folder, [subprocess.CompletedProcess(command, *each) for each in done]


def test_two_sweeps_share_the_work_and_a_failure_stops_neither(
    swept: tuple[Path, list[subprocess.CompletedProcess]],
) -> None:
    folder, sweeps = swept
    for sweep in sweeps:
        assert sweep.returncode == 1
        assert "2 failed, 0 left out" in sweep.stdout.splitlines()[-1], sweep.stderr
        assert sweep.stderr.count("ended with exit code 2:") == 2 and "lower --init_lr" in sweep.stderr
    # None was made twice.
    assert [path.name for path in folder.glob("results/train_centralized/normal/*")] == ["seed0"]
    done = [json.loads((path.parent / "args.json").read_text()) for path in folder.glob(f"{RUNS}/*/*/summary.json")]
    runs = sorted((args["type"], args["init_lr"]) for args in done)
    assert runs == [("class_based", 0.05), ("embedding_based", 0.05)]
    assert len(list(folder.glob("results/logs/*.log"))) == 6


def test_dry_run_tells_what_is_done_and_writes_nothing(swept: tuple, run_anywhere: Callable) -> None:
    folder = swept[0]
    before = paths(folder)
    grid = f"{SWEEP} --types class_based embedding_based --init_lr 0.05 0.06 --dry_run"
    done = run_anywhere(folder, f"{grid} tsv")
    assert done.returncode == 0 and paths(folder) == before, done.stderr
    plan = pd.read_csv(StringIO(done.stdout), sep="\t", keep_default_na=False)
    assert list(plan) == ["name", "state", "seconds", "needs", "command"] and (plan["seconds"].iloc[1:] != "").all()
    rate = plan["command"].str.extract(r"test_fed.*--init_lr (0.0[56]) --type")[0].fillna("")
    assert plan["state"].tolist() == ["new" if each == "0.06" else "done" for each in rate]
    assert sorted(rate) == ["", "", "", "0.05", "0.05", "0.06", "0.06"]  # the images, a model and clusters, and runs
    known = set(plan["name"])
    assert all(known.issuperset(needs.split()) for needs in plan["needs"])
    words = run_anywhere(folder, grid)
    assert words.stdout.splitlines()[-1] == "7 jobs: 5 done, 2 new; nothing was written" and paths(folder) == before


def test_run_of_a_sweep_is_the_run_of_its_script(swept: tuple, run_anywhere: Callable) -> None:
    folder = swept[0]
    sweeps_own = next(folder.glob(f"{RUNS}/embedding_based/*/summary.json")).parent
    command = json.loads((sweeps_own / "environment.json").read_text())["command"]
    alone = " ".join(command).replace("--result_path results", "--result_path alone")
    assert run_anywhere(folder, alone).returncode == 0
    by_hand = folder / "alone" / sweeps_own.relative_to(folder / "results").parent / "equal_size_alpha1_seed0"
    assert pd.read_csv(by_hand / "metrics.csv")[COLUMNS].equals(pd.read_csv(sweeps_own / "metrics.csv")[COLUMNS])


def test_second_sweep_does_what_is_not_done_and_no_more(swept: tuple, run_anywhere: Callable) -> None:
    folder = swept[0]
    grid = f"{SWEEP} --types class_based embedding_based --init_lr 0.05"
    done = run_in(folder, grid)
    *_, counts, next_step = done.stdout.splitlines()
    assert (done.returncode, counts) == (0, "4 jobs: 4 done before, 0 now, 0 failed, 0 left out because of these")
    assert next_step.startswith("figures of these runs: ")
    # By other code, and without the clusters that embedding_based runs need.
    path = next(folder.glob(f"{RUNS}/class_based/*/summary.json")).with_name("environment.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code_version": "older"}))
    done = run_anywhere(folder, f"{grid} --reuse any")
    assert "4 jobs: 4 done before, 0 now" in done.stdout
    assert "warning: runs made with an unknown version of the code, " in done.stderr
    (folder / "results/seed0/assignments_K4/assignments_normal.npy").unlink()
    done = run_anywhere(folder, grid)
    assert "4 jobs: 1 done before, 3 now, 0 failed" in done.stdout
    # Clusters made again are the same, and so is the run on them; only the other is made again.
    finished = {kind: len(list(folder.glob(f"{RUNS}/{kind}_based/*/summary.json"))) for kind in ("class", "embedding")}
    assert finished == {"class": 2, "embedding": 1}


@pytest.mark.parametrize(
    "more, text",
    [
        ("--init_lrr 0.1", "unrecognized arguments: --init_lrr, did you mean --init_lr?"),
        ("--init_arguments encoder=nosuch", "--encoder: 'nosuch' is not one of tiny"),
        ("--init_lr 0.1 x", "'x' is not a number"),
        ("--tasks normal segmentation", "no targets of segmentation"),
    ],
)
def test_a_sweep_that_cannot_run_writes_nothing(
    rendered: Path, run_anywhere: Callable, tmp_path: Path, more: str, text: str
) -> None:
    shutil.copytree(rendered, tmp_path / "data")
    for path in (tmp_path / "data").glob("filtered*"):
        path.unlink()
    before = paths(tmp_path)
    done = run_anywhere(tmp_path, f"{SWEEP} {more}")
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1
    assert paths(tmp_path) == before


def test_killed_sweep_is_taken_up_where_it_was(swept: tuple, run_anywhere: Callable) -> None:
    folder = swept[0]
    grid = f"{SWEEP} --types class_based --result_path other --n_rounds 15 --sgd_per_epoch 4 --test_mode False"
    sweep = start(folder, grid)
    metrics = folder / RUNS.replace("results", "other") / "class_based/equal_size_alpha1_seed0/metrics.csv"
    rounds = 0
    while rounds < 4:
        assert sweep.poll() is None
        time.sleep(0.05)
        rounds = len(pd.read_csv(metrics)) if metrics.is_file() else 0
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    done = run_anywhere(folder, grid)  # at once: it waits for the killed sweep's job to be gone
    assert done.returncode == 0 and "2 done before, 1 now" in done.stdout
    cut_off, log = sorted(folder.glob("other/logs/test_fed-*.log"))  # the killed sweep's output is still its own
    assert f".{sweep.pid}." in cut_off.name and "--resume_training" not in cut_off.read_text()
    assert "--resume_training True" in log.read_text()
    assert len(list(metrics.parents[1].iterdir())) == 1
    command = json.loads(metrics.with_name("environment.json").read_text())["command"]
    assert run_anywhere(folder, " ".join(command).replace("--result_path other", "--result_path whole")).returncode == 0
    whole = pd.read_csv(folder / "whole" / metrics.relative_to(folder / "other"))
    assert pd.read_csv(metrics)[COLUMNS].equals(whole[COLUMNS])


def test_job_that_fails_takes_those_that_need_it_along() -> None:
    needs = {"a": (), "b": ("a",), "c": ("b",), "d": (), "e": ("d", "c")}
    queue = [Job(name, (("x.py",),), of) for name, of in needs.items()][1:]
    assert _give_up(queue, "a") == ["b", "c", "e"]
    assert [job.name for job in queue] == ["d"]


def job(name: str, script: str, needs: tuple[str, ...] = (), task: str = "", method: str = "") -> Job:
    arguments = [("--task", task)] * bool(task) + [("--method", method)] * bool(method)
    return Job(name, ((script, *(word for pair in arguments for word in pair)),), needs)


def noted(*times: tuple[Job, float]) -> dict[str, list[float]]:
    durations: dict[str, list[float]] = {}
    for each, seconds in times:
        _note(durations, each.families, seconds)
    return durations


def since(seconds: float, each: Job) -> _Running:
    return _Running(each, None, 0, time.monotonic() - seconds)


def test_time_left_is_by_kind_of_job() -> None:
    known = noted((job("", "slow.py"), 90), (job("", "slow.py"), 110), (job("", "fast.py"), 10))
    queue = [job(str(i), script) for i, script in enumerate(["slow.py", "slow.py", "fast.py", "new.py"])]
    # 2 * 100 + 10 + the mean of 90, 110 and 10 for what has not run yet, over two processes: 140 seconds.
    assert _seconds_left(queue, [], known, 2) == 140
    assert _progress([], queue, known, 2) == "0 running, about 02:20 left"
    assert _progress([], queue, {}, 2) == "0 running"
    assert _progress([], [], known, 2) == ""


def test_progress_is_told_as_it_is_after_a_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs that end at once; the third fails, which the fourth needs."""

    class Process:
        def __init__(self, target: Callable, args: tuple) -> None:
            self.exitcode, self.sentinel = int(args[0].name == "2"), 0

        def start(self) -> None:
            pass

        join, is_alive = start, start

    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # put back after the test
    monkeypatch.setattr("sweeps.runner.wait", lambda *of, timeout: None)
    monkeypatch.setattr("utils.progress._APART", 0.0)
    runner = Runner(tmp_path, 1)
    monkeypatch.setattr(runner, "_context", SimpleNamespace(Process=Process))
    monkeypatch.setattr(runner, "ask", lambda *about: [])
    runner.run([*(job(str(i), "x.py") for i in range(3)), job("3", "x.py", ("2",))], "sweep")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sweep")]
    assert lines == [
        "sweep: 1 of 4 jobs after 00:00, 1 running, about 00:00 left",
        "sweep: 2 of 4 jobs after 00:00, 1 running, about 00:00 left",
        "sweep: 4 of 4 jobs after 00:00",
    ]


def test_time_left_is_by_task_and_method_where_these_are_known() -> None:
    known = noted(
        (job("", "fed.py", (), "a", "x"), 10),
        (job("", "fed.py", (), "a", "x"), 30),
        (job("", "fed.py", (), "b", "x"), 50),
        (job("", "train.py", (), "a"), 130),
    )
    times = {("a", "x"): 20, ("b", "x"): 50, ("a", "y"): 30, ("c", "x"): 30}  # otherwise the script's mean
    assert {of: _seconds_left([job("", "fed.py", (), *of)], [], known, 1) for of in times} == times
    assert _seconds_left([job("", "train.py", (), "b")], [], known, 1) == 130
    assert _seconds_left([job("", "other.py", (), "a", "x")], [], known, 1) == 55


def test_time_left_is_that_of_the_longest_chain_where_processes_would_be_idle() -> None:
    known = noted((job("", "a.py"), 100), (job("", "b.py"), 10))
    running = [since(20, job("1", "a.py"))]
    assert _seconds_left([], running, known, 2) == pytest.approx(80, abs=0.1)  # and not half of it
    queue = [job("2", "b.py", ("1",)), job("3", "a.py", ("2",)), job("4", "b.py")]
    assert _seconds_left(queue, running, known, 8) == pytest.approx(80 + 10 + 100, abs=0.1)


def test_a_job_that_takes_longer_than_expected_is_not_about_to_end() -> None:
    known = noted((job("", "a.py"), 20))
    left = [_seconds_left([], [since(seconds, job("1", "a.py"))], known, 2) for seconds in range(0, 100, 5)]
    assert left[:4] == pytest.approx([20, 15, 10, 5], abs=0.1)
    assert left[5:] == pytest.approx([*range(5, 80, 5)], abs=0.1)  # as long again as it has overrun


@pytest.mark.parametrize(
    ("error", "line"),
    [(UserError("wrong"), "wrong"), (OSError(errno.ENAMETOOLONG, "Name too long", "n"), "n: Name too long; ")],
)
def test_what_a_question_finds_wrong_is_told(error: Exception, line: str) -> None:
    def question() -> None:
        raise error

    ours, theirs = Pipe(duplex=False)
    work.answer(theirs, question)
    told = ours.recv()
    assert isinstance(told, UserError) and str(told).startswith(line)


def test_jobs_are_spread_over_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple] = []

    class Process:
        def __init__(self, target: Callable, args: tuple) -> None:
            started.append(args)

        def start(self) -> None:
            pass

    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # put back after the test
    runner = Runner(tmp_path, 3, ["4", "7"])
    monkeypatch.setattr(runner, "_context", SimpleNamespace(Process=Process))
    queue, running = [Job(str(i), (("x.py",),), ("first",) * (i == 0)) for i in range(6)], []
    runner._start(queue, running, set())
    assert [(args[0].name, args[-1]) for args in started] == [("1", "4"), ("2", "7"), ("3", "4")]
    del running[1]  # the one on the second GPU has ended
    runner._start(queue, running, {"first"})
    assert (started[-1][0].name, started[-1][-1]) == ("0", "7")
    assert [job.name for job in queue] == ["4", "5"]


def test_no_job_is_left_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # put back after the test
    runner = Runner(tmp_path, 1)
    monkeypatch.setattr(runner, "ask", lambda *_: [])
    with pytest.raises(RuntimeError, match=r"waits for one that is no job of the sweep: fed, after$"):
        runner.run([Job("fed", (("x.py",),), ("clusters",)), Job("after", (("x.py",),), ("fed",))], "sweep")
