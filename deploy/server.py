"""The server's half of a federation: the simulation's rounds, with clients that are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from datasets.task_data import TaskData
from datasets.tasks import Task
from deploy.messages import Layout, read, write
from deploy.nodes import Nodes
from deploy.population import class_counts, knows_labels, with_counted
from models.central.evaluation import evaluate, mean_values
from models.central.metrics import error_names, metric_names
from network.config import FederationConfig
from network.engine.backend import Backend
from network.engine.client import ClientRound
from network.engine.evaluation import Evaluation, columns
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.trainer import Trainer
from network.partition.client_images import ClientImages
from utils import progress
from utils.errors import UserError


class Missing(UserError):
    """A client has no answer, or one that is refused, and the round cannot go on without it."""


@dataclass
class Versions:
    """Which version of its state each client is at; the states themselves are on the clients' disks.

    It has the methods of `network.engine.state.ClientStates` that the rounds call.
    """

    of_process: list[int]
    now: dict[int, int] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    checkpoints: list[dict[int, int]] = field(default_factory=list)

    def kept_versions(self, client: int) -> list[int]:
        """The versions that checkpoints or a rollback may go back to."""
        return [versions[client] for versions in (self.finished, *self.checkpoints) if client in versions]

    def finish_round(self) -> None:
        """The present versions are those that `roll_back` returns to."""
        self.finished = dict(self.now)

    def roll_back(self, clients: Collection[int] | None = None) -> None:
        """These clients (by default all) return to the last finished round."""
        for client in self.of_process if clients is None else clients:
            self.now.pop(client, None)
            if client in self.finished:
                self.now[client] = self.finished[client]

    def checkpoint(self) -> dict[int, int]:
        """Finish the round; returns the versions that have changed since the last checkpoint."""
        self.finish_round()
        last = self.checkpoints[-1] if self.checkpoints else {}
        return {client: version for client, version in self.finished.items() if last.get(client) != version}

    def forget_old(self) -> None:
        """Only the last two checkpoints count from now on."""
        self.checkpoints = [*self.checkpoints[-1:], dict(self.finished)]

    def check(self, versions: Mapping[int, int]) -> None:
        """Nothing of it lies here."""

    def restore(self, versions: Mapping[int, int], before: Mapping[int, int] | None = None) -> None:
        """Return to a checkpoint; the one before it still counts."""
        self.now, self.finished = dict(versions), dict(versions)
        self.checkpoints = [dict(before or {}), dict(versions)]


class RemoteClients:
    """Clients on other machines, as the backend of a `Simulation`: its rounds, to the same bits.

    The server knows of the clients' images how many there are and, for methods that need it, of which classes. What it
    asks a client for is checked against what the client would send: names, shapes, dtypes and size of an upload are
    those of a step on held-out images.

    Args:
        data: the images that are held out in common.
        config: of the federation.
        nodes: the clients, all of which have been gathered.
        name: of the run, 32 hexadecimal digits, under which clients keep their states.
        on_missing: "stop" or "skip_client".
    """

    simulation: Simulation

    def __init__(self, data: TaskData, config: FederationConfig, nodes: Nodes, name: str, on_missing: str) -> None:
        self.nodes, self.name, self.on_missing = nodes, name, on_missing
        counts = [np.array(nodes.described[client]["counts"], np.int64) for client in range(nodes.n_clients)]
        images, clients = with_counted(data, counts)
        nothing = ClientImages.of([np.zeros(0, np.int64)] * len(clients))
        self.data = FederatedData(images, clients, nothing, np.full(len(images.labels), -1))
        self.versions = Versions(list(range(len(clients))))
        self._others: list[list[list[int]]] = [[[0], [0]] for _ in counts]  # what a client is told of other images
        if knows_labels(config.algorithm, config.reweighting):
            everyone, held_out = np.sum(counts, axis=0), class_counts(data, data.test).tolist()
            self._others = [[(everyone - of_client).tolist(), held_out] for of_client in counts]
        self.first = clients.images[clients.bounds[:-1]]

    def __call__(self, simulation: Simulation) -> Backend:
        """The backend of this simulation."""
        self.simulation = simulation
        return Backend(self.versions, RemoteTrainer(self, simulation.here.trainer), RemoteEvaluation(self))

    def layout(self) -> Layout:
        """What an upload looks like: that of a client that takes one step on held-out images."""
        simulation = self.simulation
        at = self.data.images.test[: simulation.config.local.batch_size]
        alone = {0: ClientRound(at, 1, 1.0, 1.0)}
        [(_, upload, _)] = simulation.here.trainer.train(alone, simulation.server, 0)
        simulation.here.states.roll_back()
        return Layout.of(upload)

    def ask(
        self, kind: str, requests: Mapping[int, Mapping[str, Any]], round: int
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        """Send what clients need to each of these; their answers, and in words why others have none."""
        simulation = self.simulation
        names = simulation.algorithm.received(simulation.server, simulation.shared)
        common = write({}, {name: simulation.server[name] for name in names})["tensors"]
        contents = {}
        for client, more in requests.items():
            state = {"version": self.versions.now.get(client), "kept": self.versions.kept_versions(client)}
            words = {"run": self.name, "round": round, "threads": simulation.trainer.vectorisation["threads"]}
            content = write({**words, **state, "others": self._others[client], **more})
            content["tensors"] = common
            contents[client] = content
        replies = self.nodes.ask(kind, contents, str(round + 1))
        answers = {client: reply for client, reply in replies.items() if isinstance(reply, RecordDict)}
        errors = {client: reply for client, reply in replies.items() if isinstance(reply, str)}
        away = f"it has been away for more than {self.nodes.timeout:g} s"
        return answers, errors | dict.fromkeys(contents.keys() - replies.keys(), away)

    def leave_out(self, client: int, why: str, round: int) -> None:
        """A client has no part in a round: say so, or raise `Missing`."""
        line = f"client {client} in round {round + 1}: {why}"
        if self.on_missing == "stop":
            raise Missing(f"{line}; mend that and resume, or leave such clients out with --on_missing skip_client")
        progress.say(f"{line}; left out")


class RemoteTrainer:
    """Has clients train where they are; yields what `network.engine.trainer.Trainer` does, in the same order."""

    def __init__(self, clients: RemoteClients, local: Trainer) -> None:
        self._clients, self._local = clients, local
        self._layout: Layout | None = None

    @property
    def vectorisation(self) -> dict[str, Any]:
        """One client at once, and the threads that it takes."""
        return self._local.vectorisation

    @vectorisation.setter
    def vectorisation(self, vectorisation: dict[str, Any]) -> None:
        """As a checkpoint says."""
        self._local.vectorisation = vectorisation

    def choose_vectorisation(self, most: Callable[[], int]) -> dict[str, Any]:
        """See `Trainer.choose_vectorisation`."""
        return self._local.choose_vectorisation(most)

    def train(
        self, cohort: dict[int, ClientRound], server: Mapping[str, Tensor], round: int
    ) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
        """Train the clients of a round; those that are left out are taken out of the cohort."""
        clients = self._clients
        self._layout = self._layout or clients.layout()
        order = [client for batch in self._local.client_batches(cohort) for client in batch]
        requests = {client: self._request(client, cohort[client]) for client in order}
        answers, errors = clients.ask("train", requests, round)
        for client in order:
            try:
                if client in errors:
                    raise UserError(errors[client])
                answer, upload = read(answers.pop(client), self._layout.most_bytes)
                bad_step, version = _checked(answer, cohort[client], round)
                self._layout.check(upload, finite=bad_step < 0)
            except UserError as error:
                refused = "" if client in errors else "its upload is refused: "
                clients.leave_out(client, f"{refused}{error}", round)
                del cohort[client]
                continue
            if version is not None:
                clients.versions.now[client] = version
            device = clients.simulation.accelerator.device
            yield client, {name: tensor.to(device) for name, tensor in upload.items()}, torch.tensor(bad_step)
        if not cohort:
            raise Missing(f"no client is left in round {round + 1}")

    def _request(self, client: int, client_round: ClientRound) -> dict[str, Any]:
        images = client_round.images - self._clients.first[client]
        everything = np.array_equal(client_round.images, self._clients.data.clients[client])
        chosen = None if everything else images.tolist()
        return {
            "images": chosen,
            "n_steps": client_round.n_steps,
            "weight": client_round.weight,
            "client_fraction": client_round.client_fraction,
        }


def _checked(answer: Mapping[str, Any], client_round: ClientRound, round: int) -> tuple[int, int | None]:
    """The first bad step (-1: none) and the version of the state that a client says; UserError for nonsense."""
    bad_step, version = answer.get("bad_step"), answer.get("version")
    if type(bad_step) is not int or not -1 <= bad_step < client_round.n_steps:
        raise UserError("it does not say whether its losses are finite")
    if version is not None and (type(version) is not int or version != round + 1):
        raise UserError(f"it is of version {version} and not of round {round + 1}")
    return bad_step, version


class RemoteEvaluation(Evaluation):
    """Has clients evaluate models on their own images; what is held out in common is evaluated here."""

    def __init__(self, clients: RemoteClients) -> None:
        settings = clients.simulation.config.settings
        super().__init__(
            clients.data,
            clients.simulation.accelerator,
            n_clients=settings.evaluate_clients,
            seed=settings.rand_seed,
            apart=True,
        )
        self._clients = clients

    def of_server(self, model: nn.Module, of_process: Collection[int]) -> dict[str, float]:
        """The columns of the server's model."""
        data = self.images
        test = mean_values(data, evaluate(model, data, data.test, self.accelerator))
        # Before clients are asked: whose values no client is to blame for ends the run with a line of its own.
        self._clients.simulation.check_sound(len(self._clients.simulation.rows), {"test_loss": test["loss"]})
        row = columns(data.task, self._client_values(""), ("train", "local_test"))
        return row | {f"test_{name}": value for name, value in test.items()}

    def of_clients(
        self, model: nn.Module, load: Callable[[int], None], of_process: Collection[int]
    ) -> dict[str, float]:
        """The columns of the personal models."""
        values = self._client_values("personal_")
        return columns(self.images.task, values, ("personal_train", "personal_local_test"))

    def _client_values(self, whose: str) -> np.ndarray:
        """`values_of` each client that is evaluated, (clients, metrics, 2); nan for those that are left out.

        They are of the server's model, or, where `whose` is "personal_", of the clients' own.
        """
        clients, round = self._clients, len(self._clients.simulation.rows) - 1
        evaluated = self.evaluated.tolist()
        shape = (len(metric_names(self.images.task)), 2)
        request = {"personal": bool(whose)}
        answers, errors = clients.ask("evaluate", dict.fromkeys(evaluated, request), round)
        values = np.full((len(evaluated), *shape), np.nan)
        for row_of, client in enumerate(evaluated):
            try:
                if client in errors:
                    raise UserError(errors[client])
                _, tensors = read(answers[client], _MOST_VALUES)
                tensor = tensors.get("values")
                if (
                    tensors.keys() != {"values"}
                    or tensor is None
                    or (tensor.shape, tensor.dtype) != (shape, torch.float64)
                ):
                    raise UserError("its values are refused: they are not those of the task's metrics")
                measured = np.array(clients.nodes.described[client]["measured"])
                _check_values(self.images.task, tensor.numpy(), measured, whose)
                values[row_of] = tensor.numpy()
            except UserError as error:
                clients.leave_out(client, str(error), round)
        return values


