"""A sweep: an experiment as a file and the command line say it, planned, prepared and run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets.table import STAGE
from sweeps import work
from sweeps.expand import expanded
from sweeps.experiment import BUILTIN, KEYS, SCRIPTS, Experiment, Given, read_experiment
from sweeps.grid import COMPARISON, Job, read_axes
from sweeps.plan import lines, preparation
from sweeps.runner import Runner
from sweeps.settings import SweepSettings
from sweeps.sources import given_source
from utils.errors import UserError
from utils.versions import CodePolicy


class Sweep:
    """What `run_sweep.py` is asked for; nothing is written before `run`.

    Raises UserError for an experiment that is not one, and for a command that its script refuses.
    """

    def __init__(self, settings: SweepSettings, further: Sequence[str]) -> None:
        self.said, self.given = asked(settings, further)
        self.name = settings.experiment.stem if settings.experiment else settings.sweep or COMPARISON
        self.runner = runner_of(settings)
        self._expand()

    def _expand(self) -> None:
        self.experiment: Experiment
        self.jobs: list[Job]
        self.experiment, self.jobs = self.runner.ask(expanded, self.said, self.given)
        self.runner.log_path = self.experiment.result_path / "logs"

    def plan(self, tsv: bool) -> Iterator[str]:
        """The lines of `--dry_run`: every job, with what prepares the images and what is made of the results."""
        source, commands = self.experiment.source, list(self.experiment.source.commands)
        has_stage = any(command[0] == STAGE for command in commands)  # of the source's own
        if not has_stage and (not source.has_table or self.experiment.buildings.is_file()):
            commands.append(self.experiment.selection())
        jobs = preparation(commands, self.jobs) if commands else list(self.jobs)
        states = self.runner.states(self.jobs) | {"data": "done" if source.has_table else "new"}
        if made := tuple(self.experiment.outputs.commands()):
            jobs.append(Job("results", made, tuple(job.name for job in jobs)))
            states["results"] = "new"
        yield from lines(jobs, states, self.runner.known_durations(), tsv)

    def run(self) -> int:
        """Prepare the images, do the jobs that are not done, and make what is asked of them; returns the exit code."""
        source = self.experiment.source
        source.check(self.experiment.buildings.name)
        source.prepare()
        if self.experiment.own_tasks:  # of images that were not there before
            self._expand()
        tasks = [] if self.experiment.until == "selection" else self.experiment.tasks
        # Always: only the first stage sees what has been added to a data folder.
        self.runner.ask(work.select, self.experiment.selection(), self.experiment.buildings, tasks)
        if self.jobs:
            for grid in self.experiment.grids:
                grid.hold_settings()
            outcome = self.runner.run(self.jobs, self.name)
            if outcome.in_queue:
                print(
                    f"{len(self.jobs)} jobs: {len(outcome.before)} done, {len(outcome.in_queue)} with Slurm; the same "
                    "command goes on from there, and makes tables and figures when all are done",
                    flush=True,
                )
                return 0
            counts = f"{len(outcome.before)} done before, {len(outcome.finished)} now, {len(outcome.failed)} failed"
            print(f"{len(self.jobs)} jobs: {counts}, {len(outcome.left_out)} left out because of these", flush=True)
            if outcome.failed:
                if not (note := self.experiment.outputs.make.get("without_failed")):
                    return 1
                print(note, flush=True)
        self.experiment.outputs.run()
        return 0


def runner_of(settings: SweepSettings) -> Runner:
    """What runs the jobs: this machine, or the cluster that the arguments name."""
    policy = CodePolicy(settings.reuse)
    if settings.cluster is None:
        if settings.cluster_arguments is not None or settings.wait is not None:
            raise UserError("--cluster_arguments and --wait are for --cluster slurm; give that, too")
        n_jobs = settings.jobs or len(settings.gpus or []) or os.cpu_count() or 1
        return Runner(Path("logs"), n_jobs, settings.gpus, policy)
    if settings.gpus:
        raise UserError("--gpus is for one machine; on a cluster give --cluster_arguments gpus_per_node=1")
    from sweeps.cluster import Cluster, read_arguments

    asked_for = read_arguments(settings.cluster_arguments or ())
    return Cluster(asked_for, settings.jobs, settings.wait is not False, policy)


def asked(settings: SweepSettings, further: Sequence[str]) -> tuple[dict[str, Any], Given]:
    """What the file of an experiment says, if there is one, and what the command line says besides."""
    scale, more = settings.scale or BUILTIN, said_by(settings, further)
    if settings.experiment:
        said = read_experiment(settings.experiment, settings.scale)
    else:
        said = {"scale": scale}
        more.setdefault("result_path", Path("results"))
    source = given_source(settings.data_path, settings.test_mode) if settings.data_path else None
    return said, Given(source, scale, settings.test_mode, more)


def said_by(settings: SweepSettings, further: Sequence[str]) -> dict[str, Any]:
    """The keys of an experiment that the command line has."""
    named = KEYS.keys() - {"scale"}  # which on the command line is one of the file's own `scales`
    said = {name: value for name, value in vars(settings).items() if name in named and value is not None}
    for stage in SCRIPTS:
        pairs = getattr(settings, f"{stage}_arguments")
        said |= {stage: dict(pairs)} if pairs else {}
    names = ("client_file_name", "taskonomy_clients_to_include")
    select = {name: value for name in names if (value := getattr(settings, name)) is not None}
    return said | ({"select": select} if select else {}) | ({"fed": read_axes(further)} if further else {})
