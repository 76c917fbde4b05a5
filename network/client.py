"""What one client does in a round: some optimiser steps on its own images."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from datasets.task_data import TaskData
from losses import LOSSES
from network.sampling import batches_an_epoch
from utils import interrupt

if TYPE_CHECKING:
    from network.algorithms.fedavg import FedAvg

LR_SCHEDULES = ("plateau", "cosine", "none")
_PLATEAU_WINDOW = 5


@dataclass(frozen=True)
class LocalSettings:
    """How clients train; the names are those of `test_fed.py`'s arguments."""

    batch_size: int
    sgd_per_epoch: int
    epoch_per_round: int
    n_rounds: int
    init_lr: float
    momentum: float
    lr_schedule: str
    lr_decay_rate: float
    no_improvement_tolerance: int
    local_epochs: int | None = None
    weight_decay: float = 0.0
    use_adam: bool = False

    @classmethod
    def of(cls, args: Namespace) -> LocalSettings:
        """The settings of these arguments; `--test_mode` asks for two rounds of two steps."""
        given = {setting.name: getattr(args, setting.name) for setting in fields(cls)}
        short = {"n_rounds": 2, "sgd_per_epoch": 2, "epoch_per_round": 1, "local_epochs": None}
        return cls(**given | (short if args.test_mode else {}))

    def steps(self, n_images: int) -> int:
        """Steps a round of a client with so many images: `local_epochs` over them, or else the same for all."""
        if self.local_epochs is None:
            return self.sgd_per_epoch * self.epoch_per_round
        return self.local_epochs * batches_an_epoch(n_images, self.batch_size)


@dataclass(frozen=True)
class Turn:
    """A client's part in a round.

    `images` are those it trains on, as positions in the data, `n_steps` how many steps it takes. `weight` is what it
    counts for in the server's mean, `share` that of the round's whole weight, `portion` its share of all clients'
    images.
    """

    images: np.ndarray
    n_steps: int
    weight: float
    share: float
    portion: float


@dataclass
class Local:
    """One client at work, as the hooks of a method see it. All tensors go by the name that they have in the model.

    `server` are the server's tensors, `start` those that the client starts the round from: the server's, or its own
    where they do not travel. `shared` are the names that do, `tensors` the working copy's parameters and buffers,
    `state` what the client keeps between rounds, `scratch` what the method needs until the round ends. Within a phase
    of training, `parameters` are those that it trains. `inputs` (B, 3, S, S), `embedding` (B, E, S, S), `labels` (B,)
    and `groups` (B,) belong to the batch at hand.

    `probe` is a number that the phase's optimiser drives by a gradient of -1: `reach`, how far it has come from 0, is
    the weight of all gradients of the phase together in the way that the client went. That is the |a_i|_1 of FedNova
    (arXiv 2007.07481): steps times learning rate for plain SGD, with momentum and schedules what they make of it.
    """

    client: int
    turn: Turn
    round: int
    model: nn.Module
    server: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    state: dict[str, Tensor]
    settings: LocalSettings
    shared: frozenset[str]
    phase: str = ""
    scratch: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(init=False)
    parameters: dict[str, nn.Parameter] = field(init=False)
    probe: nn.Parameter = field(init=False)
    probe_gradient: Tensor = field(init=False)
    inputs: Tensor = field(init=False)
    embedding: Tensor = field(init=False)
    labels: Tensor = field(init=False)
    groups: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = {name: tensor.detach() for name, tensor in self.model.state_dict(keep_vars=True).items()}

    @property
    def reach(self) -> Tensor:
        """How far the last phase's optimiser goes on a constant gradient of -1, a number on the device."""
        return self.probe.detach()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy these tensors into the working copy."""
        copy_into(self.tensors, tensors)

    def copy(self, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """The working copy's tensors of these names (by default all), to be kept."""
        return {name: self.tensors[name].clone() for name in (self.tensors if names is None else names)}

    def shared_parameters(self) -> list[str]:
        """The names of the parameters, without buffers, that travel."""
        return [name for name, _ in self.model.named_parameters() if name in self.shared]

    def pull(self, gradients: list[Tensor], centre: Mapping[str, Tensor], strength: float) -> None:
        """Add the gradient of strength / 2 |w - centre|^2, w being the parameters in training."""
        values = [parameter.data for parameter in self.parameters.values()]
        drift = torch._foreach_sub(values, [centre[name] for name in self.parameters])
        torch._foreach_add_(gradients, drift, alpha=strength)


