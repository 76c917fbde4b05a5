"""Runs jobs side by side, each in its own process, forked from a server that has already imported everything."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from sweeps import work
from sweeps.grid import Job
from utils import progress
from utils.errors import UserError
from utils.versions import DECLARED, ROOT, CodePolicy

_LAST_LINES = 12
_DURATIONS = "durations.tsv"  # a line for each finished job: its families, the most specific first, and its seconds


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended: the names of jobs that were done before, succeeded, failed, could not start, or go on."""

    before: list[str]
    finished: list[str]
    failed: list[str]
    left_out: list[str]
    in_queue: Sequence[str] = ()  # of a cluster, where nobody waits for them


@dataclass
class _Running:
    job: Job
    process: Any
    slot: int
    since: float


class Runner:
    """Runs jobs, up to `n_jobs` at once, as soon as the jobs that they need are done.

    If a job fails, crashes or is killed, only the jobs that need it are affected. Jobs end with the process that
    started them, however that ends. Each holds a lock while it runs: if several sweeps have the same job, one does it,
    and the others wait and then find it done.

    Args:
        log_path: the folder for the jobs' outputs.
        n_jobs: the number of processes at once.
        gpus: the GPUs to hand out to processes in turn; None leaves the choice to each process.
        policy: which earlier runs count.
    """

    def __init__(
        self, log_path: Path, n_jobs: int, gpus: Sequence[str] | None = None, policy: CodePolicy = DECLARED
    ) -> None:
        self.log_path, self.n_jobs, self.gpus, self.policy = log_path, n_jobs, gpus, policy
        # A job has at most its share of the cores, of which networks use as many as help
        # (`models/networks/threads.py`). Libraries read this when they are loaded, which the server does.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // n_jobs)))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["sweeps.server"])

    def ask(self, question: Callable, *about: Any) -> Any:
        """The result of a function of `sweeps.work`, run in a process of the server; its UserError is raised here."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work.answer, args=(theirs, question, *about))
        process.start()
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            raise UserError("a process of the sweep died; see its messages above") from None
        finally:
            process.join()
        if isinstance(answer, UserError):
            raise answer
        return answer

    def states(self, jobs: Sequence[Job]) -> dict[str, str]:
        """The state of each job, by its name: "done", "cut off" or "new"."""
        return self.ask(work.states, jobs, self.policy)

    def run(self, jobs: Sequence[Job], title: str) -> Outcome:
        """Do all jobs that are not done; shows progress, time left, and the last lines of jobs that fail."""
        done = set(self.ask(work.done, jobs, self.policy))
        queue = [job for job in jobs if job.name not in done]
        outcome = Outcome(sorted(done), [], [], [])
        running: list[_Running] = []
        durations = self.known_durations()
        with progress.bar(total=len(queue), desc=title, unit="job", bar_format=_BAR, shown=bool(queue)) as bar:
            try:
                self._start(queue, running, set(outcome.before))
                while running:
                    bar.set_postfix_str(_progress(running, queue, durations, self.n_jobs))
                    wait([each.process.sentinel for each in running], timeout=5)
                    n_left = len(queue) + len(running)
                    for each in [each for each in running if not each.process.is_alive()]:
                        running.remove(each)
                        each.process.join()
                        log = self._keep_log(each.job)
                        if each.process.exitcode == 0:
                            outcome.finished.append(each.job.name)
                            self._keep_duration(durations, each.job, time.monotonic() - each.since)
                        else:
                            outcome.failed.append(each.job.name)
                            progress.say(self._failure(each, log))
                            outcome.left_out.extend(_give_up(queue, each.job.name))
                    self._start(queue, running, {*outcome.before, *outcome.finished})
                    bar.set_postfix_str(_progress(running, queue, durations, self.n_jobs), refresh=False)
                    bar.update(n_left - len(queue) - len(running))
            finally:
                for each in running:
                    each.process.terminate()
        if queue:
            names = ", ".join(job.name for job in queue)
            raise RuntimeError(f"each of these waits for one that is no job of the sweep: {names}")
        return outcome

    def known_durations(self) -> dict[str, list[float]]:
        """The seconds that finished jobs took here, by the families of these jobs."""
        durations: dict[str, list[float]] = {}
        with suppress(OSError, ValueError):  # none yet, or a line that a kill has cut off
            for line in (self.log_path / _DURATIONS).read_text(encoding="utf-8").splitlines():
                *families, seconds = line.split("\t")
                _note(durations, families, float(seconds))
        return durations

    def _keep_duration(self, durations: dict[str, list[float]], job: Job, seconds: float) -> None:
        """Note a job's time for this sweep, and for those that come."""
        _note(durations, job.families, seconds)
        self.log_path.mkdir(parents=True, exist_ok=True)
        with (self.log_path / _DURATIONS).open("a", encoding="utf-8") as file:
            file.write("\t".join((*job.families, f"{seconds:.1f}")) + "\n")

    def _start(self, queue: list[Job], running: list[_Running], done: set[str]) -> None:
        """Start the jobs that can be started now, in the order of the queue."""
        for job in list(queue):
            if len(running) == self.n_jobs:
                return
            if done.issuperset(job.needs):
                queue.remove(job)
                slot = min(set(range(self.n_jobs)) - {each.slot for each in running})
                gpu = self.gpus[slot % len(self.gpus)] if self.gpus else None
                of_job = (job, lock_of(self.log_path, job), self._output(job), self.policy, gpu)
                process = self._context.Process(target=work.do, args=of_job)
                process.start()
                running.append(_Running(job, process, slot, time.monotonic()))

    def _output(self, job: Job) -> Path:
        """Where a job of this sweep writes its output; the same job of another sweep may be waiting for the lock."""
        return self.log_path / f"{job.name}.{os.getpid()}.log"

    def _keep_log(self, job: Job) -> Path:
        """Give a job's output its final name."""
        path = self.log_path / f"{job.name}.log"
        if self._output(job).is_file():
            self._output(job).replace(path)
        return path

    def _failure(self, ended: _Running, path: Path) -> str:
        code = ended.process.exitcode
        how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
        return told(f"{ended.job.name} ended {how}", path)


