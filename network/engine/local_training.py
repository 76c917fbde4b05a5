"""Training of clients on their own images, one by one or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from datasets.augmentation import AUGMENTS, augmented
from datasets.task_data import TaskData
from losses import LOSSES
from models.networks.parts import lr_factor
from network.engine.client import ClientContext, Phase, Schedule, StepView
from network.engine.workspace import Workspace, set_training
from network.sampling import shuffled_epochs
from utils import interrupt
from utils.streams import derived_seed, generator

if TYPE_CHECKING:
    from network.algorithms.fedavg import FedAvg


class LocalTraining:
    """Takes clients through the phases of a method, all of them at once.

    Each client's `local_update` runs to its next `yield Phase(…)`; then all clients take that phase's steps together:

        client 0   local_update ┐              ┌ local_update ┐              ┌ local_update
        client 1   local_update ┤ phase: steps ┤ local_update ┤ phase: steps ┤ local_update
        client 2   local_update ┘              └ local_update ┘              └ local_update

    Clients that train side by side take the same number of steps. Batches of different sizes are padded to the largest
    with images that no loss counts. Batch norm would see these images, so with it all batches must have the same size.

    Args:
        workspace: the working copies, one per client.
        data: the task's images.
        algorithm: the method whose hooks are called.
        groups: (N,) the group of every image, on the data's device.
        seed: the seed of all randomness.
    """

    def __init__(self, workspace: Workspace, data: TaskData, algorithm: FedAvg, groups: Tensor, seed: int) -> None:
        self.workspace, self.data, self.algorithm, self.groups, self.seed = workspace, data, algorithm, groups, seed
        self._loss_of, self._corrects = LOSSES[data.task.loss], algorithm.overrides("correct")

    def __call__(self, clients: Sequence[ClientContext]) -> None:
        """Train these clients for a round; their tensors are the workspace's and hold what they start from.

        On a request to stop, `StopRequested` is raised after the current step.
        """
        for local in clients:
            local.gradient = partial(self._gradient, local)
        # Advancing the generators runs every client's own work between phases.
        for phases in zip(*map(self.algorithm.local_update, clients), strict=True):
            self._train(clients, phases[0])

    def _train(self, clients: Sequence[ClientContext], phase: Phase) -> None:
        """Take the steps of a phase; none of them waits for a number from the device."""
        trained = [name for name in self.workspace.leaves if phase.trained is None or name in phase.trained]
        if phase.n_steps < 1 or not trained:
            return
        self.workspace.prepare(trained)
        for local in clients:
            local.phase, local.parameters = phase.name, {name: local.tensors[name] for name in trained}
        self._seed_dropout(clients[0])
        sizes, plan = self._plan(clients, phase)
        optimizer = _Optimizer(clients, self.workspace, trained, phase.n_steps)
        frames = self._frames(clients, phase, sizes)
        averaged = self._averages(clients[0], sizes, plan[0])
        for step, (at, batch) in enumerate(self.data.batches(plan)):
            if frames is not None:
                batch = augmented(batch, frames[step], self.data.task)
            outputs = self.workspace(batch.images)
            losses = self._loss_of(outputs.output, batch.target, batch.valid)
            if self._corrects or not averaged:  # a small step takes no longer than views of it for all clients
                for i, (local, size) in enumerate(zip(clients, sizes, strict=True)):
                    own = slice(i * max(sizes), i * max(sizes) + size)
                    local.batch = StepView(own, batch.images, outputs, at, self.data.labels, self.groups)
            minimised = losses.reshape(len(clients), -1).mean(1) if averaged else self._by_hook(clients, losses, sizes)
            for local, loss in zip(clients, minimised.detach().unbind(), strict=True):
                local.losses.append(loss)
            minimised.backward(torch.ones_like(minimised))
            if self._corrects:
                for local, gradients in zip(clients, optimizer.gradients(), strict=True):
                    self.algorithm.correct(gradients, local)
            optimizer.step(step)
            interrupt.check()

    def _averages(self, local: ClientContext, sizes: list[int], positions: np.ndarray) -> bool:
        """Whether all clients minimise plain means over as many images, which can be taken together.

        `positions` are those of a step. A mean for each client costs more than the rest of a small network's step.
        """
        alike = len(set(sizes)) == 1 and not self.algorithm.overrides("local_loss")
        at = torch.from_numpy(positions).to(self.data.device, non_blocking=True)
        return alike and local.image_weights(at) is None

    def _by_hook(self, clients: Sequence[ClientContext], losses: Tensor, sizes: list[int]) -> Tensor:
        """What the method makes each client minimise, (n_clients,), of all losses per example."""
        rows = losses.chunk(len(clients)) if len(clients) > 1 else (losses,)  # a view costs time in backward
        counted = (row if size == len(row) else row[:size] for row, size in zip(rows, sizes, strict=True))
        return torch.stack([self.algorithm.local_loss(*arguments) for arguments in zip(counted, clients, strict=True)])

    def _plan(self, clients: Sequence[ClientContext], phase: Phase) -> tuple[list[int], list[np.ndarray]]:
        """The size of each client's batches, and for each step the positions of all clients' images."""
        plans = []
        for local in clients:
            images, batch_size = local.client_round.images, local.settings.batch_size
            rng = generator("batches", self.seed, local.round, local.client, phase.name)
            plans.append(images[shuffled_epochs(len(images), batch_size, phase.n_steps, rng)])
        sizes = [plan.shape[1] for plan in plans]
        if len(set(sizes)) > 1:
            plans = [np.pad(plan, ((0, 0), (0, max(sizes) - plan.shape[1])), "edge") for plan in plans]
        return sizes, list(np.concatenate(plans, axis=1))

    def _frames(self, clients: Sequence[ClientContext], phase: Phase, sizes: list[int]) -> Tensor | None:
        """The frames by which all clients' images are augmented: (n_steps, n_clients * B, 5) on the device.

        Every client and step has a random stream of its own. None without augmentation.
        """
        draw = AUGMENTS[clients[0].settings.augment]
        if draw is None:
            return None
        frames = []
        for local, size in zip(clients, sizes, strict=True):
            numbers = local.round, local.client, phase.name
            streams = (generator("augment", self.seed, *numbers, step) for step in range(phase.n_steps))
            drawn = np.stack([draw(size, self.data.image_size, rng) for rng in streams])
            frames.append(np.pad(drawn, ((0, 0), (0, max(sizes) - size), (0, 0)), "edge"))
        drawn = np.concatenate(frames, axis=1).astype(np.float32)
        return torch.from_numpy(drawn).to(self.data.device, non_blocking=True)

    def _seed_dropout(self, first: ClientContext) -> None:
        """Seed the network's own randomness by the run's seed, the round, and the first of the clients at once.

        Without that, a resumed run would differ from an uninterrupted one. Unlike all other randomness, it depends on
        which clients train together.
        """
        seed = derived_seed("dropout", self.seed, first.round, first.client, first.phase)
        # `torch.manual_seed` takes a millisecond for devices that are not used.
        torch.default_generator.manual_seed(seed)
        if (device := self.data.device).type != "cpu":
            torch.get_device_module(device).manual_seed(seed)

    def _gradient(self, local: ClientContext) -> dict[str, Tensor]:
        """The gradient of a client's mean loss over all images of its round, at its present weights, by parameter.

        Images have the weights of the method's loss. Batch norm works as in training; its running statistics move.
        """
        self._seed_dropout(local)
        names = list(self.workspace.leaves)
        leaves = {name: local.tensors[name].requires_grad_() for name in names}
        total = [torch.zeros_like(leaf) for leaf in leaves.values()]
        images = local.client_round.images
        weights = local.image_weights(torch.from_numpy(images).to(self.data.device))
        shares = torch.ones(len(images), device=self.data.device) if weights is None else weights
        plan = np.array_split(images, -(-len(images) // local.settings.batch_size))
        for (_, batch), share in zip(self.data.batches(plan), shares.split([len(at) for at in plan]), strict=True):
            set_training(local.model, len(batch.images), self.workspace.part)
            output = torch.func.functional_call(local.model, dict(local.tensors), batch.images).output
            loss = (self._loss_of(output, batch.target, batch.valid) * share).sum() / len(images)
            torch._foreach_add_(total, torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
        for leaf in leaves.values():
            leaf.requires_grad_(False)
        return dict(zip(names, total, strict=True))


class _Optimizer:
    """The optimiser of a phase: it moves all clients' copies as one or, where their learning rates differ, one by one.

    Besides its parameters, it moves each client's effective local steps: a number that starts from 0 and has the
    gradient -1.
    """

    def __init__(
        self, clients: Sequence[ClientContext], workspace: Workspace, trained: list[str], n_steps: int
    ) -> None:
        self._clients, self._workspace = clients, workspace
        self._leaves: dict[str, Tensor] = {name: workspace.leaves[name] for name in trained}
        settings, device = clients[0].settings, next(iter(self._leaves.values())).device
        reaches = _set_reaches(clients, device)
        self._effective_steps_gradients = cast(Tensor, reaches.grad)
        self._one_by_one = settings.lr_schedule == "plateau"
        if self._one_by_one:
            moved = [(local, local.parameters, local.effective_steps) for local in clients]
        else:
            moved = [(clients[0], self._leaves, reaches)]  # whose schedule is all clients'
        self._schedules = [Schedule(local, n_steps, device) for local, _, _ in moved]
        groups = []
        for (_, parameters, effective_steps), schedule in zip(moved, self._schedules, strict=True):
            by_factor: dict[float, list[Tensor]] = {1.0: [effective_steps]}
            for name, parameter in parameters.items():
                by_factor.setdefault(lr_factor(name, settings.encoder_lr_factor), []).append(parameter)
            groups += [{"params": of_factor, "lr": schedule.rate(factor)} for factor, of_factor in by_factor.items()]
        make = torch.optim.Adam if settings.use_adam else partial(torch.optim.SGD, momentum=settings.momentum)
        self._optimizer: torch.optim.Optimizer = make(groups, weight_decay=settings.weight_decay, fused=True)

    def gradients(self) -> list[list[Tensor]]:
        """Each client's gradients after a backward pass: views of what `step` takes."""
        parts = [self._workspace.parts(gradient) for gradient in self._of_leaves()]
        return [list(of_client) for of_client in zip(*parts, strict=True)]

    def _of_leaves(self) -> list[Tensor]:
        """The leaves' gradients, 0 where the loss depends on none."""
        for leaf in self._leaves.values():
            if leaf.grad is None:  # a decoder may not use the encoder's vector
                leaf.grad = torch.zeros_like(leaf)
        return [cast(Tensor, leaf.grad) for leaf in self._leaves.values()]

    def step(self, step: int) -> None:
        """Take step number `step` of the phase."""
        self._of_leaves()
        if self._one_by_one:
            for local, of_client in zip(self._clients, self.gradients(), strict=True):
                for parameter, gradient in zip(local.parameters.values(), of_client, strict=True):
                    parameter.grad = gradient
        for schedule in self._schedules:
            schedule.before(step)
        self._optimizer.step()
        for schedule, local in zip(self._schedules, self._clients, strict=False):  # a common one heeds no loss
            schedule.after(local.losses[-1])
        for leaf in self._leaves.values():
            leaf.grad = None
        self._effective_steps_gradients.fill_(-1.0)  # a method may have changed them


def _set_reaches(clients: Sequence[ClientContext], device: torch.device) -> Tensor:
    """All clients' reaches, (n_clients,) with a gradient; each client gets its own of both as a view."""
    reaches = torch.zeros(len(clients), device=device)
    reaches.grad = torch.full_like(reaches, -1.0)
    for local, effective_steps, gradient in zip(clients, reaches, reaches.grad, strict=True):
        local.effective_steps, local.effective_steps_gradient = effective_steps, gradient
        local.effective_steps.grad = gradient
    return reaches
