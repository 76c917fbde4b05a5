"""Sweeps on a cluster: what Slurm is asked, what a node does, and all of it on a Slurm of the tests' own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps import cluster as tested
from sweeps import work
from sweeps.cluster import Cluster, Submitted, arrays, minutes, read_arguments
from sweeps.expand import parsed_jobs
from sweeps.grid import Job
from sweeps.runner import Outcome
from tests.conftest import ROOT, forks, run_forked
from tests.sweeps import slurm
from tests.sweeps.light import Light, answers, begun
from utils.errors import UserError
from utils.versions import DECLARED, CodePolicy

needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="needs requirements-cluster.txt")


@pytest.mark.parametrize(
    "text, expected",
    [("90", 90), ("1:30", 2), ("90:00", 90), ("1:30:00", 90), ("1-12", 2160), ("1-1:30", 1530), ("2-0:00:01", 2881)],
)
def test_times_are_read_as_slurm_reads_them(text: str, expected: int) -> None:
    assert minutes(text) == expected  # by sbatch's page: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s


@pytest.mark.parametrize("text", ["0", "soon", "1:2:3:4", "-5", "1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        minutes(text)


@pytest.mark.parametrize(
    "pairs, line",
    [
        ({"time": "9", "partitoin": "x"}, "partitoin: unknown, did you mean partition"),
        ({"partition": "x"}, "no time"),
        ({"time": "9", "mem_gb": "much"}, "mem_gb: 'much' is not a number"),
        ({"time": "9", "nodes": "2"}, "nodes: unknown"),
    ],
)
def test_arguments_that_slurm_would_not_take_are_refused(pairs: dict[str, str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        read_arguments([*pairs.items()])


def test_arrays_are_of_the_same_needs_and_no_longer_than_allowed() -> None:
    jobs = [light("a"), light("b"), light("c", ("a",)), light("d"), light("e", ("b",)), light("f", ("a",))]
    assert [[job.name for job in array] for array in arrays(jobs, 2)] == [["a", "b"], ["d"], ["c", "f"], ["e"]]


def light(name: str, needs: tuple[str, ...] = (), command: str = "do") -> Job:
    return Job(name, ((command,),), needs)


@pytest.fixture
def lit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    """Clusters whose jobs are light ones."""
    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back after the test
    monkeypatch.setattr(tested, "Submitted", Light)
    monkeypatch.setattr(tested, "_APART", 0.3)

    def make(wait: bool = True, at_once: int | None = None, **arguments: str) -> Cluster:
        made = Cluster(read_arguments([*({"time": "10"} | arguments).items()]), at_once, wait, DECLARED)
        made.log_path = tmp_path / "logs"
        monkeypatch.setattr(made, "ask", answers(made.log_path))
        return made

    return make


@pytest.fixture
def told_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of Slurm: it has what sbatch was given, and `queue`, which squeue shows."""
    folder = tmp_path / "slurm"
    (folder / "bin").mkdir(parents=True)
    (folder / "queue").touch()
    programs = {
        "sbatch": "n=$(ls $D/*.sh 2>/dev/null | wc -l)\n"
        "[ -e $D/full ] && [ $n -ge 1 ] && { echo QOS limit >&2; exit 1; }\n"
        'cp "$1" $D/$n.sh; echo "Submitted batch job $((100 + n))"',
        "squeue": "cat $D/queue",
        "scontrol": 'echo "MaxArraySize            = 2"',
        "srun": "exit 1",
    }
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\nD={shlex.quote(str(folder))}\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


JOBS = [light("a"), light("b", ("a",)), light("c", ("a",)), light("d", ("a",))]


@needs_submitit
def test_what_slurm_is_asked_for(lit: Callable[..., Cluster], told_slurm: Path) -> None:
    outcome = lit(False, 1, partition="gpu", gpus_per_node="1", mem_gb="1.5", cpus_per_task="3").run(JOBS, "table")
    assert outcome == Outcome([], [], [], [], ["a", "b", "c", "d"])
    first, array, rest = (
        {line.removeprefix("#SBATCH --") for line in path.read_text().splitlines() if line.startswith("#SBATCH")}
        for path in sorted(told_slurm.glob("*.sh"))
    )
    common = {"partition=gpu", "gpus-per-node=1", "mem=1536MB", "cpus-per-task=3", "time=10", "requeue"}
    assert all(common | {"job-name=table"} <= each for each in (first, array, rest))
    assert {"array=0-1%1", "dependency=afterok:100", "kill-on-invalid-dep=yes"} <= array
    assert {"dependency=afterok:100", "kill-on-invalid-dep=yes"} <= rest
    assert not [line for line in first if line.startswith(("array", "dependency", "kill"))]
    text = (told_slurm / "1.sh").read_text()
    assert "export OMP_NUM_THREADS=3" in text and "--cpus-per-task 3" in text and str(ROOT) in text
    known = json.loads((told_slurm.parent / "logs/cluster/submitted.json").read_text())
    assert known == {"a": "100", "b": "101_0", "c": "101_1", "d": "102"}


