"""A tracker beside `metrics.csv`: TensorBoard's files in the run directory, or Weights & Biases."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate import Accelerator

from utils.errors import UserError
from utils.files import read_json, write_json
from utils.processes import processes
from utils.renamed import with_present_names
from utils.stage import StageSettings

# What a tracker calls all that it gets from here: a folder in the run directory, a project.
_NAMES = {"tensorboard": "tensorboard", "wandb": "task-perspective-het"}


def accelerator_of(running: StageSettings) -> Accelerator:
    """The processes and devices that a script computes with, and the tracker of its `--track`, not yet started.

    UserError if the tracker's package is not installed.
    """
    if running.track and find_spec(running.track) is None:
        raise UserError(f"--track {running.track} needs a package: pip install {running.track}, or omit --track")
    return processes(running.use_accelerator, log_with=running.track, project_dir=running.result_path)


def start_tracker(accelerator: Accelerator, folder: Path, first: int) -> None:
    """Start the accelerator's tracker for the run in `folder`, or go on with it where the run is resumed.

    `first` is the next step: TensorBoard hides what an interrupted run has logged from there on. UserError where the
    tracker refuses, as Weights & Biases without a login does.
    """
    [name] = map(str, accelerator.log_with)
    accelerator.project_configuration.logging_dir = str(folder)
    options: dict[str, dict[str, Any]] = {"tensorboard": {"purge_step": first}}
    if name == "wandb":
        note = folder / "wandb.json"
        if not note.is_file():
            write_json(note, {"id": uuid4().hex})
        config = with_present_names(read_json(folder / "args.json", "it"))
        options["wandb"] = {
            **read_json(note, "the run"), "resume": "allow", "dir": str(folder),
            "name": str(folder.relative_to(accelerator.project_dir)), "config": config,
        }  # fmt: skip
    try:
        accelerator.init_trackers(_NAMES[name], init_kwargs=options)
    except OSError:
        raise  # the disk's, as everywhere
    except Exception as error:  # each tracker has its own kinds
        raise UserError(f"--track {name}: {str(error).rstrip('.')}; mend that, or omit --track") from error
