"""Trainings that are killed or interrupted, as processes of their own, end like those that are left alone."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from network.engine.state import VersionLog
from tests.conftest import start_in, start_spread
from utils import interrupt
from utils.files import files_below
from utils.versions import ids_digest

TRAIN = (
    "train_centralized_task_model.py --task normal --n_epochs 3 --batch_size 4 --init_lr 0.05 --use_adam True "
    "--use_accelerator False --checkpoint_every 2"
)
FED = (
    "test_fed.py --task normal --type class_based --partition equal_size --n_clients 3 --n_rounds 4 --sgd_per_epoch 2 "
    "--momentum 0.5 --batch_size 8 --clients_per_round 2 --plot_distribution False --use_accelerator False"
)
FEDERATIONS = {
    "scaffold": f"{FED} --method scaffold",
    "ditto": f"{FED} --method ditto --checkpoint_every 3",
    "fedamp": f"{FED} --method fedamp --checkpoint_every 2",
    "moon": f"{FED} --method moon --batch_norm local",
}
RESUME = " --resume_training True"
_LIMIT = 300  # seconds, for a machine that is busy with other things


@pytest.fixture(scope="module")
def prepared(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with everything that the trainings start from, whose images are packed."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(rendered, folder / "data")
    extract = "extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path data"
    for command in (extract, "model_initialization.py --task normal --image_size 32"):
        finish(start_in(folder, command), folder)
    return folder


def finish(process: Any, folder: Path, code: int = 0) -> str:
    """Wait for the end; returns what the process wrote."""
    process.join(_LIMIT)
    output = (folder / "output.txt").read_text().replace("\r", "\n")
    assert process.exitcode == code, output[-3000:]
    return output


def begin(prepared: Path, folder: Path) -> Path:
    """A working folder of its own for a run; the data is shared."""
    folder.mkdir()
    for name in ("initial_models", "trained_models", "results"):
        if (prepared / name).is_dir():
            shutil.copytree(prepared / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def whole(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, float, int]]:
    """Run a command once and undisturbed: its folder, its seconds, and how often it changed a folder."""

    @cache
    def run(command: str) -> tuple[Path, float, int]:
        folder = begin(prepared, tmp_path_factory.mktemp("whole") / "run")
        start, count = time.monotonic(), folder.with_name("count")
        finish(start_in(folder, command, partial(die_at, 0, count)), folder)
        return folder, time.monotonic() - start, int(count.read_text())

    return run


def tensors(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def result(folder: Path) -> tuple[list, dict[str, dict[str, torch.Tensor]]]:
    """The metrics of the last finished run in a folder, and all the weights and states that it leaves."""
    finished = [
        path
        for stage in ("test_federated", "train_centralized")
        for path in folder.glob(f"results/{stage}/**/summary.json")
    ]
    summary = max(finished, key=lambda path: path.stat().st_mtime_ns)
    run = summary.parent
    rows = pd.read_csv(run / "metrics.csv").drop(columns="seconds", errors="ignore").to_dict("records")
    models = folder.glob("trained_models/*.safetensors")
    weights = {path.name: tensors(path) for path in models if "previous" not in path.name}
    checkpoint = run / "checkpoint" / "last.safetensors"
    if checkpoint.is_file():
        weights["server"] = tensors(checkpoint)
        with safe_open(checkpoint, framework="pt") as file:
            n_notes = json.loads(file.metadata()["state"])["clients"]
        versions = VersionLog(run / "checkpoint" / "clients.versions").read(n_notes)
        for client, version in versions.items():
            weights[str(client)] = tensors(run / "checkpoint" / "clients" / f"{client}-{version}.safetensors")
    return [rows, json.loads(summary.read_text())["trivial"]], weights


def assert_same(folder: Path, whole: Path) -> None:
    """Whether two runs agree to the last bit."""
    (rows, weights), (other_rows, other_weights) = result(folder), result(whole)
    assert str(rows) == str(other_rows)  # as text, in which nan equals itself
    assert weights.keys() == other_weights.keys() and len(weights) > 0
    for name, parts in weights.items():
        assert parts.keys() == other_weights[name].keys()
        assert [key for key in parts if not torch.equal(parts[key], other_weights[name][key])] == [], name


def assert_resumes_and_spreads(command: str, prepared: Path, folder: Path) -> None:
    """Interrupted, a federation resumes to the last bit; and two processes find the same, but for rounding."""
    whole, stopped, spread = (begin(prepared, folder / name) for name in ("whole", "stopped", "spread"))
    finish(start_in(whole, command), whole)
    finish(start_in(stopped, command, partial(_interrupt_in_step, 3, signal.SIGINT)), stopped, 130)
    finish(start_in(stopped, command + RESUME), stopped)
    assert_same(stopped, whole)
    for process in start_spread(spread, command, 2):
        finish(process, spread)
    [alone, together] = (pd.DataFrame(result(each)[0][0]) for each in (whole, spread))
    pd.testing.assert_frame_equal(alone, together, rtol=1e-4, atol=1e-5)


def has_checkpoint(folder: Path) -> bool:
    found = files_below(folder / "results" / "test_federated", "last*.safetensors")
    return bool(found) or any(folder.glob("trained_models/*_checkpoint*.safetensors"))


def die_at(number: int, operations: Path | None = None) -> None:
    """Let this process kill itself before its `number`th change of a folder, or only count them into a file."""
    count = 0

    def counted(original: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            if operations:
                operations.write_text(str(count))
            return original(*args, **kwargs)

        return call

    for name in ("replace", "unlink", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("name", ["central", *FEDERATIONS])
def test_killed_at_any_moment_it_resumes_to_the_last_bit(
    prepared: Path, whole: Callable, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    command = f"{FEDERATIONS.get(name, TRAIN)} --data_path {prepared / 'data'}"
    undisturbed, seconds, n_operations = whole(command)
    folder = begin(prepared, tmp_path / "killed")
    chance = random.Random(name)
    kills = 0
    while kills < request.config.getoption("--soak"):
        by_operation = kills % 2 == 0  # every other time between two changes of the disk, where it is most delicate
        hook = partial(die_at, chance.randint(n_operations // 4, n_operations)) if by_operation else None
        resume = RESUME if has_checkpoint(folder) else ""
        process = start_in(folder, command + resume, hook)
        process.join(_LIMIT if by_operation else chance.uniform(0.3, 1.0) * seconds)
        process.kill()
        process.join()
        if process.exitcode == 0:  # it was too quick: once more from the start
            assert_same(folder, undisturbed)
            shutil.rmtree(folder)
            begin(prepared, folder)
        else:
            assert process.exitcode == -signal.SIGKILL, (folder / "output.txt").read_text()[-3000:]
        kills += 1
    finish(start_in(folder, command + (RESUME if has_checkpoint(folder) else "")), folder)
    assert_same(folder, undisturbed)


def wait_for(what: Callable[[], bool], process: Any) -> None:
    """Wait until something has come about, while the process runs."""
    limit = time.monotonic() + _LIMIT
    while not what():
        assert process.is_alive() and time.monotonic() < limit
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole_of_two(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federation that two processes have run undisturbed."""
    folder = begin(prepared, tmp_path_factory.mktemp("two") / "run")
    for process in start_spread(folder, f"{FEDERATIONS['scaffold']} --data_path {prepared / 'data'}", 2):
        finish(process, folder)
    return folder