@needs_submitit
def test_the_same_command_submits_what_is_missing_and_no_more(
    lit: Callable[..., Cluster], told_slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = told_slurm.parent / "logs"
    lit(False).run(JOBS, "table")
    queue = "101_0|RUNNING|None\n101_1|PENDING|Priority\n102|PENDING|DependencyNeverSatisfied\n7_1|PENDING|None\n"
    (told_slurm / "queue").write_text(queue)
    (logs / "a.done").touch()
    (logs / "d.102.log").write_text("one\n\nlast words\n")
    assert lit(False).states(JOBS) == {"a": "done", "b": "running", "c": "waiting", "d": "failed"}
    outcome = lit(False).run(JOBS, "table")
    assert outcome == Outcome(["a"], [], [], [], ["b", "c", "d"])
    assert "    last words\n" in capsys.readouterr().err
    assert len(list(told_slurm.glob("*.sh"))) == 4 and "dependency" not in (told_slurm / "3.sh").read_text()
    (told_slurm / "queue").write_text("")
    assert lit().states(JOBS)["b"] == "failed"
    for name in "bcd":
        (logs / f"{name}.done").touch()
    assert lit().run(JOBS, "table") == Outcome(["a", "b", "c", "d"], [], [], [])


@needs_submitit
def test_what_slurm_has_taken_before_it_refused_is_kept(lit: Callable[..., Cluster], told_slurm: Path) -> None:
    (told_slurm / "full").touch()
    with pytest.raises(UserError, match=r"sbatch has refused a job: .*QOS limit"):
        lit(False).run(JOBS, "table")
    assert json.loads((told_slurm.parent / "logs/cluster/submitted.json").read_text()) == {"a": "100"}


def test_without_slurm_a_line_says_so(
    lit: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no program scontrol"):
        lit().run(JOBS, "table")


def node(folder: Path, submitted: list[Submitted]) -> None:
    """Does what a node does, through submitit's executor for debugging, one job after the other; ends like the last."""
    from submitit.local.debug import DebugExecutor

    os.chdir(folder)
    executor = DebugExecutor("logs/cluster")
    for each in submitted:
        executor.submit(each).results()


def on_node(folder: Path, *submitted: Submitted) -> int | None:
    """The exit code of a process that does what a node does."""
    process = forks().Process(target=node, args=(folder, list(submitted)))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture
def prepared(rendered: Path, table: object, tmp_path: Path) -> Path:
    """A working folder with the selected images in `data`."""
    shutil.copytree(rendered, tmp_path / "data")
    return tmp_path


def initial(lr: str = "0.01") -> Job:
    model = ("--task", "normal", "--data_path", "data", "--init_model_dir", "models")
    init = ("model_initialization.py", *model, "--encoder", "tiny", "--image_size", "32")
    train = ("train_centralized_task_model.py", *model, "--checkpoint_path", "models", "--init_lr", lr)
    return Job("train", (init, (*train, "--test_mode", "True")))


def present(folder: Path, job: Job) -> tuple[Job, dict[str, Any]]:
    """A job with its configurations, and its present code and data."""
    queue = forks().SimpleQueue()
    process = forks().Process(target=_put_present, args=(queue, folder, job))
    process.start()
    process.join()
    return queue.get()


def _put_present(queue: Any, folder: Path, job: Job) -> None:
    os.chdir(folder)
    [job] = parsed_jobs([job])
    queue.put((job, work.made_with([job])[job.name]))


@needs_submitit
def test_a_node_does_the_job_and_only_once(prepared: Path) -> None:
    job, made_with = present(prepared, initial())
    submitted = Submitted(job, Path("logs"), DECLARED, made_with)
    assert submitted.checkpoint().function == submitted
    assert on_node(prepared, submitted) == 0
    [log] = (prepared / "logs").glob("train.DEBUG_*.log")
    assert "train_centralized_task_model.py" in log.read_text() and "--resume_training" not in log.read_text()
    log.unlink()
    assert on_node(prepared, submitted) == 0
    [log] = (prepared / "logs").glob("train.DEBUG_*.log")
    assert log.read_text().splitlines()[0] == "done already, by another sweep"


@needs_submitit
@pytest.mark.parametrize(
    "change, policy, line",
    [
        (
            {"code_version": {"engine": 0, "task normal": 1}},
            DECLARED,
            "the code has changed since .*version 0 of engine",
        ),
        ({"source_hash": "other"}, CodePolicy("same_source"), "the code has changed since .*other source files"),
        ({"table": "other"}, DECLARED, "the images have changed since"),
        ({"packed": "other"}, DECLARED, "the images have changed since"),
    ],
)
def test_a_node_refuses_what_was_not_submitted(
    prepared: Path, change: dict[str, Any], policy: CodePolicy, line: str
) -> None:
    job, made_with = present(prepared, initial())
    submitted = Submitted(job, Path("logs"), policy, made_with | change)
    assert on_node(prepared, submitted) == 2
    [log] = (prepared / "logs").glob("*.log")
    [said] = log.read_text().splitlines()
    assert re.search(line, said) and not (prepared / "models").exists() and not (prepared / "results").exists()


# The real thing.


@pytest.fixture(scope="module")
def real() -> Iterator[Path]:
    """The configuration of a Slurm of these tests' own."""
    pytest.importorskip("submitit", reason="needs requirements-cluster.txt")
    if reason := slurm.why_not():
        pytest.skip(reason)
    running = slurm.cluster()
    try:
        configuration = running.__enter__()
    except RuntimeError as error:
        pytest.skip(f"Slurm does not start here: {error}")
    yield configuration
    running.__exit__(None, None, None)


@pytest.fixture
def on_slurm(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(real))


@pytest.mark.usefixtures("on_slurm")
def test_arrays_with_needs_of_which_one_fails(
    lit: Callable[..., Cluster], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = [*(light(f"a{i}") for i in range(4)), light("bad", command="fail")]  # arrays of 3 and 2, by MaxArraySize
    jobs += [light("b", ("a0", "a3")), light("lost", ("bad",)), light("lost_too", ("lost",))]
    outcome = lit().run(jobs, "table")
    done = ["a0", "a1", "a2", "a3", "b"]
    assert (sorted(outcome.finished), outcome.failed, outcome.left_out) == (done, ["bad"], ["lost", "lost_too"])
    assert sorted(begun(tmp_path / "logs")) == [*done, "bad"]
    assert "bad speaks" in capfd.readouterr().err
    again = lit().run([jobs[i] for i in (0, 1, 2, 3, 5)], "table")
    assert again == Outcome(done, [], [], [])


@pytest.mark.usefixtures("on_slurm")
def test_cancelled_drained_and_started_again(lit: Callable[..., Cluster], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    jobs = [light("x", command="wait"), light("y", command="wait"), light("z", ("x", "y"))]
    assert lit(False).run(jobs, "table").in_queue == ["x", "y", "z"]
    ids = json.loads((logs / "cluster/submitted.json").read_text())
    slurm.wait_for(lambda: set(begun(logs)) == {"x", "y"})
    assert lit().states(jobs) == {"x": "running", "y": "running", "z": "waiting"}
    # Slurm starts x again, on the other node, since its own takes no more jobs.
    node = begun(logs)["x"][0]
    slurm.slurm("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    slurm.slurm("scontrol", "requeue", ids["x"])
    slurm.start_again(ids["x"])
    slurm.wait_for(lambda: len(begun(logs)["x"]) == 2)
    assert begun(logs)["x"][1] != node
    slurm.slurm("scontrol", "update", f"nodename={node}", "state=resume")
    # y is cancelled: Slurm drops z, which needs it.
    slurm.slurm("scancel", ids["y"])
    slurm.wait_for(lambda: lit().states(jobs) == {"x": "running", "y": "failed", "z": "new"})
    (logs / "go").touch()
    outcome = lit().run(jobs, "table")
    assert sorted(outcome.before + outcome.finished) == ["x", "y", "z"] and not outcome.failed
    assert {name: len(nodes) for name, nodes in begun(logs).items()} == {"x": 2, "y": 2, "z": 1}


EXPERIMENT = """
title = "A method on an initial model"
data = "data"
tasks = ["normal"]
methods = ["scaffold"]
types = ["class_based"]
alphas = [1]
seeds = [0]
central = false
fed = { n_clients = 3, clients_per_round = 2, min_client_ds_len = 1, n_rounds = 8, sgd_per_epoch = 4 }
"""
# As a user starts it, but looking at the queue more often.
SWEEP = "import sys; sys.argv[0] = 'run_sweep.py'; from sweeps import cluster; cluster._APART = 0.5; import run_sweep; "
SWEEP += "from utils.errors import run_script; run_script(run_sweep.main)"


def sweep(folder: Path, words: str) -> subprocess.CompletedProcess:
    """A sweep of the experiment in `folder`, whatever its exit code."""
    command = [sys.executable, "-c", SWEEP, "--experiment", "one.toml", *words.split()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("on_slurm")
def test_a_sweep_that_is_cut_off_on_the_cluster_is_the_sweep_of_one_machine(prepared: Path) -> None:
    (prepared / "one.toml").write_text(EXPERIMENT)
    asked = "--cluster slurm --cluster_arguments time=60 --result_path far"
    left = sweep(prepared, f"{asked} --wait False")
    assert left.returncode == 0 and "2 jobs: 0 done, 2 with Slurm" in left.stdout, left.stderr
    ids = json.loads((prepared / "far/logs/cluster/submitted.json").read_text())
    [(name, cut_off)] = [(name, each) for name, each in ids.items() if "scaffold" in name]
    folder = prepared / "far/test_federated/scaffold/normal/class_based"
    slurm.wait_for(lambda: any(len(pd.read_csv(rows)) > 2 for rows in folder.glob("*/metrics.csv")))
    [rows] = folder.glob("*/metrics.csv")
    slurm.slurm("scancel", "--signal=USR2", cut_off)  # as before the time limit
    slurm.start_again(cut_off)
    done = sweep(prepared, asked)
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stderr
    assert "--resume_training True" in next((prepared / "far/logs").glob(f"{name}*.log")).read_text()
    assert sweep(prepared, "--result_path near --jobs 1").returncode == 0
    far, near = rows.parent, prepared / "near" / rows.parent.relative_to(prepared / "far")
    columns = [name for name in pd.read_csv(near / "metrics.csv") if "seconds" not in name]
    assert pd.read_csv(rows)[columns].equals(pd.read_csv(near / "metrics.csv")[columns])
    assert files(far) == files(near)


def files(run: Path) -> set[str]:
    """The names of all files of a run."""
    return {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("on_slurm")
def test_a_federation_over_two_nodes_is_that_of_one_process(prepared: Path) -> None:
    model = f"--task normal --data_path {prepared / 'data'} --init_model_dir {prepared / 'models'}"
    assert run_forked(prepared, f"model_initialization.py {model} --encoder tiny --image_size 32").returncode == 0
    command = f"{model} --type class_based --alpha 1 --n_clients 4 --clients_per_round 3 --min_client_ds_len 1"
    command += " --n_rounds 2 --sgd_per_epoch 2 --use_accelerator False"
    assert run_forked(prepared, f"test_fed.py {command} --result_path one").returncode == 0
    environment = os.environ | {"MASTER": "127.0.0.1", "PORT": str(slurm.free_ports(1)[0]), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    submit = ["sbatch", "--wait", f"--output={prepared / 'nodes.txt'}", "scripts/federation_on_nodes.sh"]
    words = [*command.split(), "--result_path", str(prepared / "two")]
    done = subprocess.run([*submit, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (prepared / "nodes.txt").read_text()[-3000:]
    run = "test_federated/fedavg/normal/class_based/alpha1_seed42"
    one, two = (pd.read_csv(prepared / name / run / "metrics.csv") for name in ("one", "two"))
    assert json.loads((prepared / "two" / run / "environment.json").read_text())["processes"] == 2
    columns = [name for name in one if "seconds" not in name]
    np.testing.assert_allclose(two[columns], one[columns], rtol=1e-4, atol=1e-5)  # sums are rounded in another order