class Schedule:
    """The learning rate during a phase of a client's round, as a tensor on the device that the optimiser reads.

    "plateau" is the published rule: from `no_improvement_tolerance` steps without a new lowest mean of the last five
    losses on, every step multiplies the rate by `lr_decay_rate`, for good: a client's rate carries over to the same
    phase of its later rounds in `state`. It works on the device, so that no step waits for a number. "cosine" falls
    from `init_lr` to 0 over all rounds, "none" stays.
    """

    def __init__(self, local: Local, n_steps: int, device: torch.device) -> None:
        self.settings, self.round, self.n_steps = local.settings, local.round, n_steps
        self.lr = torch.full((), self.settings.init_lr, device=device)
        if self.settings.lr_schedule == "plateau":
            key = f"lr.{local.phase}" if local.phase else "lr"
            self.lr = local.state[key] = local.state.get(key, self.lr).clone()
        self._recent: list[Tensor] = []
        self._best = torch.full((), math.inf, device=device)
        self._since = torch.zeros((), device=device)

    def before(self, step: int) -> None:
        """Set the rate of the coming step (counted within the phase)."""
        if self.settings.lr_schedule == "cosine":
            progress = (self.round + step / self.n_steps) / self.settings.n_rounds
            self.lr.fill_(self.settings.init_lr * 0.5 * (1.0 + math.cos(math.pi * progress)))

    def after(self, loss: Tensor) -> None:
        """Take note of a step's loss."""
        if self.settings.lr_schedule != "plateau":
            return
        self._recent = [*self._recent, loss][-_PLATEAU_WINDOW:]
        if len(self._recent) < _PLATEAU_WINDOW:
            return
        mean = torch.stack(self._recent).mean()
        improved = mean < self._best
        self._best = torch.where(improved, mean, self._best)
        self._since = torch.where(improved, 0.0, self._since + 1.0)
        late = self._since >= self.settings.no_improvement_tolerance
        self.lr.mul_(torch.where(late, self.settings.lr_decay_rate, 1.0))