def test_two_processes_are_killed_and_resume(prepared: Path, whole_of_two: Path, tmp_path: Path) -> None:
    command = f"{FEDERATIONS['scaffold']} --data_path {prepared / 'data'}"
    folder = begin(prepared, tmp_path / "killed")
    chance = random.Random(2)
    for moment in range(2):
        both = start_spread(folder, command + (RESUME if has_checkpoint(folder) else ""), 2)
        wait_for(lambda: has_checkpoint(folder), both[0])
        time.sleep(chance.uniform(0.0, 0.3))
        for process in both if moment else reversed(both):
            process.kill()
            process.join()
    for process in start_spread(folder, command + RESUME, 2):
        finish(process, folder)
    assert_same(folder, whole_of_two)
    assert json.loads(next(folder.glob("results/**/environment.json")).read_text())["processes"] == 2


# Ctrl-C and SIGTERM


def resumed(folder: Path, output: str) -> str:
    """Run the command that an interrupted training says; returns its output."""
    [line] = [line for line in output.splitlines() if line.startswith("interrupted")]
    command = line.split("go on with: ")[1]
    assert command.startswith("python ") and "Traceback" not in output
    return finish(start_in(folder, command.removeprefix("python ")), folder)


def _interrupt_in_step(step: int, number: signal.Signals) -> None:
    """Let this process get a signal at the end of this step, counted over all rounds or epochs."""
    check, steps = interrupt.check, itertools.count(1)

    def counted() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), number)
        check()

    interrupt.check = counted


