"""What one client does in a round: some SGD steps on its own images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from datasets.task_data import TaskData
from losses import LOSSES

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

    @property
    def steps(self) -> int:
        """SGD steps a client takes in a round."""
        return self.sgd_per_epoch * self.epoch_per_round


@dataclass
class Local:
    """One client at work, as the hooks of a method see it.

    `parameters` are the working copy's, `tensors` those and its buffers, `server` the tensors that it started from,
    `state` what the client keeps between rounds; all by name. `embedding` (B, E, S, S), `labels` (B,) and `groups`
    (B,) belong to the batch at hand.
    """

    client: int
    images: np.ndarray
    round: int
    model: nn.Module
    server: Mapping[str, Tensor]
    state: dict[str, Tensor]
    settings: LocalSettings
    parameters: dict[str, nn.Parameter] = field(init=False)
    tensors: dict[str, Tensor] = field(init=False)
    embedding: Tensor = field(init=False)
    labels: Tensor = field(init=False)
    groups: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = dict(self.model.named_parameters())
        self.tensors = {name: tensor.detach() for name, tensor in self.model.state_dict(keep_vars=True).items()}

    @property
    def n_images(self) -> int:
        """How many images the client has."""
        return len(self.images)


class Schedule:
    """The learning rate during a client's round, as a tensor on the device that the optimiser reads.

    "plateau" is the published rule: from `no_improvement_tolerance` steps without a new lowest mean of the last five
    losses on, every step multiplies the rate by `lr_decay_rate`, for good: a client's rate carries over to its later
    rounds in `state`. It works on the device, so that no step waits for a number. "cosine" falls from `init_lr` to
    0 over all rounds, "none" stays.
    """

    def __init__(self, local: Local, device: torch.device) -> None:
        self.settings, self.round = local.settings, local.round
        start = torch.tensor(self.settings.init_lr, device=device)
        self.lr = local.state.setdefault("lr", start).clone() if self.settings.lr_schedule == "plateau" else start
        self._recent: list[Tensor] = []
        self._best = torch.tensor(math.inf, device=device)
        self._since = torch.zeros((), device=device)

    def before(self, step: int) -> None:
        """Set the rate of the coming step (counted within the round)."""
        if self.settings.lr_schedule == "cosine":
            progress = (self.round * self.settings.steps + step) / (self.settings.n_rounds * self.settings.steps)
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


def train_client(
    local: Local, data: TaskData, algorithm: FedAvg, groups: Tensor, rng: np.random.Generator
) -> Tensor:  # fmt: skip
    """Train the working copy in `local` on the client's images, in place.

    Args:
        local: the client; its model holds the server's weights.
        data: the task's images, with `local.images` as positions.
        algorithm: whose hooks are asked.
        groups: (N,) the group of every image, on the data's device.
        rng: the client's generator of this round.

    Returns:
        The mean loss over the steps, a tensor on the device.
    """
    settings, loss_of = local.settings, LOSSES[data.task.loss]
    plan = algorithm.batches(local.n_images, settings.batch_size, settings.steps, rng)
    # One transfer for all steps.
    positions = torch.from_numpy(local.images[np.concatenate(plan)]).to(data.device)
    schedule = Schedule(local, data.device)
    parameters = list(local.parameters.values())
    optimizer = torch.optim.SGD(parameters, lr=schedule.lr, momentum=settings.momentum, fused=True)
    local.model.train()
    total = torch.zeros((), device=data.device)
    for step, at in enumerate(positions.split([len(batch) for batch in plan])):
        batch = data.batch(at)
        local.groups, local.labels = groups[at], data.labels[at]
        local.embedding, output = local.model(batch.images)
        loss = algorithm.local_loss(loss_of(output, batch.target, batch.valid), local)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        algorithm.correct([parameter.grad for parameter in parameters], local)
        schedule.before(step)
        optimizer.step()
        schedule.after(loss.detach())
        total += loss.detach()
    if settings.lr_schedule == "plateau":
        local.state["lr"] = schedule.lr
    return total / len(plan)


def longest_first(sizes: Sequence[int], n_processes: int) -> list[list[int]]:
    """Spread jobs over processes, each in turn to the least loaded, the longest first; the positions of each."""
    load = [0] * n_processes
    jobs: list[list[int]] = [[] for _ in range(n_processes)]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        process = load.index(min(load))
        jobs[process].append(position)
        load[process] += sizes[position]
    return jobs
