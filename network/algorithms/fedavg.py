"""FedAvg, and the hooks that other methods override."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from network.engine.client import ClientContext, ClientRound, Phase
from network.engine.server import ServerContext
from network.engine.state import cast_like
from network.partition.client_images import ClientImages
from network.settings import LocalSettings, SimulationSettings
from utils.settings import Configured

if TYPE_CHECKING:
    from torch import Tensor, nn

    from datasets.table import Table
    from datasets.task_data import TaskData


class FedAvg(Configured):
    """Federated averaging: McMahan et al. 2017 (arXiv 1602.05629), algorithm 1.

    | symbol | argument |
    |---|---|
    | E, local work | `--local_epochs`, or `--sgd_per_epoch` steps times `--epoch_per_round` |
    | B, batch size | `--batch_size` |
    | eta | `--init_lr` |
    | S_t, the clients of a round | see `network/sampling.py` |

    The server's model becomes the mean of the clients' models, weighted by their numbers of images. Buffers (batch
    norm's running statistics) are averaged like weights, as in the published code.

    Methods override what they do otherwise; fields that are settings are arguments of theirs. `personal` is True where
    clients have personal models although all tensors travel. `title` is the name in figures, where that is not the
    class's name. `only_mean` says why no `--aggregation` but the mean suits the method, where that is so, and
    `no_uploads` why its server puts no clients' uploads together at all. `left_alone` names what of an upload, besides
    buffers, attackers do not change, because it would give them away. `version` is raised by one, from 1, where the
    class's numbers change; a subclass does not inherit it.
    """

    version: ClassVar[int] = 1
    personal: ClassVar[bool] = False
    title: ClassVar[str] = ""
    only_mean: ClassVar[str] = ""
    no_uploads: ClassVar[str] = ""
    left_alone: ClassVar[Collection[str]] = ()

    @classmethod
    def label(cls) -> str:
        """The method's name in figures; a subclass does not inherit its parent's."""
        return vars(cls).get("title") or cls.__name__

    @classmethod
    def versions(cls) -> dict[str, int]:
        """The versions of the method and of those that it is built on, by the names of the classes."""
        built_on = [base for base in reversed(cls.mro()) if issubclass(base, FedAvg)]
        return {base.__name__: vars(base).get("version", 1) for base in built_on}

    def overrides(self, hook: str) -> bool:
        """Whether the method has a hook of this name of its own, instead of FedAvg's."""
        return getattr(type(self), hook) is not getattr(FedAvg, hook)

    def bound(self, local_settings: LocalSettings, settings: SimulationSettings) -> Self:
        """A copy that has what it needs of these settings; UserError where they do not suit the method."""
        method = copy(self)
        method.bind(local_settings, settings)
        return method

    def bind(self, local_settings: LocalSettings, settings: SimulationSettings) -> None:
        """Take from the settings of a federation what the method needs of them; UserError where they do not suit it."""

    def check_clients(self, n_clients: int) -> None:
        """Raise UserError if the method does not fit a federation of this many clients."""

    def unprotected(self) -> str:
        """Why a bound on uploads and noise on their sum would not protect clients, in words; empty where they do.

        See `network/privacy.py`.
        """
        return ""

    def reads(self) -> list[Path]:
        """The files that the method's results depend on, besides the run's data and models."""
        return []

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """Raise UserError where what `prepare` will read is missing or of other images.

        Called before anything is written. `shortened` says that only a few of the images are used.
        """

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Prepare what the rounds need of the data; called once, before all hooks below, in every process.

        Args:
            data: the task's images, with their labels, table and positions held out.
            groups: (N,) the group of every image that the partition assigned, -1 for none.
            clients: each client's images, as positions in `data`.
        """

    def is_shared(self, name: str) -> bool:
        """Whether the parameter or buffer of this name travels; of the others, each client keeps its own."""
        return True

    def is_summed(self, name: str) -> bool:
        """Whether uploads of this name are summed; the others are averaged by the cohort's weights."""
        return False

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """What the server keeps besides the model, at first: tensors under names of their own, which `server` gains."""
        return {}

    def cohort(self, sampled: dict[int, ClientRound], clients: ClientImages) -> dict[int, ClientRound]:
        """The clients that take part in a round, of those that `ClientSampling` has drawn: all, as they are."""
        return sampled

    def start_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> dict[str, float]:
        """What the server does before clients train, in all processes.

        Returns further columns of the round's metrics, the same in all processes.
        """
        return {}

    def notes(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Lines for the end of the run's report, from the metrics of all rounds."""
        return []

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """A client's work in a round, which begins with `local.start` in its tensors; yields each phase to be trained.

        Clients that train side by side must yield the same phases.
        """
        yield Phase(local.client_round.n_steps)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The scalar to minimise, from the loss per example (B,): its mean, in which FedIR weights images.

        An override that adds terms to an example's loss passes their sum to this one.
        """
        return local.mean(loss)

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Change a step's gradients, those of `local.parameters`, in place before the optimiser uses them."""

    def upload(self, local: ClientContext) -> dict[str, Tensor]:
        """What a client sends at the end of a round: by default, the tensors of its model that travel."""
        return {name: tensor for name, tensor in local.tensors.items() if name in local.shared}

    def received(self, server: Mapping[str, Tensor], shared: Collection[str]) -> Collection[str]:
        """The names of the server's tensors that clients get in a round: `shared`, and what else they read."""
        return shared

    def traffic(
        self, sent: int, server: Mapping[str, Tensor], shared: Collection[str], trained: Collection[str]
    ) -> tuple[int, int]:
        """The bytes that a client sends and receives in a round; its upload has `sent` bytes.

        `shared` are those of the `trained` names that travel.
        """
        return sent, sum(server[name].nbytes for name in self.received(server, shared))

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The server's next tensors, from its present ones and the weighted mean, or sum, of the uploads (float64).

        Clients whose loss was not finite are left out of both.
        """
        return dict(server) | {name: cast_like(value, server[name]) for name, value in mean.items()}

    def received_model(self, context: ServerContext) -> Mapping[str, Tensor]:
        """The model that a client gets which has not taken part: what it is evaluated with, and adapts.

        By default the server's tensors, and the initial ones where they do not travel, as for a participant in its
        first round: a fresh head under a method that keeps heads personal. Called in all processes.
        """
        return context.server

    def personal_model(self, start: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """A client's model for evaluation, from the tensors that it would start a round from and its state."""
        return start
