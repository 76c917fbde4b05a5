"""Trackers get what `metrics.csv` gets, and go on where a run is resumed."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import accelerate.tracking
import numpy as np
import pandas as pd
import pytest
from accelerate.utils import LoggerType

from utils import tracking
from utils.errors import UserError
from utils.runs import Run
from utils.stage import StageSettings
from utils.tracking import accelerator_of


def started(result_path: Path, track: str | None, first: int, resume: bool = False) -> Run:
    """A run, new or taken up again, that is tracked from step `first` on."""
    config = {"result_path": result_path, "track": track, "use_accelerator": False, "resume_training": resume}
    run = Run.take_up(config, "test_federated", "seed4")
    run.track(accelerator_of(StageSettings.from_config(config)), first)
    return run


def row(round: int, loss: float) -> dict[str, Any]:
    return {"round": round, "train_loss": loss, "seconds": 0.5}


def logged(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of each column, as TensorBoard shows them."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_each_round_once_after_resuming(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = started(tmp_path, "tensorboard", 0)
    rows = [row(0, 4.0), row(1, 3.0), row(2, 99.0)]
    for n in (1, 2, 3):
        run.write_metrics(rows[:n])
    run._held.close()  # killed after round 2, whose checkpoint was not written
    again = started(tmp_path, "tensorboard", 2, resume=True)
    assert again.path == run.path
    rows[2:] = [row(2, 2.0), row(3, 1.0)]
    for n in (3, 4):
        again.write_metrics(rows[:n])
    shown = logged(run.path)
    assert shown["train_loss"] == [(0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)]
    assert [step for step, _ in shown["seconds"]] == [0, 1, 2, 3] and "round" not in shown


def test_without_a_tracker_there_is_the_table_alone(tmp_path: Path) -> None:
    run = started(tmp_path, None, 0)
    run.write_metrics([row(0, 4.0)])
    assert {path.name for path in run.path.iterdir()} == {"metrics.csv", "args.json", "environment.json", ".lock"}


def test_missing_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="--track wandb needs a package: pip install wandb, or omit --track"):
        started(tmp_path, "wandb", 0)


@pytest.mark.parametrize("stage", ["central", "federated"])
def test_scripts_log_what_they_write(own_copy: Path, run_here: Callable, tmp_path: Path, stage: str) -> None:
    pytest.importorskip("tensorboard")
    run_here("model_initialization.py --task normal --image_size 32")
    federated = "test_fed.py --type class_based --partition equal_size --n_clients 3"  # uses nearly all images
    script = {"central": "train_centralized_task_model.py", "federated": federated}
    run_here(f"{script[stage]} --task normal --data_path {own_copy} --test_mode True --track tensorboard")
    [metrics] = tmp_path.glob("results/**/metrics.csv")
    table = pd.read_csv(metrics)
    shown = logged(metrics.parent)
    unit, *columns = table.columns
    assert shown.keys() == set(columns) and len(table) >= 2
    for column in columns:
        assert [step for step, _ in shown[column]] == table[unit].tolist()
        np.testing.assert_allclose([value for _, value in shown[column]], table[column], rtol=1e-6)


# Weights & Biases, which is not installed for these tests: a stand-in for its module writes down what it is asked for.


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: Any = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.begun, module.rows = [], []

    def init(**options: Any) -> Any:
        module.begun.append(options)
        return Namespace(log=lambda values, step: module.rows.append((step, values)))

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(accelerate.tracking, "_available_trackers", [LoggerType.WANDB])
    return module


def test_wandb_goes_on_with_the_same_run(tmp_path: Path, wandb: Any) -> None:
    run = started(tmp_path, "wandb", 0)
    run.write_metrics([row(0, 4.0)])
    run._held.close()
    started(tmp_path, "wandb", 1, resume=True).write_metrics([row(0, 4.0), row(1, 3.0)])
    assert wandb.rows == [(0, {"train_loss": 4.0, "seconds": 0.5}), (1, {"train_loss": 3.0, "seconds": 0.5})]
    first, second = wandb.begun
    assert first == second and first["resume"] == "allow" and len(first["id"]) == 32
    assert first["name"] == "test_federated/seed4" and first["config"]["track"] == "wandb"
    assert Path(first["dir"]) == run.path


def test_a_tracker_that_refuses_is_one_line(tmp_path: Path, wandb: Any) -> None:
    def refuse(**options: Any) -> None:
        raise ValueError("no API key; log in.")

    wandb.init = refuse
    with pytest.raises(UserError, match="--track wandb: no API key; log in; mend that, or omit --track"):
        started(tmp_path, "wandb", 0)
