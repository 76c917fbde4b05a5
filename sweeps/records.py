"""Which runs of a sweep are done or interrupted: run directories are compared with the commands that make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from datasets.table import classes_for, read_table
from datasets.task_data import data_version
from datasets.tasks import get_task
from models.central.training import checkpoint_file
from models.networks.conventions import Scaling, scaling_arguments
from models.networks.parts import TRAINS
from models.networks.task_model import init_file, made_as, versions_of
from network.choices import READERS, Choices
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings, PartitionSettings
from network.provenance import code_of
from network.settings import SETTINGS
from sweeps.preload import STAGES
from utils.errors import UserError
from utils.files import json_in
from utils.renamed import with_present_names
from utils.runs import Run, checkpoints
from utils.settings import arguments_in
from utils.stage import key
from utils.versions import ANY, DECLARED, CodePolicy, file_digest, unchanged, warn


class State(Enum):
    """The state of a command's run."""

    NEW = "new"
    CUT_OFF = "cut off"
    DONE = "done"


def state_of(script: str, config: Mapping[str, Any], policy: CodePolicy = DECLARED) -> State:
    """Whether a script's run with this configuration was finished or cut off, with the present data and code.

    A run is done if it has a summary, and if all files that it read, or made for later stages, are unchanged. Of code
    that differs, the policy says whether the run counts, and a warning says what becomes of it.
    """
    if not STAGES[script]:  # an initial model, which has no run
        return State.DONE if _has_initial_model(config, policy) else State.NEW
    found: dict[tuple[State, bool], set[str]] = {}
    wanted = key(config)
    for folder in _runs(script, config):
        said, noted = with_present_names(_read(folder / "args.json")), _read(folder / "environment.json")
        same = all(name in said and said[name] == value for name, value in wanted.items())
        if same and _is_of(said, noted, config) and (state := _state_in(folder, config)) is not State.NEW:
            counts, difference = policy.judge(noted, code_of(script, key(said)))
            found.setdefault((state, counts), set()).add(difference)
    for state in (State.DONE, State.CUT_OFF):
        if differences := found.get((state, True)):
            if difference := min(differences):  # "" where a run is of the present code
                remedy = "" if policy.reuse == ANY else "; --reuse same_source makes them again"
                warn(f"runs made with {difference} count{remedy}")
            return state
    for difference in sorted(found.get((State.DONE, False), ())):
        warn(f"finished runs made with {difference} are made again; --reuse any keeps them")
    return State.NEW


def _has_initial_model(config: Mapping[str, Any], policy: CodePolicy) -> bool:
    """Whether there is an initial model of the present classes, weights, scaling of images and versions."""
    path = init_file(config["init_model_dir"], config["task"], config["use_cbam"])
    if not path.is_file():
        return False
    try:
        model, noted = made_as(path)
        classes = classes_for(config["task"], config["data_path"], config["result_path"])
    except UserError:  # the stage says what is wrong
        return False
    scaling = Scaling.of(config, "image")
    if (model.classes, model.image_mean, model.image_std) != (classes, *scaling) or (
        config["encoder_weights"] and not _is_file_of(model.weights, config["encoder_weights"])
    ):
        return False
    if noted is None:  # from before versions were noted there
        return True
    counts, difference = policy.judge({"code_version": noted}, {"code_version": versions_of(model)})
    if difference:
        becomes = "counts" if counts else "is made again; --reuse any keeps it"
        warn(f"the initial model {path}, made with {difference}, {becomes}")
    return counts


def _is_file_of(weights: Mapping[str, Any] | None, path: Path) -> bool:
    return weights is not None and path.is_file() and weights.get("sha256") == file_digest(path)


def made_with(script: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The present code and data of a script with this configuration.

    They are declared versions, sources, the table and, where they are packed, the images.
    """
    data = {"table": read_table(config["data_path"]).fingerprint, "packed": _data_now(config["data_path"], config)}
    return code_of(script, key(config)) | data


def check_unchanged(script: str, config: Mapping[str, Any], policy: CodePolicy, submitted: Mapping[str, Any]) -> None:
    """UserError where a script would run other code or data than it was submitted with, of `made_with`.

    Images that were not packed then may be packed by now. Of the code, the policy says what counts.
    """
    now = made_with(script, config)
    again = "run the same command again to submit it as it is now"
    counts, difference = policy.judge(submitted, now)
    if not counts:
        raise UserError(f"the code has changed since this job was submitted: {difference}; {again}")
    if submitted["table"] != now["table"] or submitted["packed"] not in (None, now["packed"]):
        raise UserError(f"the images have changed since this job was submitted; {again}")


def _state_in(folder: Path, config: Mapping[str, Any]) -> State:
    """The state of the run in a directory, whatever its arguments and its code."""
    summary = folder / "summary.json"
    if summary.is_file():
        return State.DONE if unchanged(_read(summary).get("outputs", {}), config["result_path"]) else State.NEW
    return State.CUT_OFF if _can_resume(folder, config) else State.NEW


def _runs(script: str, config: Mapping[str, Any]) -> Iterator[Path]:
    """The run directories among which the configuration's would be."""
    parts = [config[name] for name in ("method", "task", "type") if name in config]
    for path in sorted(Path(config["result_path"], STAGES[script], *parts).glob("*/args.json")):
        yield path.parent


# What runs leave out that do not use it: one that has it is another run.
_LEFT_OUT = {*scaling_arguments("features")}.union(
    (
        name
        for of in (Choices, PartitionSettings, AssignSettings, *SETTINGS)
        for name, each in arguments_in(of).items()
        if not each.recorded
    ),
    *(entry.arguments for entries in (*READERS.values(), PARTITIONERS, TRAINS) for entry in entries.values()),
)


def _is_of(said: Mapping[str, Any], made_with: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a run had no further arguments than the configuration, and had the present data and inputs."""
    return (
        _LEFT_OUT.isdisjoint(said.keys() - config.keys())
        and made_with.get("data_version") == _data_now(config["data_path"], said) is not None
        and unchanged(made_with.get("inputs", {}), config["result_path"])
    )


def _can_resume(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether an unfinished run has left a checkpoint."""
    if "resume_training" not in config:
        return False
    if "checkpoint_path" not in config:
        return Run(folder).has_checkpoint
    path = checkpoint_file(config["checkpoint_path"], config["task"], config["use_cbam"])
    # Central trainings of one task and seed share a checkpoint; if it is older than this run, another one wrote it.
    begun = (folder / "args.json").stat().st_mtime
    return any(each.stat().st_mtime >= begun for each in checkpoints(path))


def _data_now(data_path: Path, said: Mapping[str, Any]) -> str | None:
    """The present version of the data that a run with these arguments used."""
    try:
        if "guidance_path" in said and "task" not in said:  # a teacher sees the photographs alone
            return read_table(data_path).fingerprint
        arguments = "task", "depth_target", "published_quirks", "image_size"
        return _data_version(data_path, *(said[name] for name in arguments))
    except (KeyError, UserError):
        return None


@cache
def _data_version(data_path: Path, task: str, depth_target: str, quirks: bool, image_size: int) -> str | None:
    return data_version(read_table(data_path), get_task(task, depth_target, quirks), image_size)


def _read(path: Path) -> dict[str, Any]:
    """A run's JSON file; empty where it is missing or broken, as after a kill."""
    try:
        content = json_in(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
