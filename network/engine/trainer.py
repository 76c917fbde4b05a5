"""The training of one process's clients: which of them train together, and what each sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from models.networks.kept_outputs import full_model
from models.networks.parts import TRAINABLE, is_within
from models.networks.threads import threads_for
from network.engine.batch_norm import batch_norm_tensors
from network.engine.client import ClientContext, ClientRound, copy_into
from network.engine.federated_data import FederatedData
from network.engine.local_training import LocalTraining
from network.engine.state import ClientStates, add_prefix
from network.engine.vectorisation import measure
from network.engine.workspace import NOT_SIDE_BY_SIDE, Workspaces
from utils.errors import UserError

if TYPE_CHECKING:
    from network.config import FederationConfig

LOSS = "local_loss"  # travels with the uploads


def travelling(model: nn.Module, config: FederationConfig) -> tuple[list[str], frozenset[str]]:
    """The names of a model's tensors that are trained, and those of them that travel.

    UserError for clients' own batch norm where there is none.
    """
    own_tensors = batch_norm_tensors(full_model(model)) if config.settings.batch_norm == "local" else ()
    trained = [name for name in model.state_dict() if is_within(TRAINABLE[config.local.train], name)]
    return trained, frozenset(name for name in trained if config.algorithm.is_shared(name) and name not in own_tensors)


class Trainer:
    """Trains clients one by one on the model itself, or several at once on copies of it.

    Args:
        model: the working copy, on its device.
        data: the images, and which client has which.
        config: the method, how clients train, and what weights images, both of them prepared.
        states: what this process's clients keep between rounds.
        shared: the names of the tensors that travel.
    """

    def __init__(
        self,
        model: nn.Module,
        data: FederatedData,
        config: FederationConfig,
        states: ClientStates,
        shared: Collection[str],
    ) -> None:
        self.model, self.images, self.algorithm = model, data.images, config.algorithm
        self.local_settings, settings = config.local, config.settings
        self.states, self.shared, self.seed = states, frozenset(shared), settings.rand_seed
        self.reweighting = config.reweighting
        self.groups = torch.from_numpy(data.groups).to(data.images.device)
        at_once = settings.vectorised_clients
        self.vectorisation: dict[str, Any] = {"vectorised_clients": at_once} if at_once else {}
        self._names = list(model.state_dict())
        part = TRAINABLE[config.local.train]
        self._kept = [name for name in self._names if name not in self.shared and is_within(part, name)]
        shape = self.images.batch(torch.zeros(1, dtype=torch.int64)).images.shape[1:]
        self._build = Workspaces(model, shape, settings.compile, part)
        # A round has client batches of at most two sizes, unless clients take different numbers of steps.
        self._workspace = lru_cache(maxsize=2)(self._build)
        self._has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())

    def choose_vectorisation(self, most: Callable[[], int]) -> dict[str, Any]:
        """How many clients train at once, measured up to `most()` if it was not given, and on how many threads.

        UserError where a number was given and the network does not allow more than one.
        """
        requested = self.vectorisation.get("vectorised_clients")
        alone = requested == 1 if requested else most() == 1
        together = alone or self._build.side_by_side
        if requested and not together and most() > 1:
            raise UserError(f"--vectorised_clients {requested}: {NOT_SIDE_BY_SIDE}; give --vectorised_clients 1")
        vectorisation = self.vectorisation or measure(
            most() if together else 1, self._build, self.model, self.images, self.local_settings, self.groups
        )
        vectorisation |= {} if together else {"one_by_one": NOT_SIDE_BY_SIDE}
        n_images = (
            min(vectorisation["vectorised_clients"], len(self.states.of_process)) * self.local_settings.batch_size
        )
        return vectorisation | {"threads": threads_for(self.model, self.images, n_images)}

    def client_batches(self, cohort: Mapping[int, ClientRound]) -> Iterator[list[int]]:
        """This process's clients of a round, in batches of clients that can train at once."""
        most, alike = self.vectorisation["vectorised_clients"], defaultdict(list)
        if most > 1 and len(cohort) > 1 and not self._build.side_by_side:
            most = 1  # non-participating clients with adapters, or a run of before this was looked at
        for client, client_round in cohort.items():
            if client in self.states.of_process:
                # Batch norm must not see the images that pad a smaller batch.
                batch = min(self.local_settings.batch_size, len(client_round.images)) if self._has_batch_norm else 0
                alike[client_round.n_steps, batch].append(client)
        for clients in alike.values():
            yield from (client_batch.tolist() for client_batch in np.array_split(clients, -(-len(clients) // most)))

    def train(
        self, cohort: Mapping[int, ClientRound], server: Mapping[str, Tensor], round: int
    ) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
        """Train this process's clients of a round; yields each client, its upload and the first step of infinite loss.

        The upload includes the mean loss. The step, from 0, is a number on the device, -1 if all losses are finite; if
        they are but the upload is not, it is the last step. The client's state is saved. Uploads are views, valid until
        the next one is asked for.
        """
        for clients in self.client_batches(cohort):
            for local in self._train(clients, cohort, server, round):
                local.state |= add_prefix("own", local.copy(self._kept))
                self.states.save(local.client, local.state)
                losses = torch.stack(local.losses)
                upload = self.algorithm.upload(local) | {LOSS: losses.mean()}
                yield local.client, upload, _first_bad(losses, upload)

    def start(self, state: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors that a client starts a round from: the server's, or its own where they do not travel."""
        return {name: state.get(f"own.{name}", server[name]) for name in self._names}

    def _train(
        self, clients: Sequence[int], cohort: Mapping[int, ClientRound], server: Mapping[str, Tensor], round: int
    ) -> list[ClientContext]:
        """Train these clients at once."""
        space, at_work = self._workspace(len(clients)), []
        for client, tensors in zip(clients, space.tensors, strict=True):
            state = self.states.load(client)
            start = self.start(state, server)
            copy_into(tensors, start)
            at_work.append(
                ClientContext(
                    client,
                    cohort[client],
                    round,
                    self.model,
                    tensors,
                    server,
                    start,
                    state,
                    self.local_settings,
                    self.shared,
                    self.reweighting.weights,
                )
            )
        LocalTraining(space, self.images, self.algorithm, self.groups, self.seed)(at_work)
        return at_work


def _first_bad(losses: Tensor, upload: Mapping[str, Tensor]) -> Tensor:
    """The first step whose loss is not finite, the last if only the upload is not, else -1; a number on the device."""
    norms = torch._foreach_norm([tensor for tensor in upload.values() if tensor.is_floating_point()])
    bad = ~torch.cat([losses, torch.stack(norms)]).isfinite()
    return torch.where(bad.any(), bad.int().argmax().clamp(max=len(losses) - 1), -1)
