"""Runs jobs on a Slurm cluster, through submitit: the records that say what is done locally say it here, too.

Jobs that need the same others become one array, which waits for these. A job that Slurm starts again, after a
preemption, a lost node or its time limit, looks like any other job that was cut off, and goes on from its checkpoint.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
import signal
import subprocess
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeps import work
from sweeps.grid import Job
from sweeps.runner import Outcome, Runner, lock_of, told
from utils import interrupt, progress
from utils.args import POSITIVE, POSITIVE_INT
from utils.errors import UserError
from utils.files import locked, read_json, write_json
from utils.versions import CodePolicy

_TIMEOUTS = 10  # how often a job goes on by itself after its time limit; then the same command does it
_APART = 10.0  # seconds between two looks at the queue
_RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED")
_NEVER = "DependencyNeverSatisfied"  # why Slurm will drop a job
_REQUIREMENTS = "requirements-cluster.txt"
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def minutes(text: str) -> int:
    """An argparse type: a time limit as Slurm writes it (90, 90:00, 1:30:00, 1-12, 1-12:30:00), in minutes."""
    if (found := _TIME.fullmatch(text)) is None:
        raise ArgumentTypeError(f"{text!r} is not a time, such as 90 (minutes), 4:00:00 or 1-12:00:00")
    days, *parts = (int(part or 0) for part in found.groups())
    if found["days"] is not None or found["third"] is not None:
        hours, of_hour, seconds = parts
    else:
        hours, of_hour, seconds = 0, *parts[:2]
    total = days * 1440 + hours * 60 + of_hour + math.ceil(seconds / 60)
    if total == 0:
        raise ArgumentTypeError(f"{text!r} must be at least a minute")
    return total


# What `--cluster_arguments` may say, and how it is read.
ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "partition": str, "time": minutes, "cpus_per_task": POSITIVE_INT, "gpus_per_node": POSITIVE_INT, "mem_gb": POSITIVE,
    "account": str, "qos": str, "constraint": str, "gres": str, "nodelist": str, "exclude": str,
    "signal_delay_s": POSITIVE_INT,
}  # fmt: skip
_OF_SUBMITIT = ("cpus_per_task", "gpus_per_node", "mem_gb")  # its names on any cluster; the others are Slurm's


def read_arguments(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of `--cluster_arguments NAME=VALUE …`; UserError for what a job cannot ask for."""
    said: dict[str, Any] = {}
    for name, value in pairs:
        if name not in ARGUMENTS:
            near = difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"the names are {', '.join(ARGUMENTS)}"
            raise UserError(f"--cluster_arguments {name}: unknown, {hint}")
        try:
            said[name] = ARGUMENTS[name](value)
        except ArgumentTypeError as error:
            raise UserError(f"--cluster_arguments {name}: {error}") from None
    if "time" not in said:
        raise UserError("--cluster_arguments has no time; give the longest that a job may take, such as time=4:00:00")
    return said


