"""FedAvg, and the hooks that other methods override."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.client import ClientContext, ClientRound, Phase
from network.importance import CLASS, CLUSTER, HELD_OUT, NONE, POPULATION, UNIFORM, check_kinds, kinds_of, reweighting
from network.partition.client_images import ClientImages
from network.sampling import SAMPLERS, shuffled_epochs
from network.server import ServerContext
from network.settings import LocalSettings
from network.state import cast_like
from utils.args import POSITIVE_INT, number
from utils.arguments import Argument, read_arguments
from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from datasets.table import Table
    from datasets.task_data import TaskData

_LEAST = 1e-30  # mean weight that weights are divided by


class FedAvg:
    """Federated averaging: McMahan et al. 2017 (arXiv 1602.05629), algorithm 1.

    | symbol | argument |
    |---|---|
    | C K, clients per round | `--clients_per_round` (all by default, as in arXiv 2503.14553) |
    | S_t, the clients of a round | `--client_sampling`, see `network/sampling.py` |
    | E, local work | `--local_epochs`, or `--sgd_per_epoch` steps times `--epoch_per_round` |
    | B, batch size | `--batch_size` |
    | eta | `--init_lr` |
    | N_VC of FedVC | `--virtual_client_size` |
    | w of FedIR | `--importance_reweighting`, `--importance_target`, `--importance_bound` |

    The server's model becomes the mean of the clients' models, weighted by their numbers of images. Buffers (batch
    norm's running statistics) are averaged like weights, as in the published code.

    `--virtual_client_size` makes it, and every method that inherits from it, FedVC: Hsu, Qi and Brown 2020
    (arXiv 2003.08082, section 5.3), for clients of different sizes. In a round, a client goes once over N_VC images, in
    N_VC / B steps: a random subset of its images or, where it has fewer, draws with replacement. Clients are drawn in
    proportion to their size (by `--client_sampling systematic`, unless another is given), and all draws count the same.
    A large client may be drawn several times per round. In the paper, its virtual clients then train on different
    subsets; here it trains once and counts as often as it was drawn, which is unbiased, too. If each client has N_VC
    images and all take part, it is FedAvg with one local epoch, to the bit.

    `--importance_reweighting` makes it FedIR, section 5.2 of that paper; `network/importance.py` says what that can do
    and what it cannot.

    `arguments` declares the method's command-line arguments; each becomes an attribute. `personal` is True where
    clients have personal models although all tensors travel. `title` is the name in figures, where that is not the
    class's name. `only_mean` says why no `--aggregation` but the mean suits the method, where that is so, and
    `no_uploads` why its server puts no clients' uploads together at all. `left_alone` names what of an upload, besides
    buffers, attackers do not change, because it would give them away. `version` is raised by one, from 1, where the
    class's numbers change; a subclass does not inherit it.
    """

    version: ClassVar[int] = 1
    arguments: ClassVar[dict[str, Argument]] = {
        "clients_per_round": Argument(None, "clients that take part in a round; default: all", POSITIVE_INT),
        "client_sampling": Argument(
            None,
            "how the clients of a round are chosen; default: uniform, or systematic with --virtual_client_size",
            choices=tuple(SAMPLERS),
        ),
        "virtual_client_size": Argument(
            None, "images per client and round, in place of local epochs or steps; default: all it has", POSITIVE_INT
        ),
        "importance_reweighting": Argument(
            NONE,
            "FedIR: weight images by the share of their class, or cluster, in the target over that in the client",
            choices=(NONE, CLASS, CLUSTER),
        ),
        "importance_target": Argument(
            POPULATION, "FedIR's target: the shares that it aims at", choices=(POPULATION, HELD_OUT, UNIFORM)
        ),
        "importance_bound": Argument(None, "largest weight of an image; default: no bound", number(float, above=1)),
    }
    personal: ClassVar[bool] = False
    title: ClassVar[str] = ""
    only_mean: ClassVar[str] = ""
    no_uploads: ClassVar[str] = ""
    left_alone: ClassVar[Collection[str]] = ()
    clients_per_round: int | None
    client_sampling: str
    virtual_client_size: int | None
    importance_reweighting: str
    importance_target: str
    importance_bound: float | None

    @classmethod
    def label(cls) -> str:
        """The method's name in figures; a subclass does not inherit its parent's."""
        return vars(cls).get("title") or cls.__name__

    @classmethod
    def versions(cls) -> dict[str, int]:
        """The versions of the method and of those that it is built on, by the names of the classes."""
        built_on = [each for each in reversed(cls.mro()) if issubclass(each, FedAvg)]
        return {each.__name__: vars(each).get("version", 1) for each in built_on}

    def __init__(self, args: Namespace) -> None:
        read_arguments(self, args)
        self._clusters: Path | None = getattr(args, "assignment_files_path", None)
        self._importance: Tensor | None = None
        if self.client_sampling is None:
            self.client_sampling = "systematic" if self.virtual_client_size else "uniform"
        if self.virtual_client_size and self.virtual_client_size % args.batch_size:
            raise UserError(
                f"--virtual_client_size {self.virtual_client_size} is not a multiple of --batch_size "
                f"{args.batch_size}; give a multiple"
            )

    def overrides(self, hook: str) -> bool:
        """Whether the method has a hook of this name of its own, instead of FedAvg's."""
        return getattr(type(self), hook) is not getattr(FedAvg, hook)

    def check_clients(self, n_clients: int) -> None:
        """Raise UserError if the arguments do not fit a federation of this many clients."""
        if (self.clients_per_round or 0) > n_clients:
            raise UserError(
                f"--clients_per_round {self.clients_per_round} is more than the {n_clients} clients; see --n_clients"
            )

    def unprotected(self) -> str:
        """Why a bound on uploads and noise on their sum would not protect clients, in words; empty where they do.

        See `network/privacy.py`.
        """
        if self.importance_reweighting == CLUSTER:
            return "clusters, which --importance_reweighting counts, were found in all clients' images"
        if self.importance_reweighting != NONE and self.importance_target == POPULATION:
            return "--importance_target population counts the kinds of all clients' images; give another"
        if self.importance_reweighting != NONE and self.importance_target == UNIFORM and self.importance_bound:
            return "by --importance_bound, the weights of uniform tell which classes anybody has; omit the bound"
        return ""

    def reads(self) -> list[Path]:
        """The files that the method's results depend on, besides the run's data and models."""
        return []

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """Raise UserError where what `prepare` will read is missing or of other images; an override calls this as well.

        Called before anything is written. `shortened` says that only a few of the images are used.
        """
        check_kinds(self.importance_reweighting, table, task, self._clusters, shortened)

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Prepare what the rounds need of the data; called once, before all other hooks, in every process.

        An override calls this one as well, because FedIR's weights are computed here.

        Args:
            data: the task's images, with their labels, table and positions held out.
            groups: (N,) the group of every image that the partition dealt, -1 for none.
            clients: each client's images, as positions in `data`.
        """
        if self.importance_reweighting != NONE:
            import torch

            kinds = kinds_of(self.importance_reweighting, data, self._clusters)
            found = reweighting(kinds, clients, data.test, self.importance_target, self.importance_bound)
            weights = found.of_images(kinds, clients)
            self._importance = torch.from_numpy(weights).to(data.device, torch.float32)

    def is_shared(self, name: str) -> bool:
        """Whether the parameter or buffer of this name travels; of the others, each client keeps its own."""
        return True

    def is_summed(self, name: str) -> bool:
        """Whether uploads of this name are summed; the others are averaged by the cohort's weights."""
        return False

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """What the server keeps besides the model, at first: tensors under names of their own, which `server` gains."""
        return {}

    def client_state(self, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A client's state before its first round, which starts from the tensors `start`."""
        return {}

    def cohort(
        self, clients: ClientImages, settings: LocalSettings, rng: np.random.Generator
    ) -> dict[int, ClientRound]:
        """The clients that take part in a round, each with its part in it."""
        chosen = SAMPLERS[self.client_sampling](clients.sizes, self.clients_per_round or len(clients), rng)
        cohort = {}
        for i, weight in chosen.items():
            images = clients[i]
            portion, n_steps = len(images) / len(clients.images), settings.steps(len(images))
            if virtual := self.virtual_client_size:
                # Sorted, so that a draw of all of a client's images changes nothing.
                images = images[np.sort(rng.choice(len(images), virtual, replace=len(images) < virtual))]
                n_steps = virtual // settings.batch_size
            cohort[i] = ClientRound(images, n_steps, weight, portion)
        return cohort

    def start_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> dict[str, float]:
        """What the server does before clients train, in all processes.

        Returns further columns of the round's metrics, the same in all processes.
        """
        return {}

    def end_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> dict[str, float]:
        """What happens after the server's step, in all processes, as `start_round`.

        `cohort` lacks the clients whose loss was not finite.
        """
        return {}

    def measured(self, context: ServerContext) -> dict[str, float]:
        """Further columns of the metrics where models are evaluated, in all processes, as `start_round`."""
        return {}

    def notes(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Lines for the end of the run's report, from the metrics of all rounds."""
        return []

    def batches(self, n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> np.ndarray:
        """The images that a client trains on at each step: (n_steps, B) indices among its own."""
        return shuffled_epochs(n_images, batch_size, n_steps, rng)

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """A client's work in a round, which begins with `local.start` in its tensors; yields each phase to be trained.

        Clients that train side by side must yield the same phases.
        """
        yield Phase(local.client_round.n_steps)

    def image_weights(self, positions: Tensor) -> Tensor | None:
        """The weights (B,) of the images at these positions (B,) in their mean loss; None if all count the same.

        They are 1 on average; those of images whose class or cluster the target lacks are 0, even if all are such.
        """
        if self._importance is None:
            return None
        weights = self._importance[positions]
        return weights / weights.mean().clamp(min=_LEAST)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The scalar to minimise: the mean of the loss per example (B,), weighted by `image_weights`.

        An override that adds terms to an example's loss passes their sum to this one.
        """
        weights = self.image_weights(local.batch.positions)
        return (loss if weights is None else loss * weights).mean()

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

    def newcomer(self, context: ServerContext) -> Mapping[str, Tensor]:
        """The model that a client gets which has not taken part: what it is evaluated with, and adapts.

        By default the server's tensors, and the initial ones where they do not travel, as for a participant in its
        first round: a fresh head under a method that keeps heads personal. Called in all processes.
        """
        return context.server

    def personal_model(self, start: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """A client's model for evaluation, from the tensors that it would start a round from and its state."""
        return start
