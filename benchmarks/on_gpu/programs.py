"""What programs of their own do on the GPU: the comparison of splits, pfl on the same federation, and several GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import torch

from benchmarks import peers, scaling
from benchmarks.on_gpu.measures import Measure, NotHere, Result, Setup
from utils.errors import UserError

# What `bash run_pipeline.sh` says at 32 pixels on client train (docs/results.md).
VERDICTS = {"depth_euclidean": "higher", "reshading": "higher", "class_scene": "lower"}
_VERDICT = "the comparison at 64 px, {}"
_CLIENT_TRAIN = "client train"
_PFL = "{}: pfl's time over ours"
_TWO = "two processes on two GPUs: rounds a second over one"


def comparison_measures() -> list[Measure]:
    """The rows of `comparison`."""
    return [Measure(_VERDICT.format(task), word=word) for task, word in VERDICTS.items()]


def comparison(setup: Setup) -> Iterator[Result]:
    """The verdicts of the first command at 64 pixels; the sweep goes on where an earlier one was cut off."""
    result_path = setup.folder / "comparison"
    command = [sys.executable, "run_sweep.py", "--experiment", "experiments/task_perspective/pipeline.toml"]
    command += ["--init_arguments", "image_size=64", "--result_path", str(result_path.resolve())]
    command += ["--jobs", str(min(8, len(os.sched_getaffinity(0))))]
    if setup.small:
        command += ["--test_mode", "--seeds", "0", "--tasks", "depth_euclidean"]
    output, hidden = setup.folder / "comparison.txt", {"CUDA_VISIBLE_DEVICES": ""} if setup.device == "cpu" else {}
    with output.open("w", encoding="utf-8") as file:
        options = {"cwd": scaling.ROOT, "env": os.environ | hidden, "stdout": file, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, check=False, **options)
    if done.returncode:
        raise UserError(f"run_sweep.py has failed: see {output}")
    verdicts = pd.read_csv(result_path / "tables" / "verdicts.csv", dtype=str)
    yield from of_table(verdicts)


def of_table(verdicts: pd.DataFrame) -> Iterator[Result]:
    """The verdict of each task on client train, with its interval, from the table of all."""
    (verdict,) = (column for column in verdicts if column.startswith("loss under the embedding partition"))
    for row in verdicts[verdicts["data"] == _CLIENT_TRAIN].to_dict("records"):
        if row["task"] in VERDICTS:
            verdict_text = f"{row[verdict]}, {row['embedding over class, %']} %"
            yield Result(_VERDICT.format(row["task"]), verdict_text, {"row": row})


def pfl_measures() -> list[Measure]:
    """The rows of `pfl`."""
    return [Measure(_PFL.format(model), ".2f", least=1.0) for model in peers.CASES]


def pfl(setup: Setup) -> Iterator[Result]:
    """The same federation by pfl and by ours, each in a process of its own, in turn."""
    if not find_spec("pfl"):
        raise NotHere("pfl is not installed")
    for model, case in peers.CASES.items():
        federation = replace(case, device=setup.device)
        if setup.small:
            federation = replace(federation, n_clients=2, n_steps=1)
        seconds, weights = peers.run(federation, ["bare steps", "ours", "pfl"], 1 if setup.small else 5, 1)
        peers.check(federation, weights)
        details = {"ms a round": {name: 1e3 * float(np.median(taken)) for name, taken in seconds.items()}}
        yield Result(_PFL.format(model), float(np.median(seconds["pfl"] / seconds["ours"])), details)


def several_measures() -> list[Measure]:
    """The row of `several`."""
    return [Measure(_TWO, ".2f")]


def several(setup: Setup) -> Iterator[Result]:
    """Whether two processes of `accelerate launch`, a GPU each, end with the metrics of one, and how fast they are."""
    if setup.device == "cuda" and torch.cuda.device_count() < 2:
        raise NotHere("there is one GPU")
    on_gpus, n_rounds = setup.device == "cuda", 2 if setup.small else 6
    scale = "smallest" if setup.small else "conv64"
    alone, both = (scaling.launched(scale, n, n_rounds, on_gpus) for n in (1, 2))
    scaling.check(2, both, alone)
    speeds = [1 / np.median([row["seconds"] for row in rows[2:]]) for rows in (alone, both)]
    yield Result(_TWO, float(speeds[1] / speeds[0]), {"rounds a second": list(map(float, speeds))})
