"""From an experiment to its jobs: the configuration of every run, as its script would parse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sweeps.experiment import BUILTIN, Experiment, Given, experiment_of, read_experiment
from sweeps.grid import Command, Job
from sweeps.served import served
from sweeps.sources import given_source
from utils.args import Parser
from utils.errors import UserError

# Of the stages that make what others read, the argument that names the folder for it; a file there is a task's.
_MADE_IN = {
    "model_initialization.py": "init_model_dir",
    "train_centralized_task_model.py": "checkpoint_path",
    "extract_embeddings.py": "assignment_files_path",
}


def expand(
    experiment: str | Path, scale: str = "", data: str = "", test_mode: bool = False, **changes: Any
) -> list[Job]:
    """Every job of an experiment's file, with the configurations of its scripts, after those jobs that it needs.

    `job.script` is the script whose run says whether the job is done, `job.config` has the values that it runs with, by
    the names of its arguments, its method's defaults included. Nothing is run, and nothing written.

    Args:
        experiment: the TOML file; docs/sweeps.md has its keys.
        scale: one of its scales; by default `builtin`.
        data: a folder, `rooms` or `nyu`, in place of the experiment's.
        test_mode: whether trainings are very short.
        **changes: keys of experiments, which change this one as the command line does: `seeds=[0]`,
            `fed={"init_lr": [0.01, 0.1]}`.

    Raises:
        UserError: where the file is no experiment, or a script refuses what it comes to.
    """
    said = read_experiment(Path(experiment), scale)
    source = given_source(data, test_mode) if data else None
    return expanded(said, Given(source, scale or BUILTIN, test_mode, changes))[1]


def expanded(said: Mapping[str, Any], given: Given) -> tuple[Experiment, list[Job]]:
    """The experiment of some keys and its jobs, for the tasks that its images have where it asks for these."""
    from datasets.table import read_table

    reads = declared_arguments()
    experiment = experiment_of(said, given, reads)
    if experiment.own_tasks and experiment.source.has_table:
        tasks = served(read_table(experiment.source.folder), experiment.tasks)
        experiment = experiment_of(said, given, reads, tasks)
    return experiment, parsed_jobs(experiment.jobs())


def parsed_jobs(jobs: Iterable[Job]) -> list[Job]:
    """The jobs with their configurations, without those that say in other words what one before says.

    Such a one has all its values, folders among them: what lies in these is the same only once it is made, so that
    `key` alone would not tell. Jobs that need it need the one before in its place. UserError for what a script refuses,
    and where two jobs would make one file of models or clusters in two ways.
    """
    from stages.scripts import STAGE_OF

    distinct: dict[str, Job] = {}
    kept: dict[str, str] = {}  # for each job the name of the one that says the same
    made: dict[tuple, Mapping[str, Any]] = {}
    parser_of = cache(lambda script: STAGE_OF[script].parser())  # making one takes longer than reading with it
    for job in jobs:
        scripts = [command[0] for command in job.commands]
        configs = tuple(parsed(command, parser_of(command[0])) for command in job.commands)
        for script, config in zip(scripts, configs, strict=True):
            _check_alone(script, config, made)
        key = repr([(script, sorted(config.items())) for script, config in zip(scripts, configs, strict=True)])
        needs = tuple(kept.get(need, need) for need in job.needs)
        first = distinct.setdefault(key, replace(job, needs=needs, configs=configs))
        kept[job.name] = first.name
    return list(distinct.values())


def parsed(command: Command, parser: Parser | None = None) -> Mapping[str, Any]:
    """The configuration that a script would run with, its method's defaults included; UserError like the script.

    `parser` is that of its stage, if there is one already.
    """
    from stages.scripts import STAGE_OF

    stage = STAGE_OF[command[0]]
    return stage.from_config(vars((parser or stage.parser()).parse_args(command[1:]))).config


def _check_alone(script: str, config: Mapping[str, Any], made: dict[tuple, Mapping[str, Any]]) -> None:
    """Note what a script makes for others; UserError where another one makes the same file otherwise."""
    if script not in _MADE_IN:
        return
    folder = config[_MADE_IN[script]]
    other = made.setdefault((script, folder, config["task"], config.get("use_cbam")), config)
    for name in config:
        if config[name] != other[name]:
            raise UserError(
                f"{script} --task {config['task']} would write the same file in {folder} with --{name} {other[name]} "
                f'and with {config[name]}; tell their folders apart by folder = "{{NAME}}", where NAME is an argument '
                "of [init], or [[vary.NAME]] has tables with a name"
            )


def declared_arguments() -> dict[str, dict[str, list[str]]]:
    """The arguments that each method, aggregation, attack and partition rule reads, by the argument that names it."""
    # Imported here and above, to spare the runner's own process these seconds.
    from network.choices import READERS
    from network.partition.rules import PARTITIONERS

    registries = READERS | {"partition": PARTITIONERS}
    return {
        choice: {name: list(entry.arguments) for name, entry in entries.items()}
        for choice, entries in registries.items()
    }
