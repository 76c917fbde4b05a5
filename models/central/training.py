"""Training one task's model on all training images, for its embeddings and as what a federation aims at."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from accelerate import Accelerator

from datasets.augmentation import AUGMENTS, augmented
from datasets.task_data import TaskData
from losses import LOSSES
from models.central.evaluation import evaluate, mean_values
from models.central.settings import TrainSettings
from models.networks.config import ModelConfig
from models.networks.costs import model_costs, peak_memory
from models.networks.decoders import with_decoder
from models.networks.kept_outputs import full_model, load_full_model
from models.networks.lora import adapters, merged
from models.networks.parts import TRAINABLE, is_within, lr_factor, train_part
from models.networks.task_model import TaskModel, load_model, save_model
from utils import interrupt, progress
from utils.errors import UserError
from utils.runs import is_due, load_checkpoint, load_newest, save_checkpoint
from utils.streams import derived_seed, generator

# How long the model trains that is kept for measuring how far clients' gradients point apart.
EARLY_STEPS = 200


def checkpoint_file(folder: Path, task: str, use_cbam: bool) -> Path:
    """Where the state of a central training is kept."""
    return folder / f"centralized_{task}{'_cbam' if use_cbam else ''}_checkpoint.safetensors"


def best_file(folder: Path, task: str, use_cbam: bool) -> Path:
    """Where the central model with the lowest validation loss is kept."""
    return folder / f"centralized_{task}{'_cbam' if use_cbam else ''}_best.safetensors"


def early_file(folder: Path, task: str, use_cbam: bool) -> Path:
    """Where the central model is kept as it stood after `EARLY_STEPS` steps, or after the last of fewer."""
    return folder / f"centralized_{task}{'_cbam' if use_cbam else ''}_early.safetensors"


def central_files(folder: Path, task: str, use_cbam: bool) -> tuple[Path, Path, Path]:
    """The files of a central training: its state, its best model and its early one."""
    named = folder, task, use_cbam
    return checkpoint_file(*named), best_file(*named), early_file(*named)


def model_from_checkpoint(path: Path, task: str) -> TaskModel:
    """The model as it stood at the last checkpoint; UserError if there is none, or it is of another task."""
    made_by = f"train_centralized_task_model.py --task {task}"
    if not path.is_file():
        raise UserError(f"{path} is missing; run {made_by} first")
    tensors, state = load_checkpoint(path, f"run {made_by} again")
    config = _config_of(path, state)
    if config.task != task:
        raise UserError(f"{path} holds a model for {config.task}, not for --task {task}")
    model = TaskModel(config)
    model.load_state_dict(merged(_without_prefix(tensors, "model.")))
    return model


def central_model(folder: Path, task: str, use_cbam: bool, last: bool = False) -> tuple[TaskModel, Path]:
    """The central model with the lowest validation loss, or as it stood at the last checkpoint, and its file.

    UserError if there is none, or it is of another task.
    """
    if last:
        path = checkpoint_file(folder, task, use_cbam)
        return model_from_checkpoint(path, task), path
    path = best_file(folder, task, use_cbam)
    return load_model(path, task, "train_centralized_task_model.py"), path


class CentralTraining:
    """SGD or Adam over epochs.

    The learning rate decays with every epoch after too many without improvement ("plateau", as published), or falls to
    0 step by step over all epochs, after it has risen over three tenths of them ("one_cycle", Smith and
    Topin 2017, arXiv 1708.07120).

    What `validation_split` keeps for validation decides the decay and which weights are the best. The held-out test
    images have no part in it.

    Args:
        model: to be trained in place.
        data: the task's images.
        settings: see `TrainSettings`.
        accelerator: where to compute.
        checkpoint: file for the state after each epoch.
        best: file for the best model.
        early: file for the model after `EARLY_STEPS` steps.
        checkpoint_every: epochs between checkpoints; there is one at the end, and when training is interrupted, too.
    """

    def __init__(
        self,
        model: TaskModel,
        data: TaskData,
        settings: TrainSettings,
        accelerator: Accelerator,
        checkpoint: Path,
        best: Path,
        early: Path,
        checkpoint_every: int = 1,
    ) -> None:
        self.model = model.to(accelerator.device).to(memory_format=torch.channels_last)
        self.data, self.settings, self.accelerator = data, settings, accelerator
        self.checkpoint, self.best, self.early, self.checkpoint_every = checkpoint, best, early, checkpoint_every
        self.val, self.train = validation_split(data, settings.val_fraction, settings.rand_seed)
        self.n_steps = len(self._batches(self.train))
        make = torch.optim.Adam if settings.use_adam else torch.optim.SGD
        self.optimizer = make(self._groups(), fused=True)
        self.scheduler: torch.optim.lr_scheduler.LRScheduler
        if settings.lr_schedule == "one_cycle":
            n_all = settings.n_epochs * self.n_steps
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, [group["lr"] for group in self.optimizer.param_groups], n_all
            )
        else:
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, settings.lr_decay_rate)
        self.history: list[dict[str, Any]] = []
        self._begun: tuple[int, float] = (0, 0.0)  # steps of an interrupted epoch, and the sum of their losses
        self._seconds: list[float] = []  # of the epochs that this process has trained from the first step on

    def costs(self) -> dict[str, Any]:
        """What the model and an epoch cost, for the run's summary."""
        costs = model_costs(self.model, self.data, TRAINABLE[self.settings.train]) | peak_memory(self.data.device)
        return costs | ({"seconds": float(np.mean(self._seconds))} if self._seconds else {})

    def run(self, on_epoch: Callable[[list[dict[str, Any]]], None]) -> None:
        """Train up to `n_epochs`; after each, save the checkpoint and call `on_epoch` with the history so far.

        Ctrl-C or SIGTERM save at the end of a step and raise `Interrupted`.
        """
        epochs = range(len(self.history), self.settings.n_epochs)
        with interrupt.deferred(), progress.bar(epochs, desc=f"training {self.data.task.name}", unit="epoch") as bar:
            for epoch in bar:
                start, is_first = time.perf_counter(), self._begun[0] == 0
                train_loss = self._epoch(epoch)
                self._seconds += [time.perf_counter() - start] * is_first
                row = self._finish_epoch(epoch, train_loss)
                on_epoch(self.history)
                best = min(row["val_loss"] for row in self.history)
                bar.set_postfix(train=f"{train_loss:.4f}", val=f"{row['val_loss']:.4f}", best=f"{best:.4f}")
        if len(self.history) * self.n_steps < EARLY_STEPS:
            save_model(self.model, self.early)

    def _groups(self) -> list[dict[str, Any]]:
        """What is trained, by learning rate, the highest first; the rest is frozen."""
        groups: dict[float, list[torch.nn.Parameter]] = {}
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(is_within(TRAINABLE[self.settings.train], name))
            if parameter.requires_grad:
                rate = self.settings.init_lr * lr_factor(name, self.settings.encoder_lr_factor)
                groups.setdefault(rate, []).append(parameter)
        return [{"params": groups[rate], "lr": rate} for rate in sorted(groups, reverse=True)]

    def _finish_epoch(self, epoch: int, train_loss: float) -> dict[str, Any]:
        """Validate, keep the best model, decay the learning rate, save; returns the epoch's row of the history."""
        values = mean_values(self.data, evaluate(self.model, self.data, self.val, self.accelerator))
        if not np.isfinite(values["loss"]):
            raise UserError(f"the validation loss is not finite after epoch {epoch + 1}; lower --init_lr")
        row = {"epoch": epoch + 1, "lr": self.scheduler.get_last_lr()[0], "train_loss": train_loss}
        self.history.append(row | {f"val_{name}": value for name, value in values.items()})
        losses = [row["val_loss"] for row in self.history]
        if losses[-1] == min(losses):
            save_model(self.model, self.best)
        late = len(losses) - 1 - int(np.argmin(losses)) >= self.settings.no_improvement_tolerance
        if late and self.settings.lr_schedule == "plateau":
            with warnings.catch_warnings():
                # PyTorch misses the optimiser's step where training was interrupted after the last of an epoch.
                warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step", UserWarning)
                self.scheduler.step()
        if is_due(epoch + 1, self.checkpoint_every, self.settings.n_epochs):
            self._save()
        return self.history[-1]

    def resume(self) -> None:
        """Continue from the checkpoint; UserError if there is none or it belongs to another training."""
        tensors, state = load_newest(self.checkpoint)
        config = _config_of(self.checkpoint, state)
        # A training on a plateau may go on for longer; a cycle is drawn for its number of epochs.
        free = {"n_epochs"} if self.settings.lr_schedule == "plateau" else set()
        changed = [k for k, v in asdict(self.settings).items() if k not in free and state["settings"].get(k) != v]
        if config != self.model.config or changed or state["images"] != self.data.fingerprint:
            other = "set of images" if state["images"] != self.data.fingerprint else "initial model"
            what = ", ".join(f"--{name}" for name in changed) or other
            raise UserError(f"{self.checkpoint} was made with another {what}; resume with the same arguments")
        saved = _without_prefix(tensors, "model.")
        if adapters(saved) != adapters(self.model.state_dict()):
            raise UserError(
                f"{self.checkpoint} was made with other --lora_rank, --lora_alpha or --lora_targets; resume with the "
                "same arguments"
            )
        if not load_full_model(self.model, saved):
            raise UserError(f"{self.checkpoint} was made with another encoder; resume with the same initial model")
        optimizer = state["optimizer"]
        for name, tensor in _without_prefix(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            optimizer["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(optimizer)
        for parameter, values in self.optimizer.state.items():
            for key, value in values.items():
                if value.shape == parameter.shape:
                    # Fused optimisers go through memory as it lies, so that both must lie in the same order.
                    values[key] = torch.empty_like(parameter).copy_(value)
        self.scheduler.load_state_dict(state["scheduler"])
        self.history, self._begun = state["history"], tuple(state["begun"])
        torch.set_num_threads(state.get("threads", torch.get_num_threads()))  # with others, sums round otherwise

    def _epoch(self, epoch: int) -> float:
        order = generator("epoch", self.settings.rand_seed, epoch).permutation(self.train)
        loss_of = LOSSES[self.data.task.loss]
        begun, so_far = self._begun
        total = torch.tensor(so_far, device=self.data.device)
        first_bad = torch.full((), -1, device=self.data.device)
        train_part(self.model, TRAINABLE[self.settings.train])
        plan, draw = self._batches(order)[begun:], AUGMENTS[self.settings.augment]
        for number, (at, batch) in enumerate(self.data.batches(plan), start=begun + 1):
            torch.manual_seed(derived_seed("dropout", self.settings.rand_seed, epoch, number))
            if draw is not None:
                rng = generator("augment", self.settings.rand_seed, epoch, number)
                frames = torch.from_numpy(draw(len(at), self.data.image_size, rng))
                batch = augmented(batch, frames.to(self.data.device), self.data.task)
            loss = loss_of(self.model(batch.images).output, batch.target, batch.valid).mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            if self.settings.lr_schedule == "one_cycle":
                self.scheduler.step()
            total += loss.detach() * len(at)
            first_bad = torch.where((first_bad < 0) & ~loss.detach().isfinite(), number, first_bad)
            if epoch * self.n_steps + number == EARLY_STEPS:
                save_model(self.model, self.early)
            try:
                interrupt.check()
            except interrupt.StopRequested:
                _check_finite(first_bad, epoch)
                self._stop(epoch, number, float(total))
        _check_finite(first_bad, epoch)
        self._begun = (0, 0.0)
        return float(total) / len(order)

    def _stop(self, epoch: int, number: int, total: float) -> NoReturn:
        """Save in the middle of an epoch, and say how to go on."""
        self._begun = (number, total)
        self._save()
        where = f"epoch {epoch + 1}, step {number} of {self.n_steps}, is saved in {self.checkpoint}"
        raise interrupt.Interrupted(f"interrupted; {where}; go on with: {interrupt.resume_command()}")

    def _batches(self, order: np.ndarray) -> list[np.ndarray]:
        """The images of an epoch's steps."""
        batches = np.split(order, range(self.settings.batch_size, len(order), self.settings.batch_size))
        if len(batches) > 1 and len(batches[-1]) == 1:  # batch norm cannot normalise a map of one pixel alone
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches

    def _save(self) -> None:
        state = self.optimizer.state_dict()
        tensors = {f"model.{name}": tensor for name, tensor in full_model(self.model).state_dict().items()}
        for index, values in state["state"].items():
            tensors |= {f"optimizer.{index}.{k}": v for k, v in values.items() if isinstance(v, torch.Tensor)}
        save_checkpoint(
            self.checkpoint,
            tensors,
            {
                "config": self.model.config.record(),
                "settings": asdict(self.settings),
                "images": self.data.fingerprint,
                "history": self.history,
                "begun": self._begun,
                "threads": torch.get_num_threads(),
                "optimizer": {"state": {}, "param_groups": state["param_groups"]},
                "scheduler": self.scheduler.state_dict(),
            },
        )


def validation_split(data: TaskData, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the images to validate on, in order, and of those to train on, in random order.

    The table's own validation images where it has some. Otherwise about `fraction` of the training images (at least one
    unit), in whole units: views of one place would leak from one side to the other. UserError where none are left to
    train on.
    """
    rng = generator("validation", seed)
    if len(data.val):
        return data.val, rng.permutation(data.train)
    units, images = np.unique(data.table.units[data.train], return_inverse=True)
    order = rng.permutation(len(units))
    taken = np.cumsum(np.bincount(images)[order])
    n_units = max(1, int((taken <= round(fraction * len(images))).sum()))
    in_val = np.isin(images, order[:n_units])
    if in_val.all():
        raise UserError(f"{len(images)} training images leave none to train on at --val_fraction {fraction:g}")
    return data.train[in_val], rng.permutation(data.train[~in_val])


def _config_of(path: Path, state: Any) -> ModelConfig:
    """The settings of the model of a checkpoint; UserError if it is of something else than a central training."""
    needed = {"config", "settings", "images", "optimizer", "scheduler", "history", "begun"}
    with suppress(TypeError, ValueError):
        if isinstance(state, dict) and needed <= set(state):
            return with_decoder(ModelConfig.of(state["config"]))
    raise UserError(f"{path} is not a checkpoint of train_centralized_task_model.py")


def _check_finite(first_bad: torch.Tensor, epoch: int) -> None:
    """UserError that names the first step of an epoch, from 1, whose loss was not finite; -1 if there was none."""
    if (number := int(first_bad)) > 0:
        raise UserError(f"the loss is not finite in epoch {epoch + 1}, step {number}; lower --init_lr")


def _without_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