@dataclass(frozen=True)
class Submitted:
    """What a node calls: a job, if code and data are still what they were when it was submitted."""

    job: Job
    log_path: Path
    policy: CodePolicy
    made_with: Mapping[str, Any]

    def __call__(self) -> None:
        """Do the job, or the rest of it; leaves with the exit code of a command that failed.

        SIGUSR2, which comes before the time limit, is met like Ctrl-C: the training saves. Then submitit's handler puts
        the job back into the queue. SIGTERM is left unheeded: a job that ends by it, within the grace time of a
        preemption, would not be started again.
        """
        from submitit import JobEnvironment

        put_back = signal.getsignal(signal.SIGUSR2)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGUSR2, lambda number, frame: signal.raise_signal(signal.SIGINT))
        output = output_of(self.log_path, self.job, JobEnvironment().job_id)
        try:
            work.do(self.job, lock_of(self.log_path, self.job), output, self.policy, None, self.made_with)
        except SystemExit as error:
            if error.code == interrupt.INTERRUPTED and callable(put_back):
                put_back(signal.SIGUSR2, None)
            raise

    def checkpoint(self) -> Any:
        """What is to be called when the job is started again: the same, since the run has its own checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Cluster(Runner):
    """Has the jobs of a sweep run by Slurm; see `Runner`, whose records, locks and logs it shares.

    A job is submitted once: which one Slurm knows it by is kept in `<log_path>/cluster/submitted.json`. What is in the
    queue is left there; what is neither there nor done has failed, and is submitted again.

    Args:
        arguments: what each job asks Slurm for, of `read_arguments`.
        at_once: the jobs of an array that run at once; None leaves it to Slurm.
        wait: whether `run` waits until no job is left in the queue.
        policy: which earlier runs count.
    """

    def __init__(self, arguments: Mapping[str, Any], at_once: int | None, wait: bool, policy: CodePolicy) -> None:
        super().__init__(Path("logs"), 1, None, policy)
        self.arguments, self.at_once, self.wait = arguments, at_once, wait
        self._ids: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """The folder of submitit's files, and of the ids of the jobs."""
        return self.log_path / "cluster"

    @property
    def _known(self) -> Path:
        return self.folder / "submitted.json"

    def states(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Also "running" and "waiting" for what is in the queue, and "failed" for what has left it and is not done."""
        self._ids = read_json(self._known, "run_sweep.py") if self._known.is_file() else {}
        queue = _queue() if self._ids else {}  # before the records: what ends meanwhile is done there
        states = super().states(jobs)
        for job in jobs:
            if states[job.name] != "done" and job.name in self._ids:
                ready = all(states[need] == "done" for need in job.needs)
                states[job.name] = queue.get(self._ids[job.name], "failed" if ready else states[job.name])
        return states

    def run(self, jobs: Sequence[Job], title: str) -> Outcome:
        """Submit all jobs that are neither done nor in the queue and, unless told otherwise, wait for their end."""
        with locked(self.folder / ".lock"):
            states = self.states(jobs)
            for job in jobs:
                if states[job.name] == "failed":
                    progress.say(f"{self._failure_of(job)}\n  it is submitted again")
            missing = [job for job in jobs if states[job.name] not in ("done", "running", "waiting")]
            self._submit(missing, states, title)
        left = [job for job in jobs if states[job.name] != "done"]
        if left:
            running, waiting = (sum(state == each for state in states.values()) for each in ("running", "waiting"))
            print(f"{len(missing)} submitted; {running} running and {waiting} waiting from before", flush=True)
        outcome = Outcome([job.name for job in jobs if states[job.name] == "done"], [], [], [])
        if not self.wait:
            return replace(outcome, in_queue=[job.name for job in left])
        try:
            self._wait_for(left, outcome, title)
        except KeyboardInterrupt:
            progress.say("jobs stay on the cluster (scancel ends them); the same command goes on waiting for them")
            raise
        return outcome

    def _submit(self, jobs: Sequence[Job], states: Mapping[str, str], title: str) -> None:
        """Hand jobs to Slurm, array by array, each noted at once."""
        if not jobs:
            return
        made_with = self.ask(work.made_with, jobs)
        for array in arrays(jobs, _longest_array()):
            needed = [self._ids[need] for need in array[0].needs if states[need] != "done"]
            executor = self._executor(title, len(array), needed)
            try:
                with executor.batch():
                    submitted = [
                        executor.submit(Submitted(job, self.log_path, self.policy, made_with[job.name]))
                        for job in array
                    ]
            except RuntimeError as error:  # submitit's, with what sbatch has said
                raise UserError(f"sbatch has refused a job: {error}; see --cluster_arguments") from error
            self._ids |= {job.name: each.job_id for job, each in zip(array, submitted, strict=True)}
            write_json(self._known, self._ids)

    def _executor(self, title: str, n_jobs: int, needed: Sequence[str]) -> Any:
        """Submitit's executor for an array of so many jobs, which waits for those with these ids."""
        try:
            from submitit import AutoExecutor
        except ModuleNotFoundError:
            raise UserError(f"--cluster needs submitit: python -m pip install -r {_REQUIREMENTS}") from None
        threads = self.arguments.get("cpus_per_task", 1)
        more = {"requeue": True} | ({"kill-on-invalid-dep": "yes"} if needed else {})
        if needed:
            more["dependency"] = f"afterok:{':'.join(needed)}"
        said = {name if name in _OF_SUBMITIT else f"slurm_{name}": value for name, value in self.arguments.items()}
        executor = AutoExecutor(self.folder, cluster="slurm", slurm_max_num_timeout=_TIMEOUTS)
        executor.update_parameters(
            name=title,
            **said,
            slurm_array_parallelism=self.at_once or n_jobs,
            slurm_additional_parameters=more,
            slurm_srun_args=["--cpus-per-task", str(threads)],  # which srun does not take from sbatch any more
            slurm_setup=[
                f"export OMP_NUM_THREADS={threads}",
                f"export PYTHONPATH={shlex.quote(os.environ['PYTHONPATH'])}",
            ],
        )
        return executor

    def _wait_for(self, jobs: Sequence[Job], outcome: Outcome, title: str) -> None:
        """Look at the queue until none of these jobs is there, and tell how each has ended."""
        left, missed = list(jobs), set[str]()
        with progress.bar(total=len(left), desc=title, unit="job", shown=bool(left)) as bar:
            while left:
                time.sleep(_APART)
                queue = _queue()
                gone = [job for job in left if self._ids[job.name] not in queue]
                alone = [replace(job, needs=()) for job in gone]
                states = self.ask(work.states, alone, self.policy) if gone else {}
                for job in gone:
                    if states[job.name] == "done":
                        self._keep_log(job)
                        outcome.finished.append(job.name)
                    elif job.name not in missed:  # a shared file system may show what is done a little later
                        missed.add(job.name)
                        continue
                    elif not {*outcome.failed, *outcome.left_out}.isdisjoint(job.needs):
                        outcome.left_out.append(job.name)
                    else:
                        outcome.failed.append(job.name)
                        progress.say(self._failure_of(job))
                    left.remove(job)
                    bar.update()

    def _failure_of(self, job: Job) -> str:
        """What is said of a job that has left the queue and is not done."""
        what = f"{job.name} (Slurm's job {self._ids[job.name]}) has ended, and is not done"
        if not self._output(job).is_file():
            return f"{what}: cancelled before it began, or see {self.folder}"
        return told(what, self._keep_log(job))

    def _output(self, job: Job) -> Path:
        return output_of(self.log_path, job, self._ids[job.name])


def output_of(log_path: Path, job: Job, slurm_id: str) -> Path:
    """Where a job writes its output while Slurm runs it."""
    return log_path / f"{job.name}.{slurm_id}.log"


def arrays(jobs: Sequence[Job], longest: int) -> Iterator[list[Job]]:
    """The jobs that need the same others together, cut into arrays of at most so many; needs come first."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.needs, []).append(job)
    for group in groups.values():
        for start in range(0, len(group), longest):
            yield group[start : start + longest]


def _queue() -> dict[str, str]:
    """Of all jobs that Slurm knows and that have not ended: "running" or "waiting", by id."""
    states = {}
    for line in _slurm("squeue", "--noheader", "--array", "--format=%i|%T|%r").splitlines():
        name, state, reason = line.split("|", 2)
        if reason != _NEVER:
            states[name.strip()] = "running" if state in _RUNNING else "waiting"
    return states


def _longest_array() -> int:
    """How many jobs an array may have here."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _slurm("scontrol", "show", "config"))
    return max(int(found[1]), 1) if found else 1


def _slurm(*command: str) -> str:
    """What a program of Slurm prints; UserError with its words where it cannot answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            f"no program {command[0]}; --cluster slurm is for a machine from which Slurm takes jobs"
        ) from None
    if done.returncode:
        raise UserError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
