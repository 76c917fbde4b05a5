"""Non-participating clients after some steps on a few of their own images, from the model that they receive.

It is plain fine-tuning, whatever the method: the same optimiser, batch size, learning rate and augmentation as in the
federation, without the method's own terms. A schedule goes over the steps, as if they were a run of one round.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from models.networks.kept_outputs import full_model
from models.networks.lora import adapt
from models.networks.parts import LORA, LORA_A, Adapters
from models.networks.task_model import TaskModel
from network.algorithms.local import LocalOnly
from network.config import FederationConfig
from network.engine.client import ClientRound, copy_into, longest_first
from network.engine.evaluation import participation_gaps
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.state import ClientStates
from network.engine.trainer import Trainer
from network.partition.client_images import ClientImages
from network.settings import AdaptSettings, check_adaptation
from utils import interrupt, progress
from utils.errors import UserError
from utils.files import json_in, write_json
from utils.streams import generator

PARTS = ("unseen_adapted_on", "unseen_rest", "unseen_test")  # of a non-participating client's images, in the columns


class Adaptation:
    """Trains and evaluates each non-participating client of a finished federation, anew for each number of steps.

    Clients' images are parted once: `adapted_on` are the `adapt_images` that it trains on, drawn by its own stream,
    those of a smaller number among those of a larger one; `rest` are its other training images; `test` its held-out
    ones. A client trains as `LocalOnly` does, in the same `Trainer`, one by one or side by side as in the federation.
    Each number of steps starts from the received model, so that it does not depend on the others that are requested.

    Args:
        simulation: the federation, trained; its model is left as it was.
        settings: how clients adapt; `adapt_steps` are given.
    """

    def __init__(self, simulation: Simulation, settings: AdaptSettings) -> None:
        self.simulation, self.trained = simulation, settings.adapt_train or "all"
        self.steps = (0, *(settings.adapt_steps or ()))
        self.accelerator: Accelerator = simulation.accelerator
        data, first = simulation.data, len(simulation.data.clients)
        check_adaptation(self.steps, len(data.non_participating))
        self.parts = [
            parted(images, settings.adapt_images, simulation.config.settings.rand_seed, first + i)
            for i, images in enumerate(data.non_participating)
        ]
        self._model = _with_adapters(simulation.model, settings, simulation.config.settings.rand_seed)
        self._file = simulation.run.path / "checkpoint" / "adaptation.json"

    def run(self) -> list[dict[str, float]]:
        """A row for each number of steps, 0 first; written to `adaptation.csv`, and kept where the run is resumed."""
        rows = self._kept()
        steps = [n for n in self.steps if n not in [row["steps"] for row in rows]]
        shown = self.accelerator.is_main_process
        with interrupt.deferred():
            handed = self.simulation.received_model()
            # Adapters, which nobody hands out, are in the working copy alone, and change there as clients train.
            start = {name: handed.get(name, own).clone() for name, own in self._model.state_dict().items()}
            for n_steps in progress.bar(
                steps, desc="adaptation of non-participating clients", unit="point", shown=shown
            ):
                rows.append({"steps": n_steps, **self._after(n_steps, start)})
                if shown:
                    write_json(self._file, rows)
                    self.simulation.run.write_rows("adaptation.csv", rows)
        copy_into(self.simulation.model.state_dict(), self.simulation.server)
        return rows

    def _after(self, n_steps: int, server: dict[str, Tensor]) -> dict[str, float]:
        """The columns after so many steps from this model."""
        simulation, first = self.simulation, len(self.simulation.data.clients)
        trainer, own = self._trainer(), self._model.state_dict()
        bad: dict[int, int] = {}
        if n_steps:
            cohort = {first + i: ClientRound(parts[0], n_steps, 1.0, 1.0) for i, parts in enumerate(self.parts)}
            bad = self._train(trainer, cohort, server)

        def load(i: int) -> None:
            """Copy a non-participating client's model into the working copy."""
            copy_into(own, trainer.start(trainer.states.load(first + i), server))

        of_splits = *zip(*self.parts, strict=True), simulation.data.non_participating_held_out
        splits = dict(zip(PARTS, of_splits, strict=True))
        mine, left_out = ([client - first for client in clients] for clients in (trainer.states.of_process, bad))
        row = simulation.evaluation.of_models(self._model, load, range(len(self.parts)), mine, splits, left_out)
        trainer.states.roll_back()
        return row | participation_gaps(simulation.rows[-1], row["unseen_test_loss_mean"])

    def _trainer(self) -> Trainer:
        """A trainer of this process's non-participating clients, whose whole models stay with them."""
        simulation, first = self.simulation, len(self.simulation.data.clients)
        images = [parts[0] for parts in self.parts]
        jobs = longest_first([len(own) for own in images], self.accelerator.num_processes)
        own = [first + i for i in jobs[self.accelerator.process_index]]
        folder, n_clients = simulation.run.path / "checkpoint" / "unseen", first + len(images)
        states = ClientStates(folder, own, n_clients, self.accelerator.device, simulation.config.settings.memory)
        local = replace(simulation.config.local, n_rounds=1, train=self.trained)
        of_clients = ClientImages.of(images)
        config = FederationConfig(LocalOnly(), local, simulation.config.settings)
        data = FederatedData(simulation.data.images, of_clients, of_clients, simulation.data.groups)
        config.reweighting.prepare(data.images, of_clients)
        trainer = Trainer(self._model, data, config, states, ())
        trainer.vectorisation = simulation.trainer.vectorisation
        return trainer

    def _train(self, trainer: Trainer, cohort: dict[int, ClientRound], server: dict[str, Tensor]) -> dict[int, int]:
        """Train the clients; returns those whose loss was not finite, as far as `--on_nan` leaves them out."""
        first_bad: dict[int, Tensor] = {}
        stopped = False
        try:
            for client, _, bad_step in trainer.train(cohort, server, 0):
                first_bad[client] = bad_step
        except interrupt.StopRequested:
            stopped = True
        bad = self.simulation.agree(stopped, first_bad)
        if bad:
            names = ", ".join(f"client {client} in step {step + 1}" for client, step in sorted(bad.items()))
            message = f"the loss is not finite in the adaptation of non-participating clients: {names}"
            if self.simulation.config.settings.on_nan == "stop":
                raise UserError(f"{message}; lower --init_lr, or leave such clients out with --on_nan skip_client")
            if self.accelerator.is_main_process:
                progress.say(f"{message}; left out of the means")
        return bad

    def _kept(self) -> list[dict[str, Any]]:
        """The rows that a run wrote before it was stopped."""
        if not self._file.is_file():
            return []
        try:
            rows = json_in(self._file)
            return [row for row in rows if row["steps"] in self.steps]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self._file}: cannot be read ({error}); remove it") from error