@pytest.mark.parametrize(
    ("command", "step", "number"),
    [  # in the second epoch, and in the third round
        (TRAIN, 15, signal.SIGINT),
        (FEDERATIONS["ditto"], 18, signal.SIGTERM),
        (FEDERATIONS["fedamp"], 10, signal.SIGINT),
    ],
    ids=["central", "ditto", "fedamp"],
)
def test_an_interrupted_training_says_how_to_go_on(
    prepared: Path, whole: Callable, tmp_path: Path, command: str, step: int, number: signal.Signals
) -> None:
    command += f" --data_path {prepared / 'data'}"
    folder = begin(prepared, tmp_path / "stopped")
    output = finish(start_in(folder, command, partial(_interrupt_in_step, step, number)), folder, 130)
    assert has_checkpoint(folder)
    resumed(folder, output)
    assert_same(folder, whole(command)[0])


def test_one_of_two_processes_is_interrupted_and_both_stop(prepared: Path, whole_of_two: Path, tmp_path: Path) -> None:
    command = f"{FEDERATIONS['scaffold']} --checkpoint_every 4 --data_path {prepared / 'data'}"
    folder = begin(prepared, tmp_path / "stopped")
    both = start_spread(folder, command, 2, partial(_interrupt_in_step, 4, signal.SIGTERM))
    output = finish(both[0], folder, 130)
    both[1].join(_LIMIT)
    assert both[1].exitcode == 130 and "interrupted" not in (folder / "output1.txt").read_text()
    assert "go on with: accelerate launch --multi_gpu --num_processes 2 " in output
    for process in start_spread(folder, command + RESUME, 2):
        finish(process, folder)
    assert_same(folder, whole_of_two)


def test_interrupted_outside_of_a_training_it_ends_at_once(prepared: Path, tmp_path: Path) -> None:
    folder = begin(prepared, tmp_path / "stopped")
    command = f"{TRAIN} --data_path {prepared / 'data'}"
    output = finish(start_in(folder, command, _interrupt_the_loading), folder, 130)
    assert output.splitlines() == ["interrupted"]
    assert not has_checkpoint(folder) and not (folder / "results" / "train_centralized").exists()


def _interrupt_the_loading() -> None:
    from datasets.task_data import TaskData

    TaskData.open = lambda *args: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(_LIMIT)  # type: ignore


@pytest.mark.parametrize("moment", ["in a step", "while it saves"])
def test_a_second_interrupt_ends_it_at_once(prepared: Path, tmp_path: Path, moment: str) -> None:
    folder = begin(prepared, tmp_path / "stopped")
    command = f"{FED} --data_path {prepared / 'data'}"
    process = start_in(folder, command, {"in a step": _interrupt_a_step, "while it saves": _interrupt_saving}[moment])
    output = finish(process, folder, 130)
    assert output.splitlines()[-1] == "interrupted" and "Traceback" not in output
    finish(start_in(folder, command + RESUME), folder)  # from before the first round