_MOST_VALUES = 1 << 20  # bytes of a client's loss and metrics


def _check_values(task: Task, values: np.ndarray, measured: np.ndarray, whose: str) -> None:
    """UserError where these cannot be `values_of` a client, (metrics, 2).

    They are finite, or nan where nothing counts whatever the model, which is where not `measured` (metrics, 2), as the
    client wrote when it joined. Losses and errors are not below 0, and scores lie within -1 and 1.
    """
    errors = error_names(task)
    for name, of_splits, counts in zip(metric_names(task), values, measured, strict=True):
        for split, value, counted in zip(("train", "local_test"), of_splits, counts, strict=True):
            lowest, highest = (0, np.inf) if name in errors else (-1, 1)
            fits = not counted if np.isnan(value) else np.isfinite(value) and lowest <= value <= highest
            if not fits:
                raise UserError(f"its values are refused: {whose}{split}_{name} is {value:g}, which it cannot be")


def plan_of(
    config: Mapping[str, Any], model: Mapping[str, Any], versions: Mapping[str, int] | None, name: str
) -> dict[str, Any]:
    """What clients are told of a run: its arguments but for paths, the model's settings, the versions of the code."""
    plain = {key: value for key, value in config.items() if not isinstance(value, Path)}
    return {"run": name, "arguments": plain, "model": dict(model), "versions": versions}
