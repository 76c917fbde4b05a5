"""What the processes of a sweep do: each is forked to do one job, or to answer one question of the runner."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.command import in_place_of_own
from utils.errors import UserError, explained, run_script

if TYPE_CHECKING:
    from datasets.table import DatasetInfo
    from sweeps.grid import Command, Job
    from utils.versions import CodePolicy


def answer(to: Connection, question: Callable, *about: Any) -> None:
    """Send back what `question` returns; an error that the user can fix is sent as a UserError."""
    try:
        to.send(question(*about))
    except Exception as error:
        if (line := explained(error)) is None:
            raise
        to.send(UserError(line))


def call(command: Command) -> None:
    """Run a script with these arguments."""
    from sweeps.preload import MODULES

    with in_place_of_own(command):
        MODULES[command[0]].main()  # of the module as it was loaded: the file may have changed since


def select(command: Command, buildings: Path, tasks: Sequence[str]) -> None:
    """Select the images of a data folder in Taskonomy's layout, by the list `buildings` in it.

    A table that was made there from another source, or from another list, is kept. UserError, before a table is
    written, where the images have no targets of one of these tasks.
    """
    from datasets.table import STAGE, read_table, source_of
    from sweeps.expand import parsed
    from sweeps.preload import MODULES

    source, folder = source_of(buildings.parent), buildings.parent
    if source is None or (source == "taskonomy" and buildings.is_file()):
        stage = MODULES[command[0]]
        with in_place_of_own(command):
            config = parsed(command)
            found = stage.find(config)
            check_tasks(tasks, found.info, folder)
            stage.keep(config, found)
    else:
        check_tasks(tasks, read_table(folder).info, folder)
        print(f"{folder}: using the images that {STAGE} --source {source} has found")


def check_tasks(tasks: Sequence[str], info: DatasetInfo, data_path: Path) -> None:
    """UserError where the images of a data folder have no targets of one of these tasks."""
    from datasets.tasks import TASKS

    if lacking := [task for task in tasks if not info.serves(TASKS[task])]:
        served = ", ".join(name for name, task in TASKS.items() if info.serves(task))
        raise UserError(f"{data_path} has no targets of {', '.join(lacking)}; of what it has, the tasks are: {served}")


def states(jobs: Sequence[Job], policy: CodePolicy) -> dict[str, str]:
    """The state of each job, by its name; a job that needs one that is not done is not done either."""
    from sweeps.records import State, state_of

    found: dict[str, str] = {}
    for job in jobs:
        state = state_of(job.script, job.config, policy)
        ready = all(found.get(need) == State.DONE.value for need in job.needs)
        found[job.name] = (state if ready or state is not State.DONE else State.NEW).value
    return found


def done(jobs: Sequence[Job], policy: CodePolicy) -> list[str]:
    """The jobs that are done, as are all that they need, by name."""
    return sorted(name for name, state in states(jobs, policy).items() if state == "done")


def made_with(jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    """The present code and data of each job, by its name; see `sweeps.records.made_with`."""
    from sweeps.records import made_with as of

    return {job.name: of(job.script, job.config) for job in jobs}


def do(
    job: Job, lock: Path, output: Path, policy: CodePolicy, gpu: str | None, submitted: Mapping[str, Any] | None = None
) -> None:
    """Do a job, or the rest of it, once the lock is free; the exit code is that of the command that failed.

    It fails where code or data are not those that it was `submitted` with, of `made_with`; None asks for nothing.
    """
    from utils.files import locked

    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
        with locked(lock):
            if submitted is not None:
                run_script(partial(_check_unchanged, job, policy, submitted))
            _do_locked(job, policy)


def _check_unchanged(job: Job, policy: CodePolicy, submitted: Mapping[str, Any]) -> None:
    from sweeps.records import check_unchanged

    check_unchanged(job.script, job.config, policy, submitted)


def _do_locked(job: Job, policy: CodePolicy) -> None:
    from sweeps.records import State, state_of

    state = state_of(job.script, job.config, policy)  # again: another sweep may have done it meanwhile
    if state is State.DONE:
        print("done already, by another sweep")
        return
    commands = (
        job.commands if state is State.NEW else ((*job.commands[-1], "--resume_training", "True", *policy.words),)
    )
    for command in commands:
        print(shlex.join(["python", *command]), flush=True)
        run_script(partial(call, command))
    print(f"{time.process_time():.1f} s of processor time")


def _end_with_parent() -> None:
    """End this job if the sweep is killed; the next sweep resumes it."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