def train(simulation: Simulation, adapting: AdaptSettings, resume: bool) -> list[dict[str, float]]:
    """Train a federation, from its run's checkpoint on if asked, then let non-participating clients adapt.

    Returns the rows of `Adaptation.run`, none where they are not to adapt. UserError where they cannot, before anything
    is trained.
    """
    adaptation = Adaptation(simulation, adapting) if adapting.adapt_steps else None
    if resume:
        simulation.resume()
    simulation.run.track(simulation.accelerator, len(simulation.rows))
    simulation.train()
    return adaptation.run() if adaptation else []


def parted(images: np.ndarray, most: int | None, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's images in two: at most so many that it adapts on (None: all), drawn by the seed, and the rest.

    Both are in increasing order.
    """
    drawn = generator("adapt", seed, client).permutation(images)
    return np.sort(drawn[:most]), np.sort(drawn[most:] if most is not None else drawn[:0])


def _with_adapters(model: nn.Module, settings: AdaptSettings, seed: int) -> nn.Module:
    """The model or, where `--adapt_train lora` needs adapters that it lacks, a copy that has them.

    UserError where a rank is given for adapters that the model has already.
    """
    if settings.adapt_train != LORA:
        return model
    if any(name.endswith(f".{LORA_A}") for name in model.state_dict()):
        if settings.adapt_rank is not None:
            raise UserError("--adapt_rank: the model was trained with adapters, which go on; omit it")
        return model
    device = next(model.parameters()).device
    adapted = cast(TaskModel, copy.deepcopy(full_model(model)).cpu())
    adapters = Adapters() if settings.adapt_rank is None else Adapters(lora_rank=settings.adapt_rank)
    try:
        adapt(adapted.encoder, adapted.config, adapters, seed)
    except UserError as error:
        raise UserError(
            str(error).replace("--train lora", "--adapt_train lora").replace("--lora_rank", "--adapt_rank")
        ) from error
    return adapted.to(device).to(memory_format=torch.channels_last)
