"""What counts as done: a finished run with these arguments, by this code, on this data and these models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch

from datasets.table import read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.algorithms import ALGORITHMS
from sweeps import records
from sweeps.grid import COMPARISON, SCALES, SETTINGS, SWEEP_TYPES, Command, Grid
from sweeps.records import State, parsed, state_of
from utils import versions
from utils.errors import UserError

START = "--data_path {data} --rand_seed 0"
FED = (
    "test_fed.py --task normal --type class_based --method fedprox --n_clients 4 --n_rounds 2 --sgd_per_epoch 1 "
    "--min_client_ds_len 1 --alpha 1 --n_clusters 4 "
) + START


@pytest.fixture
def run(own_copy: Path, run_here: Callable, tmp_path: Path) -> tuple[Command, Path]:
    """A finished federated run: its command, with the working folder where it was run, and its directory."""
    run_here("model_initialization.py --task normal --image_size 32 --norm group")
    command = FED.format(data=own_copy)
    run_here(command)
    records._data_version.cache_clear()
    return tuple(command.split()), tmp_path / "results/test_federated/fedprox/normal/class_based/alpha1_seed0"


def test_finished_run_is_done_however_its_arguments_are_written(run: tuple[Command, Path]) -> None:
    command, _ = run
    assert state_of(command) is State.DONE
    assert state_of((command[0], *command[-2:], *command[1:-2])) is State.DONE  # in another order
    assert state_of((*command, "--mu", "0.01", "--alpha", "1.0")) is State.DONE  # the method's default, and alpha
    assert state_of((*command, "--plot_distribution", "False")) is State.DONE


def test_other_arguments_are_another_run(run: tuple[Command, Path]) -> None:
    for more in ("--alpha 2", "--mu 0.5", "--rand_seed 1", "--method fedavg", "--type iid", "--momentum 0.5"):
        assert state_of((*run[0], *more.split())) is State.NEW


def test_run_without_a_summary_was_cut_off(run: tuple[Command, Path]) -> None:
    command, folder = run
    (folder / "summary.json").unlink()
    assert state_of(command) is State.CUT_OFF
    # Killed between the two renamings of a checkpoint, it has left the one before.
    (folder / "checkpoint/last.safetensors").unlink()
    assert state_of(command) is State.CUT_OFF
    (folder / "checkpoint/last_previous.safetensors").unlink()
    assert state_of(command) is State.NEW


def test_central_training_without_a_summary_was_cut_off_if_the_checkpoint_is_its_own(
    own_copy: Path, run_here: Callable, tmp_path: Path
) -> None:
    run_here("model_initialization.py --task normal --image_size 32 --encoder tiny")
    given = START.format(data=own_copy)
    command = f"train_centralized_task_model.py --task normal --test_mode True --n_epochs 2 {given}"
    run_here(command)
    records._data_version.cache_clear()
    state = partial(state_of, tuple(command.split()))
    folder = tmp_path / "results/train_centralized/normal/seed0"
    assert state() is State.DONE
    (folder / "summary.json").unlink()
    assert state() is State.CUT_OFF
    [last] = tmp_path.glob("**/centralized_normal_checkpoint.safetensors")
    last.unlink()
    assert state() is State.CUT_OFF  # the one before it is there
    (folder / "args.json").touch()
    assert state() is State.NEW  # which an earlier training of the same task and seed has left


@pytest.mark.parametrize("what", ["code", "model", "image", "selection", "environment"])
def test_run_by_other_code_or_on_other_files_is_not_done(
    run: tuple[Command, Path], own_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    command, folder = run
    if what == "code":
        monkeypatch.setattr(records, "code_version", lambda script, words: {"engine": "other"})
    elif what == "model":
        path = tmp_path / "initial_models/init_model_normal.safetensors"
        path.write_bytes(path.read_bytes() + b" ")
    elif what == "image":
        path = next(own_copy.glob("normal/taskonomy/*/*.png"))
        path.write_bytes(path.read_bytes() + b" ")
    elif what == "selection":
        path = own_copy / "filtered_file_paths.csv"
        path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    else:
        (folder / "environment.json").write_text("{")  # killed as it was written
    assert state_of(command) is State.NEW
    (folder / "summary.json").unlink()
    assert state_of(command) is State.NEW  # nor is it resumed


METHOD = ("def ", "def more(self) -> None: ...\n\n    def ")
EDITS = (
    ("network/algorithms/moon.py", *METHOD, State.DONE),  # another method
    ("network/algorithms/__init__.py", '"fedavg": FedAvg,', '"fedavg": FedAvg, "mine": FedAvg,', State.DONE),
    ("datasets/tasks.py", '"reshading", 1', '"reshading", 2', State.DONE),  # another task
    ("network/algorithms/fedprox.py", *METHOD, State.NEW),
    ("datasets/tasks.py", '"normal", 3', '"normal", 4', State.NEW),
    ("network/simulation.py", "class Simulation:", "class Simulation:\n    size = 1", State.NEW),
)


def test_run_stays_done_until_code_changes_that_it_executed(
    run: tuple[Command, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "project"
    for name in ("datasets", "models", "network", "utils"):
        shutil.copytree(versions.ROOT / name, copy / name)
    for path in versions.ROOT.glob("*.py"):
        shutil.copy(path, copy)
    monkeypatch.setattr(versions, "ROOT", copy)
    for file, old, new, state in EDITS:
        text = (copy / file).read_text()
        assert old in text
        (copy / file).write_text(text.replace(old, new, 1))
        for remembered in (versions.code_version, versions._program):
            remembered.cache_clear()
        assert (file, state_of(run[0])) == (file, state)
        (copy / file).write_text(text)
    for remembered in (versions.code_version, versions._program):
        remembered.cache_clear()


def test_copy_of_the_data_is_the_same_data(run: tuple[Command, Path], own_copy: Path) -> None:
    command, folder = run
    version = json.loads((folder / "environment.json").read_text())["data_version"]
    for path in own_copy.rglob("*.png"):
        path.touch()
    records._data_version.cache_clear()
    assert state_of(command) is State.NEW  # until it is packed again, nobody knows
    data = TaskData(read_table(own_copy), get_task("normal"), 32, torch.device("cpu"))
    assert data.version == version
    records._data_version.cache_clear()
    assert state_of(command) is State.DONE


def test_refused_arguments_are_the_scripts_own_error() -> None:
    with pytest.raises(UserError, match="--sgd_per_epok"):
        parsed(("test_fed.py", "--task", "normal", "--sgd_per_epok", "3"))


def has_values(scale: str, sweep_type: str) -> bool:
    """Whether the scale says what a sweep of this type varies."""
    return sweep_type == COMPARISON or (SETTINGS / scale / f"{sweep_type}.txt").is_file()


@pytest.mark.parametrize(("scale", "sweep_type"), [pair for pair in product(SCALES, SWEEP_TYPES) if has_values(*pair)])
def test_scripts_understand_the_settings_of_every_scale(scale: str, sweep_type: str) -> None:
    paths = (Path("data"), Path("results"))
    tasks, methods = ["normal", "class_scene"], [*ALGORITHMS]
    grid = Grid(scale, *paths, tasks, methods, ["class_based"], ["0.01"], [0], [16], sweep_type)
    assert len(grid.federated()) >= 2 * len(ALGORITHMS)
    for job in (*grid.central(), *grid.federated()):
        for command in job.commands:
            assert parsed(command).task in command
