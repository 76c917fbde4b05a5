"""Central training: resuming, which weights are the best, the decay, and what stops it."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.central import training
from models.central.settings import TrainSettings
from models.central.training import (
    CentralTraining,
    central_files,
    checkpoint_file,
    model_from_checkpoint,
    validation_split,
)
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel, load_model
from utils import interrupt
from utils.errors import UserError
from utils.runs import load_checkpoint, save_checkpoint
from utils.streams import generator

TASK = "depth_euclidean"
SETTINGS = TrainSettings(
    n_epochs=4,
    batch_size=16,
    init_lr=0.05,
    lr_decay_rate=0.5,
    no_improvement_tolerance=1,
    use_adam=False,
    val_fraction=0.2,
    rand_seed=7,
)


class Trainer:
    """Makes trainings of one task at 32 pixels whose files lie in one folder."""

    def __init__(self, table: Table, folder: Path, task: str = TASK, size: int = 32) -> None:
        self.task, self.size, self.folder = task, size, folder
        self.data = TaskData(table, table.bind(get_task(task)), size, torch.device("cpu"))

    def __call__(self, name: str, settings: TrainSettings = SETTINGS, **config: object) -> CentralTraining:
        torch.manual_seed(3)
        model = TaskModel(ModelConfig(self.task, image_size=self.size, classes=self.data.task.classes, **config))
        files = central_files(self.folder / name, self.task, False)
        return CentralTraining(model, self.data, settings, Accelerator(cpu=True), *files)


@pytest.fixture
def trainer(table: Table, tmp_path: Path) -> Trainer:
    return Trainer(table, tmp_path)


def run(trained: CentralTraining) -> list[dict[str, torch.Tensor]]:
    """Train, and return the weights after each epoch."""
    weights = []
    trained.run(lambda _: weights.append({k: v.clone() for k, v in trained.model.state_dict().items()}))
    return weights


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


# Resuming


@pytest.mark.parametrize("use_adam", [False, True], ids=["sgd", "adam"])
def test_resumed_training_ends_like_an_uninterrupted_one(
    trainer: Trainer, use_adam: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = cycle([1.0, 2.0, 3.0, 4.0])  # no improvement, so that the rate decays before and after the interruption
    monkeypatch.setattr(training, "mean_values", lambda data, statistics: {"loss": next(losses)})
    settings = replace(SETTINGS, use_adam=use_adam, init_lr=0.01)
    whole = trainer("whole", settings)
    last = run(whole)[-1]
    run(trainer("parts", replace(settings, n_epochs=2)))
    resumed = trainer("parts", settings)
    resumed.resume()
    assert len(resumed.history) == 2
    assert_same(run(resumed)[-1], last)
    assert resumed.history == whole.history
    assert [row["lr"] for row in resumed.history] == pytest.approx([0.01, 0.01, 0.005, 0.0025])
    best = [load_model(each.best, TASK, "").state_dict() for each in (whole, resumed)]
    assert_same(*best)


def test_one_cycle_rises_and_falls_step_by_step_and_resumes(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, lr_schedule="one_cycle", use_adam=True, init_lr=0.01, n_epochs=3)
    whole = trainer("whole", settings)
    weights = run(whole)

    def rate(step: int) -> float:
        """Half a cosine from a 25th of 0.01 up to it, and half a one from there to nothing."""
        n_all = 3 * whole.n_steps
        top, end = 0.3 * n_all - 1, n_all - 1
        if step <= top:
            return 0.0004 + (0.01 - 0.0004) * (1 - math.cos(math.pi * step / top)) / 2
        return 0.01 * (1 + math.cos(math.pi * (step - top) / (end - top))) / 2

    found = [row["lr"] for row in whole.history]
    assert found[:2] == pytest.approx([rate(whole.n_steps), rate(2 * whole.n_steps)], abs=1e-6) and found[2] < 1e-3
    stopped = trainer("parts", settings)
    finish = stopped._finish_epoch

    def finish_one(epoch: int, train_loss: float) -> NoReturn:
        finish(epoch, train_loss)
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, "_finish_epoch", finish_one)
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    resumed = trainer("parts", settings)
    resumed.resume()
    assert_same(run(resumed)[-1], weights[-1])
    with pytest.raises(UserError, match="another --n_epochs"):
        trainer("parts", replace(settings, n_epochs=5)).resume()


def test_resumed_training_keeps_the_number_of_threads(trainer: Trainer) -> None:
    """With another one, sums are rounded otherwise."""
    settings = replace(SETTINGS, n_epochs=1, batch_size=64)
    try:
        torch.set_num_threads(2)
        run(trainer("parts", settings))
        torch.set_num_threads(1)
        trainer("parts", replace(settings, n_epochs=2)).resume()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_training_follows_from_the_seed(trainer: Trainer) -> None:
    settings = replace(SETTINGS, n_epochs=1)
    first, second, other = (
        run(trainer(name, each))[0]
        for name, each in (("a", settings), ("b", settings), ("c", replace(settings, rand_seed=8)))
    )
    assert_same(first, second)
    assert not torch.equal(first["decoder.head.0.weight"], other["decoder.head.0.weight"])


@pytest.mark.parametrize(
    "changes, config, message",
    [
        ({"init_lr": 0.1}, {}, "another --init_lr; resume with the same"),
        ({"batch_size": 8, "rand_seed": 1}, {}, "another --batch_size, --rand_seed"),
        ({}, {"use_cbam": True}, "initial model"),
        ({}, {"norm": "group"}, "initial model"),
    ],
)
def test_resuming_with_other_arguments_is_refused(
    trainer: Trainer, changes: dict[str, float], config: dict[str, object], message: str
) -> None:
    run(trainer("a", replace(SETTINGS, n_epochs=1)))
    with pytest.raises(UserError, match=message):
        trainer("a", replace(SETTINGS, **changes), **config).resume()


def test_resuming_without_a_checkpoint_is_refused(trainer: Trainer) -> None:
    with pytest.raises(UserError, match="not a readable checkpoint"):
        trainer("a").resume()


def test_last_model_comes_from_the_checkpoint(trainer: Trainer, tmp_path: Path) -> None:
    last = run(trainer("a", replace(SETTINGS, n_epochs=2)))[-1]
    path = checkpoint_file(tmp_path / "a", TASK, False)
    assert_same(model_from_checkpoint(path, TASK).state_dict(), last)
    with pytest.raises(UserError, match="holds a model for depth_euclidean, not for --task normal"):
        model_from_checkpoint(path, "normal")
    with pytest.raises(UserError, match=r"run train_centralized_task_model\.py --task normal first"):
        model_from_checkpoint(path.with_name("other.safetensors"), "normal")


def test_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "last.safetensors", {"server.a": torch.zeros(1)}, {"rows": []})
    with pytest.raises(UserError):
        model_from_checkpoint(tmp_path / "last.safetensors", TASK)


@pytest.mark.parametrize("config", [[], {"colour": 1}, {"task": TASK, "classes": [1]}, {"task": TASK, "classes": {}}])
def test_checkpoint_of_no_model_is_refused(trainer: Trainer, config: object) -> None:
    trained = trainer("a", replace(SETTINGS, n_epochs=1))
    run(trained)
    tensors, state = load_checkpoint(trained.checkpoint, "")
    save_checkpoint(trained.checkpoint, tensors, state | {"config": config})
    with pytest.raises(UserError, match="is not a checkpoint of train_centralized_task_model"):
        model_from_checkpoint(trained.checkpoint, TASK)
    with pytest.raises(UserError, match="is not a checkpoint of train_centralized_task_model"):
        trainer("a").resume()


# The early model


def test_early_model_is_kept_after_so_many_steps_or_the_last(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, n_epochs=4)
    weights = run(trainer("plain", settings))
    n_steps = trainer("plain").n_steps
    assert n_steps == 3  # 43 images to train on, 16 a step
    for steps, epochs, after in ((n_steps, 4, 1), (3 * n_steps, 4, 3), (1000, 4, 4), (1000, 2, 2)):
        monkeypatch.setattr(training, "EARLY_STEPS", steps)
        trained = trainer(f"{steps} of {epochs}", replace(settings, n_epochs=epochs))
        run(trained)
        assert_same(load_model(trained.early, TASK, "").state_dict(), weights[after - 1])


def test_early_model_within_an_epoch_is_that_of_the_step(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "EARLY_STEPS", 4)
    trained = trainer("a", replace(SETTINGS, n_epochs=2))
    run(trained)
    # One epoch as it is, and then the first step of the second, with the same images.
    other = trainer("b", replace(SETTINGS, n_epochs=1))
    run(other)
    order = generator("epoch", SETTINGS.rand_seed, 1).permutation(other.train)
    monkeypatch.setattr(other, "_batches", lambda _: [torch.from_numpy(order[: SETTINGS.batch_size])])
    other._epoch(1)
    assert_same(load_model(trained.early, TASK, "").state_dict(), other.model.state_dict())


@pytest.mark.parametrize("steps", [2, 3, 5, 8])
def test_early_model_of_a_resumed_training_is_that_of_an_uninterrupted_one(
    trainer: Trainer, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "EARLY_STEPS", steps)
    whole = trainer("whole", replace(SETTINGS, n_epochs=3))
    run(whole)
    run(trainer("parts", replace(SETTINGS, n_epochs=1)))
    resumed = trainer("parts", replace(SETTINGS, n_epochs=3))
    resumed.resume()
    run(resumed)
    early = [load_model(each.early, TASK, "").state_dict() for each in (whole, resumed)]
    assert_same(*early)


# Validation, best model and decay


@settings(max_examples=200, deadline=None)
@given(
    units=st.lists(st.integers(0, 9), min_size=2, max_size=60).map(np.array),
    seed=st.integers(0, 99),
    held_out=st.sets(st.integers(0, 59)),
    fraction=st.floats(0.01, 0.9),
)
def test_validation_takes_whole_units_of_the_training_images(
    units: np.ndarray, seed: int, held_out: set[int], fraction: float
) -> None:
    train = np.setdiff1d(np.arange(len(units)), list(held_out))
    data = SimpleNamespace(table=SimpleNamespace(units=units), train=train, val=np.arange(0))
    if len(np.unique(units[train])) < 2 or round(fraction * len(train)) == len(train):
        with pytest.raises(UserError, match=f"{len(train)} training images leave none to train on"):
            validation_split(data, fraction, seed)
        return
    val, rest = validation_split(data, fraction, seed)
    assert sorted([*val, *rest]) == train.tolist() and (np.diff(val) > 0).all()
    assert len(val) and len(rest) and not set(units[val]) & set(units[rest])
    # As many as were asked for, but for one unit: the last one that does not fit in, or the first one.
    largest = np.bincount(units[train]).max()
    assert len(val) <= max(round(fraction * len(train)), largest)
    assert len(val) > round(fraction * len(train)) - largest
    again = validation_split(data, fraction, seed)
    assert all(np.array_equal(*both) for both in zip((val, rest), again, strict=True))


def test_validation_is_on_points_that_are_not_trained_on(trainer: Trainer) -> None:
    trained, points = trainer("a"), trainer.data.table.groups["point"]
    assert sorted([*trained.val, *trained.train]) == trainer.data.train.tolist()
    assert not set(points[trained.val]) & set(points[trained.train])


def test_validation_is_on_the_tables_own_part_where_there_is_one(table: Table, tmp_path: Path) -> None:
    own = replace(table, val=table.test[:5], test=table.test[5:])
    trained = Trainer(own, tmp_path)("a")
    assert trained.val.tolist() == own.val.tolist()
    assert sorted(trained.train.tolist()) == own.train.tolist() and trained.train.tolist() != own.train.tolist()


def test_best_file_has_the_lowest_validation_loss_and_the_rate_decays_after_it(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.0, 2.0, 5.0, 4.0])
    monkeypatch.setattr(training, "mean_values", lambda data, statistics: {"loss": next(losses)})
    trained = trainer("a", replace(SETTINGS, n_epochs=5, no_improvement_tolerance=2, init_lr=0.08))
    weights = run(trained)
    assert_same(load_model(trained.best, TASK, "").state_dict(), weights[1])
    assert [row["val_loss"] for row in trained.history] == [3, 1, 2, 5, 4]
    # Epoch 4 is the second without improvement: the rate is halved for epoch 5.
    assert [row["lr"] for row in trained.history] == pytest.approx([0.08, 0.08, 0.08, 0.08, 0.04])


def test_training_lowers_the_loss(trainer: Trainer) -> None:
    trained = trainer("a", replace(SETTINGS, n_epochs=8, init_lr=0.2))
    run(trained)
    losses = [row["train_loss"] for row in trained.history]
    assert losses[-1] < 0.7 * losses[0]


def test_first_loss_and_step_of_sgd_are_those_of_a_bare_loop(trainer: Trainer) -> None:
    settings = replace(SETTINGS, n_epochs=1, batch_size=1000, use_adam=False)
    trained = trainer("a", settings)
    bare = trainer("b", settings).model.train()
    batch = trainer.data.batch(torch.from_numpy(trained.train))
    output = bare(batch.images).output
    errors = (output - batch.target).abs() * batch.valid
    loss = (errors.sum((1, 2, 3)) / batch.valid.sum((1, 2, 3)).clamp(min=1)).mean()
    loss.backward()
    expected = {name: p.detach() - settings.init_lr * p.grad for name, p in bare.named_parameters()}
    weights = run(trained)[0]
    assert trained.history[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-4)
    for name, parameter in expected.items():
        torch.testing.assert_close(weights[name], parameter, rtol=1e-3, atol=1e-4)


# What stops it


@pytest.mark.parametrize("task", [TASK, "normal", "class_scene"])
def test_loss_that_is_not_finite_names_the_rate(table: Table, tmp_path: Path, task: str) -> None:
    trained = Trainer(table, tmp_path, task)("a", replace(SETTINGS, init_lr=1e38))
    with pytest.raises(UserError, match="the loss is not finite in epoch 1, step 2; lower --init_lr"):
        run(trained)
    assert not trained.best.exists() and not trained.checkpoint.exists()


def test_one_training_image_is_not_enough(table: Table, tmp_path: Path) -> None:
    alone = replace(table, train=table.train[:1])
    with pytest.raises(UserError, match="1 training images leave none to train on"):
        Trainer(alone, tmp_path)("a")


def test_last_batch_of_one_image_is_trained_on(table: Table, tmp_path: Path) -> None:
    points = np.unique(table.units[table.train], return_index=True)[1]
    few = replace(table, train=table.train[np.sort(points)[:6]])  # one for validation, and batches of four and one
    settings = replace(SETTINGS, n_epochs=1, batch_size=4)
    trained = Trainer(few, tmp_path, size=16)("a", settings)
    assert len(trained.train) == 5
    run(trained)


# Interrupts, and checkpoints that are not every epoch's


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("use_adam", [False, True], ids=["sgd", "adam"])
@pytest.mark.parametrize("step", [1, 3, 5, 12])  # of 3 an epoch, and of 12 in all
def test_training_interrupted_in_the_middle_of_an_epoch_ends_the_same(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, step: int, use_adam: bool
) -> None:
    monkeypatch.setattr(training, "EARLY_STEPS", 4)
    settings = replace(SETTINGS, use_adam=use_adam, init_lr=0.01)
    whole, stopped = trainer("whole", settings), trainer("stopped", settings)
    last = run(whole)[-1]
    steps = count(1)

    def backward(loss: torch.Tensor) -> None:
        if next(steps) == step:
            signal.raise_signal(signal.SIGTERM)
        torch.autograd.backward(loss)

    with monkeypatch.context() as patch, pytest.raises(interrupt.Interrupted, match=f"step {(step - 1) % 3 + 1} of 3"):
        patch.setattr(torch.Tensor, "backward", backward)
        run(stopped)
    resumed = trainer("stopped", settings)
    resumed.resume()
    weights = run(resumed)
    assert_same(weights[-1] if weights else resumed.model.state_dict(), last)
    assert resumed.history == whole.history
    for file in ("best", "early", "checkpoint"):
        assert_same(load_file(getattr(resumed, file)), load_file(getattr(whole, file)))


def test_checkpoint_every_so_many_epochs_and_after_the_last(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    trained = trainer("a", replace(SETTINGS, n_epochs=5))
    trained.checkpoint_every = 2
    monkeypatch.setattr(trained, "_save", lambda: saved.append(len(trained.history)))
    run(trained)
    assert saved == [2, 4, 5]


def test_training_goes_on_from_the_checkpoint_before_a_broken_one(
    trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trainer("a", replace(SETTINGS, n_epochs=3))
    last = run(whole)[-1]
    whole.checkpoint.write_bytes(whole.checkpoint.read_bytes()[:-1])
    resumed = trainer("a", replace(SETTINGS, n_epochs=3))
    capsys.readouterr()
    resumed.resume()
    [line] = capsys.readouterr().err.strip().splitlines()
    assert str(whole.checkpoint) in line and "going on from the one before" in line
    assert len(resumed.history) == 2
    assert_same(run(resumed)[-1], last)


def test_resuming_with_other_images_is_refused(trainer: Trainer) -> None:
    run(trainer("a", replace(SETTINGS, n_epochs=1)))
    trainer.data.shorten(30, 10)
    with pytest.raises(UserError, match="another set of images; resume with the same"):
        trainer("a").resume()
