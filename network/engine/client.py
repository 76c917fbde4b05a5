"""One client in one round: some optimiser steps on its own images."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from models.networks.parts import TRAINABLE, is_within, lr_factor
from network.settings import LocalSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from models.networks.task_model import Outputs

_PLATEAU_WINDOW = 5


@dataclass(frozen=True)
class ClientRound:
    """A client's part in a round.

    It trains on `images`, positions in the data, for `n_steps` steps. `weight` is its weight in the server's mean,
    `client_fraction` its share of all clients' images.
    """

    images: np.ndarray
    n_steps: int
    weight: float
    client_fraction: float


@dataclass(frozen=True)
class Phase:
    """A part of a client's round: training of the parameters `trained` (None: all) for a number of steps.

    Each phase has its own optimiser, schedule and random generator, so that its random choices do not depend on other
    phases. Hooks find its name in `local.phase`.
    """

    n_steps: int
    name: str = ""
    trained: frozenset[str] | None = None


@dataclass(frozen=True)
class StepView:
    """What a client sees in a step: the rows `own` of what all clients that train side by side see.

    Each property is looked up when a method asks for it.
    """

    own: slice
    all_inputs: Tensor
    all_outputs: Outputs
    all_positions: Tensor
    labels_of_data: Tensor
    groups_of_data: Tensor

    @property
    def inputs(self) -> Tensor:
        """The images (B, 3, S, S)."""
        return self._of_client(self.all_inputs)

    @property
    def positions(self) -> Tensor:
        """The images' positions in the data (B,)."""
        return self._of_client(self.all_positions)

    @property
    def encoded(self) -> Tensor:
        """The encoder's vectors of the images (B, F)."""
        return self._of_client(self.all_outputs.encoded)

    @property
    def embedding(self) -> Tensor:
        """The images' embedding (B, …), the input of the model's last layer."""
        return self._of_client(self.all_outputs.embedding)

    def representation(self, name: str) -> Tensor:
        """The images' part of `Outputs.representation`."""
        return self._of_client(self.all_outputs.representation(name))

    @property
    def labels(self) -> Tensor:
        """The images' scene classes (B,)."""
        return self.labels_of_data[self.positions]

    @property
    def groups(self) -> Tensor:
        """The images' groups (B,)."""
        return self.groups_of_data[self.positions]

    def _of_client(self, rows: Tensor) -> Tensor:
        """The client's rows; a view, which takes time here and in the backward pass, only where others have some."""
        return rows if self.own == slice(0, len(rows)) else rows[self.own]