def _interrupt_a_step() -> None:
    """Twice, and once more while the program ends."""
    from network.engine.workspace import Workspace

    def stuck(*args: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_LIMIT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    Workspace.__call__ = stuck  # type: ignore[method-assign]


def _interrupt_saving() -> None:
    """A step, then the clients' states that the stopped round leaves; and once more while the program ends."""
    from network.engine.state import ClientStates
    from network.engine.workspace import Workspace

    step, roll_back = Workspace.__call__, ClientStates.roll_back

    def interrupted_step(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return step(*args)

    def interrupted(*args: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_LIMIT)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            roll_back(*args)

    Workspace.__call__, ClientStates.roll_back = interrupted_step, interrupted  # type: ignore[method-assign]


# Embeddings and packed images go on, too; and what runs at once stays apart


def test_interrupted_embeddings_go_on_and_give_the_same_clusters(prepared: Path, tmp_path: Path) -> None:
    folder, whole = begin(prepared, tmp_path / "stopped"), begin(prepared, tmp_path / "whole")
    data = prepared / "data"
    embed = f"extract_embeddings.py --task normal --n_clusters 4 --use_accelerator False --data_path {data}"
    finish(start_in(folder, f"{TRAIN} --n_epochs 1 --data_path {data}"), folder)
    shutil.copytree(folder / "trained_models", whole / "trained_models")
    output = finish(start_in(folder, embed, _interrupt_the_embeddings), folder, 130)
    assert output.splitlines()[-1] == "interrupted"
    finish(start_in(folder, embed + RESUME, _count_the_embeddings), folder)
    assert (folder / "embedded").read_text() == "8"  # of 72 images in batches of 64, what was left
    finish(start_in(whole, embed, _count_the_embeddings), whole)
    assert (whole / "embedded").read_text() == "72"
    for name in ("assignments_normal.npy", "centers_normal.npy"):
        assert (folder / "assignments" / name).read_bytes() == (whole / "assignments" / name).read_bytes()
    assert len(list(folder.glob("results/extract_embeddings/normal/*"))) == 1  # the same run


def _interrupt_the_embeddings() -> None:
    from datasets.task_data import TaskData

    batch = TaskData.batch

    def once(self: TaskData, positions: torch.Tensor) -> object:
        if len(positions) == 8:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        return batch(self, positions)

    TaskData.batch = once  # type: ignore[assignment, method-assign]


def _count_the_embeddings() -> None:
    from models.embedding import embeddings

    fill = embeddings.fill

    def counted(*args: Any) -> object:
        *before, work, title = args
        total = 0

        def count(array: Any, rows: Any) -> None:
            nonlocal total
            total += len(rows)
            Path("embedded").write_text(str(total))
            work(array, rows)

        return fill(*before, count, title)

    embeddings.fill = counted


def test_runs_started_at_once_do_not_meet(prepared: Path, tmp_path: Path) -> None:
    """Two federated runs and two clusterings of one name, which begin with the images not yet packed."""
    folder = begin(prepared, tmp_path / "together")
    shutil.copytree(prepared / "data", folder / "data", ignore=shutil.ignore_patterns("packed"))
    shutil.copytree(prepared / "data", tmp_path / "data")
    finish(start_in(folder, f"{TRAIN} --n_epochs 1 --data_path {tmp_path / 'data'}"), folder)
    embed = "extract_embeddings.py --task normal --data_path data --use_accelerator False --n_clusters"
    commands = [f"{FED} --data_path data"] * 2 + [f"{embed} {k}" for k in (3, 4)]
    processes = [start_in(folder, command) for command in commands]
    for process in processes:
        process.join(_LIMIT)
        assert process.exitcode == 0, (folder / "output.txt").read_text()[-3000:]
    runs = [path.parent for path in folder.glob("results/test_federated/**/summary.json")]
    assert sorted(run.name for run in runs) == ["equal_size_alpha0.1_seed42", "equal_size_alpha0.1_seed42_2"]
    one, other = (pd.read_csv(run / "metrics.csv").drop(columns="seconds") for run in runs)
    assert one.equals(other)
    # The clusters are those of one of them, whichever came last.
    assigned = np.load(folder / "assignments" / "assignments_normal.npy")
    about = json.loads((folder / "assignments" / "assignments_normal.json").read_text())
    assert assigned.max() + 1 == about["n_clusters"] and ids_digest(assigned) == about["assignments_sha256"]
    for name in ("rgb.npy", "normal.npy"):
        packed = [place / "data" / "packed" / "32" / name for place in (folder, prepared)]
        assert packed[0].read_bytes() == packed[1].read_bytes()


def test_every_stage_has_a_test_mode(prepared: Path, tmp_path: Path) -> None:
    folder = begin(prepared, tmp_path / "short")
    for command in (f"{TRAIN} --n_epochs 1000", "extract_embeddings.py --task normal --n_clusters 4", FED):
        finish(start_in(folder, f"{command} --test_mode True --data_path {prepared / 'data'}", _few_images), folder)
    assigned = np.load(folder / "assignments" / "assignments_normal.npy")
    assert (assigned >= 0).sum() == 30 + 6
    [run] = folder.glob("results/test_federated/**/summary.json")
    sizes = json.loads((run.parent / "partition.json").read_text())["client_sizes"]
    assert sum(sizes) <= 30 and len(pd.read_csv(run.parent / "metrics.csv")) == 3


def _few_images() -> None:
    from datasets import task_data

    task_data._TEST_MODE = (30, 6)