class LocalTraining:
    """A client's training on its own images, which a method arranges in phases: `training(n_steps, …)` is one.

    Each phase has an optimiser, a schedule and a generator of its own, so that what one phase does to the client's
    random choices never depends on another.

    Args:
        local: the client; its model holds the tensors that it starts from, and is trained in place.
        data: the task's images.
        algorithm: whose hooks are asked.
        groups: (N,) the group of every image, on the data's device.
        seed: of the client's generators in this round.
    """

    def __init__(
        self, local: Local, data: TaskData, algorithm: FedAvg, groups: Tensor, seed: tuple[int, ...]
    ) -> None:  # fmt: skip
        self.local, self.data, self.algorithm, self.groups, self.seed = local, data, algorithm, groups, seed
        self._loss_of = LOSSES[data.task.loss]
        self._norms = [module for module in local.model.modules() if isinstance(module, _BatchNorm)]
        self._total = torch.zeros((), device=data.device)
        self._taken = 0
        self.first_bad = torch.full((), -1, device=data.device)  # the first step whose loss was not finite, from 0

    @property
    def mean_loss(self) -> Tensor:
        """The mean of what was minimised over all steps so far, a number on the device."""
        return self._total / max(1, self._taken)

    def __call__(self, n_steps: int, phase: str = "", trained: Collection[str] | None = None) -> None:
        """Take `n_steps` steps.

        Args:
            n_steps: how many; nothing happens at 0.
            phase: a name, which the hooks find in `local.phase`.
            trained: the parameters to train; the others are frozen, at no cost in the backward pass. None for all.
        """
        if n_steps < 1 or (trained is not None and not trained):
            return
        local, settings = self.local, self.local.settings
        local.phase = phase
        rng = np.random.default_rng((*self.seed, *phase.encode()))
        plan = self.algorithm.batches(len(local.turn.images), settings.batch_size, n_steps, rng)
        # One transfer for all steps, which nothing waits for.
        positions = torch.from_numpy(local.turn.images[np.concatenate(plan)]).to(self.data.device, non_blocking=True)
        local.parameters = {n: p for n, p in local.model.named_parameters() if trained is None or n in trained}
        local.model.requires_grad_(False)
        for parameter in local.parameters.values():
            parameter.requires_grad_(True)
        local.probe = nn.Parameter(torch.zeros((), device=self.data.device))
        schedule = Schedule(local, n_steps, self.data.device)
        optimizer = self._optimizer([*local.parameters.values(), local.probe], schedule.lr)
        local.model.train()
        for step, at in enumerate(positions.split([len(batch) for batch in plan])):
            loss = self.algorithm.local_loss(self._losses(at), local)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            local.probe.grad = local.probe_gradient = torch.full_like(local.probe, -1.0)
            gradients = [cast(Tensor, parameter.grad) for parameter in local.parameters.values()]
            self.algorithm.correct(gradients, local)
            schedule.before(step)
            optimizer.step()
            schedule.after(loss.detach())
            self._total += loss.detach()
            bad = (self.first_bad < 0) & ~loss.detach().isfinite()
            self.first_bad = torch.where(bad, self._taken + step, self.first_bad)
            interrupt.check()
        self._taken += n_steps
        local.model.zero_grad(set_to_none=True)  # what is frozen in the next phase must not keep a gradient
        local.model.requires_grad_(True)

    def gradient(self) -> dict[str, Tensor]:
        """The gradient of the client's mean loss over all its images at the present weights, by parameter.

        Batch norm works as in training; its running statistics move.
        """
        parameters = dict(self.local.model.named_parameters())
        self.local.model.train()
        positions = torch.from_numpy(self.local.turn.images).to(self.data.device)
        total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        for at in positions.split(self.local.settings.batch_size):
            loss = self._losses(at).sum() / len(positions)
            torch._foreach_add_(list(total.values()), torch.autograd.grad(loss, list(parameters.values())))
        return total

    def _losses(self, at: Tensor) -> Tensor:
        """The loss of each image at these positions, (B,), of the working copy in training mode."""
        local, batch = self.local, self.data.batch(at)
        for norm in self._norms:
            # One image alone is normalised by the running statistics; PyTorch refuses it where a map has one pixel.
            norm.train(len(at) > 1)
        local.inputs, local.groups, local.labels = batch.images, self.groups[at], self.data.labels[at]
        local.embedding, output = local.model(batch.images)
        return self._loss_of(output, batch.target, batch.valid)

    def _optimizer(self, parameters: list[nn.Parameter], lr: Tensor) -> torch.optim.Optimizer:
        settings = self.local.settings
        if settings.use_adam:
            return torch.optim.Adam(parameters, lr=lr, weight_decay=settings.weight_decay, fused=True)
        decay, momentum = settings.weight_decay, settings.momentum
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=decay, fused=True)


def copy_into(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Overwrite the target's tensors by those of the same names."""
    torch._foreach_copy_(list(target.values()), [source[name] for name in target])


def longest_first(sizes: Sequence[int], n_processes: int) -> list[list[int]]:
    """Spread jobs over processes, each in turn to the least loaded, the longest first; the positions of each."""
    load = [0] * n_processes
    jobs: list[list[int]] = [[] for _ in range(n_processes)]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        process = load.index(min(load))
        jobs[process].append(position)
        load[process] += sizes[position]
    return jobs