@dataclass
class ClientContext:
    """A client in training, as the hooks of a method see it; tensors are keyed by their names in the model.

    `server` holds the server's tensors, `start` those that the client starts the round from: the server's, or its own
    where they do not travel. `shared` are the names of those that travel. `tensors` are the client's parameters and
    buffers, which training changes; `state` is what the client keeps between rounds. `scratch` is for whatever the
    method needs until the end of the round: sets of tensors under names that the method chooses, such as SCAFFOLD's
    "correction". `model` is the architecture; its weights are the client's only where clients train one by one.
    `parameters` are those that the current phase trains. `image_weights` are FedIR's, of the images at some positions.
    `batch` is what the client sees in the current step;
    `gradient()` returns the gradient of its loss over all its images. `losses` has the minimised loss of every step.

    `effective_steps` is how far the phase's optimiser moves under a constant gradient of -1
    (`effective_steps_gradient`), which is the summed weight of the phase's gradients in the change of the client's
    model: the |a_i|_1 of FedNova (arXiv 2007.07481). For plain SGD it is the number of steps times the learning rate;
    momentum and schedules change it.
    """

    client: int
    client_round: ClientRound
    round: int
    model: nn.Module
    tensors: Mapping[str, Tensor]
    server: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    state: dict[str, Tensor]
    settings: LocalSettings
    shared: frozenset[str]
    image_weights: Callable[[Tensor], Tensor | None] = lambda positions: None
    phase: str = ""
    scratch: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    losses: list[Tensor] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(init=False)
    effective_steps: Tensor = field(init=False)
    effective_steps_gradient: Tensor = field(init=False)
    batch: StepView = field(init=False)
    gradient: Callable[[], dict[str, Tensor]] = field(init=False)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy these tensors into the client's."""
        copy_into(self.tensors, tensors)

    def copy(self, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Copies of the client's tensors of these names; by default all but the frozen ones, which never change."""
        return {name: self.tensors[name].clone() for name in (self.trained() if names is None else names)}

    def trained(self) -> list[str]:
        """The names of the parameters and buffers that are not frozen."""
        part = TRAINABLE[self.settings.train]
        return [name for name in self.tensors if is_within(part, name)]

    def shared_parameters(self) -> list[str]:
        """The names of the parameters, without buffers, that travel."""
        return [name for name, _ in self.model.named_parameters() if name in self.shared]

    def effective_steps_of(self, name: str) -> Tensor:
        """`effective_steps` for a parameter: scaled for an encoder with a learning rate of its own."""
        return self.effective_steps * lr_factor(name, self.settings.encoder_lr_factor)

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of a step's losses per example (B,), in which FedIR weights images."""
        weights = self.image_weights(self.batch.positions)
        return (losses if weights is None else losses * weights).mean()

    def pull(self, gradients: list[Tensor], centre: Mapping[str, Tensor], strength: float) -> None:
        """Add the gradient of strength / 2 |w - centre|^2, where w are the parameters in training."""
        import torch

        drift = torch._foreach_sub(list(self.parameters.values()), [centre[name] for name in self.parameters])
        torch._foreach_add_(gradients, drift, alpha=strength)


class Schedule:
    """The learning rate during a phase of a client's round, as a tensor on the device that the optimiser reads.

    "plateau" is the published rule: after `no_improvement_tolerance` steps without a new lowest mean of the last five
    losses, every step multiplies the rate by `lr_decay_rate`. The lower rate is kept in `state` for the same phase of
    the client's later rounds. All of this is computed on the device, so that no step waits for a number. "cosine" falls
    from `init_lr` to 0 over all rounds. Two change from round to round, as in FedCV (arXiv 2111.11066): "step" is
    multiplied by `lr_decay_rate`, "linear" falls by equal amounts towards 0. "none" is constant.
    """

    def __init__(self, local: ClientContext, n_steps: int, device: torch.device) -> None:
        import torch

        self.settings, self.round, self.n_steps = local.settings, local.round, n_steps
        self.lr = torch.full((), self.settings.init_lr, device=device)
        if self.settings.lr_schedule == "plateau":
            key = f"lr.{local.phase}" if local.phase else "lr"
            self.lr = local.state[key] = local.state.get(key, self.lr).clone()
        if self.settings.lr_schedule == "step":
            self.lr *= self.settings.lr_decay_rate**self.round
        if self.settings.lr_schedule == "linear":
            self.lr *= 1.0 - self.round / self.settings.n_rounds
        self._scaled: dict[float, Tensor] = {}
        self._recent: list[Tensor] = []
        self._best = torch.full((), math.inf, device=device)
        self._since = torch.zeros((), device=device)

    def rate(self, factor: float) -> Tensor:
        """The rate times this factor, as a tensor that follows it; with the factor 1, the rate itself."""
        return self.lr if factor == 1.0 else self._scaled.setdefault(factor, self.lr.clone())

    def before(self, step: int) -> None:
        """Set the rates of the coming step (counted within the phase)."""
        import torch

        if self.settings.lr_schedule == "cosine":
            progress = (self.round + step / self.n_steps) / self.settings.n_rounds
            self.lr.fill_(self.settings.init_lr * 0.5 * (1.0 + math.cos(math.pi * progress)))
        for factor, rate in self._scaled.items():
            torch.mul(self.lr, factor, out=rate)

    def after(self, loss: Tensor) -> None:
        """Take note of a step's loss."""
        import torch

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


def copy_into(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Overwrite the target's tensors with the source's of the same names."""
    import torch

    torch._foreach_copy_(list(target.values()), [source[name] for name in target])


def longest_first(sizes: Sequence[int] | np.ndarray, n_processes: int) -> list[list[int]]:
    """Assign jobs to processes, the longest first, each to the least loaded; returns each process's positions."""
    jobs: list[list[int]] = [[] for _ in range(n_processes)]
    loads = [(0, process) for process in range(n_processes)]  # a heap
    longest = np.argsort(-np.asarray(sizes), kind="stable")
    for position, size in zip(longest.tolist(), np.asarray(sizes)[longest].tolist(), strict=True):
        load, process = loads[0]
        jobs[process].append(position)
        heapq.heapreplace(loads, (load + size, process))
    return jobs
