"""What a sweep would do, as `--dry_run` prints it: every job with its state, its needs, its time and its command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from tqdm import tqdm

from sweeps.grid import Command, Job
from sweeps.runner import expected

FORMATS = ("False", "True", "tsv")
_COLUMNS = ("name", "state", "seconds", "needs", "command")
_SHOWN = 4  # needs of a job


def preparation(commands: Sequence[Command], jobs: Sequence[Job]) -> list[Job]:
    """The jobs behind one that makes the data, which all those need that need no other."""
    made = Job("data", tuple(commands))
    return [made, *(job if job.needs else Job(job.name, job.commands, (made.name,)) for job in jobs)]


def lines(
    jobs: Sequence[Job], states: Mapping[str, str], durations: Mapping[str, Sequence[float]], tsv: bool
) -> Iterator[str]:
    """The plan, for a reader or as a table with tabs; seconds are those of the most similar jobs that are known."""
    if tsv:
        yield "\t".join(_COLUMNS)
        for job in jobs:
            seconds = expected(job, durations)
            time = "" if seconds is None else f"{seconds:.0f}"
            yield "\t".join((job.name, states[job.name], time, " ".join(job.needs), _command_line(job)))
        return
    for job in jobs:
        seconds = expected(job, durations)
        time = "" if seconds is None or states[job.name] == "done" else f", about {tqdm.format_interval(seconds)}"
        needs = job.needs if len(job.needs) <= _SHOWN else (f"the {len(job.needs)} jobs above",)
        yield f"{job.name}: {states[job.name]}{time}{'; needs ' if needs else ''}{', '.join(needs)}"
        yield f"    {_command_line(job)}"
    counts = {state: sum(states[job.name] == state for job in jobs) for state in dict.fromkeys(states.values())}
    yield f"{len(jobs)} jobs: {', '.join(f'{n} {state}' for state, n in counts.items())}; nothing was written"


def _command_line(job: Job) -> str:
    return " && ".join(shlex.join(["python", *command]) for command in job.commands)