_BAR = "{desc}: {percentage:3.0f}% {bar:20} {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


def lock_of(log_path: Path, job: Job) -> Path:
    """The file that whoever does a job holds."""
    return log_path / f"{job.name}.lock"


def told(what: str, log: Path) -> str:
    """How a job has ended, with the last lines of its output."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    last = [line.rsplit("\r", 1)[-1] for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    return "\n".join([f"{what}:", *(f"    {line}" for line in last), f"  see {log}"])


def _give_up(queue: list[Job], failed: str) -> list[str]:
    """Remove the jobs that need the failed one, directly or through others, from the queue; returns their names."""
    lost = {failed}
    while more := {job.name for job in queue if lost.intersection(job.needs)} - lost:
        lost |= more
    queue[:] = [job for job in queue if job.name not in lost]
    return sorted(lost - {failed})


def _progress(running: Sequence[_Running], queue: Sequence[Job], durations: dict[str, list[float]], n_jobs: int) -> str:
    """How many jobs are running and, once one has ended, an estimate of the time left; empty at the end."""
    if not queue and not running:
        return ""
    left = f", about {tqdm.format_interval(_seconds_left(queue, running, durations, n_jobs))} left" if durations else ""
    return f"{len(running)} running{left}"


def _note(durations: dict[str, list[float]], families: Sequence[str], seconds: float) -> None:
    """Add a job's time to those of its families."""
    for family in families:
        durations.setdefault(family, []).append(seconds)


def expected(job: Job, durations: Mapping[str, Sequence[float]]) -> float | None:
    """The seconds that a job will take: the mean of the most similar ones that are known; None without any."""
    return next((fmean(durations[family]) for family in job.families if family in durations), None)


def _seconds_left(
    queue: Sequence[Job], running: Sequence[_Running], durations: dict[str, list[float]], n_jobs: int
) -> float:
    """The time left: that of all work, spread over the processes, or of the longest chain of needs, if that is longer.

    A job is expected to take the mean time of the most similar jobs that have ended. A job that has exceeded that is
    expected to take as long again as it has exceeded it. In the queue, jobs come after those that they need.
    """

    now = time.monotonic()
    left = {each.job.name: abs((expected(each.job, durations) or 0.0) - (now - each.since)) for each in running}
    times = {job.name: expected(job, durations) or 0.0 for job in queue}
    work = sum(left.values()) + sum(times.values())
    for job in queue:
        left[job.name] = times[job.name] + max((left.get(need, 0.0) for need in job.needs), default=0.0)
    return max([work / n_jobs, *left.values()])
