"""FedAvg, and the hooks in which other methods differ from it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.client import ClientContext, ClientRound, Phase
from network.importance import CLASS, CLUSTER, HELD_OUT, NONE, POPULATION, UNIFORM, kinds_of, reweighting
from network.sampling import SAMPLERS, shuffled_epochs
from network.settings import LocalSettings
from network.state import ClientStates, cast_like
from utils.args import POSITIVE_INT, number
from utils.arguments import Argument, read_arguments
from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from datasets.task_data import TaskData

_LEAST = 1e-30  # of a mean weight


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

    With `--virtual_client_size` it is FedVC, which Hsu, Qi and Brown 2020 (arXiv 2003.08082, section 5.3) made for
    clients of different size, and so is every method that inherits it: a turn uses N_VC images, a random subset of the
    client's or, where it has fewer, draws with replacement, once, in N_VC / B steps. Clients are then drawn in
    proportion to their size (`--client_sampling systematic`, unless another is given), and all draws count the same.
    Large clients are drawn several times a round; two virtual clients of one would train on two subsets, but here it
    trains once and counts twice, which is as unbiased. With clients of N_VC images each that all take part, and one
    local epoch, it is FedAvg to the bit.

    With `--importance_reweighting` it is that paper's FedIR, section 5.2: see `network/importance.py`, which also says
    what that can do and what not.

    `arguments` are the method's own; each becomes an attribute. `personal` says that clients have models of their own
    though all tensors travel. `title` is what figures call it where that is not the class's name.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "clients_per_round": Argument(None, "clients that take part in a round; default: all", POSITIVE_INT),
        "client_sampling": Argument(
            None,
            "how the clients of a round are chosen; default: uniform, or systematic with --virtual_client_size",
            choices=tuple(SAMPLERS),
        ),
        "virtual_client_size": Argument(
            None, "images of a client's turn, in place of its local epochs or steps; default: all it has", POSITIVE_INT
        ),
        "importance_reweighting": Argument(
            NONE,
            "FedIR: images count by how much more often the target has their class, or cluster, than the client",
            choices=(NONE, CLASS, CLUSTER),
        ),
        "importance_target": Argument(
            POPULATION, "whose shares of classes or clusters it aims at", choices=(POPULATION, HELD_OUT, UNIFORM)
        ),
        "importance_bound": Argument(None, "the most an image can count; default: no bound", number(float, above=1)),
    }
    personal: ClassVar[bool] = False
    title: ClassVar[str] = ""
    clients_per_round: int | None
    client_sampling: str
    virtual_client_size: int | None
    importance_reweighting: str
    importance_target: str
    importance_bound: float | None

    @classmethod
    def label(cls) -> str:
        """Its name in figures; a method that inherits from another does not inherit that."""
        return vars(cls).get("title") or cls.__name__

    def __init__(self, args: Namespace) -> None:
        read_arguments(self, args)
        self._clusters: Path | None = getattr(args, "assignment_files_path", None)
        self._importance: Tensor | None = None
        if self.client_sampling is None:
            self.client_sampling = args.client_sampling = "systematic" if self.virtual_client_size else "uniform"
        if self.virtual_client_size and self.virtual_client_size % args.batch_size:
            raise UserError(
                f"--virtual_client_size {self.virtual_client_size} is not a multiple of --batch_size "
                f"{args.batch_size}; give one of whole batches"
            )

    def check_clients(self, n_clients: int) -> None:
        """UserError if the arguments do not fit a federation of so many clients."""
        if (self.clients_per_round or 0) > n_clients:
            raise UserError(
                f"--clients_per_round {self.clients_per_round} is more than the {n_clients} clients; see --n_clients"
            )

    def reads(self) -> list[Path]:
        """The files that the method's numbers depend on beside the run's data and models."""
        return []

    def prepare(self, data: TaskData, groups: np.ndarray, clients: Sequence[np.ndarray]) -> None:
        """Look, once and before anything else, at what the rounds will be about; all processes do.

        A method that does more than this one calls it, too: FedIR's weights are made here.

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
        """Whether the parameter or buffer of this name travels; what does not, each client keeps for itself."""
        return True

    def is_summed(self, name: str) -> bool:
        """Whether uploads of this name are added up as they are, where others are averaged by the turns' weights."""
        return False

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """What the server keeps beside the model, under names of its own; it is part of `server` from then on."""
        return {}

    def client_state(self, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a client keeps between rounds, at its first turn, which it starts from these tensors."""
        return {}

    def turns(
        self, clients: Sequence[np.ndarray], settings: LocalSettings, rng: np.random.Generator
    ) -> dict[int, ClientRound]:
        """Who takes part in a round, and with what."""
        sizes = [len(images) for images in clients]
        chosen = SAMPLERS[self.client_sampling](sizes, self.clients_per_round or len(clients), rng)
        everything = sum(sizes)
        turns = {}
        for i, weight in chosen.items():
            images, n_steps = clients[i], settings.steps(sizes[i])
            if virtual := self.virtual_client_size:
                # In the order that they have, so that all of a client's images are what they are without.
                images = images[np.sort(rng.choice(sizes[i], virtual, replace=sizes[i] < virtual))]
                n_steps = virtual // settings.batch_size
            turns[i] = ClientRound(images, n_steps, weight, sizes[i] / everything)
        return turns

    def start_round(
        self,
        model: nn.Module,
        turns: Mapping[int, ClientRound],
        server: Mapping[str, Tensor],
        states: ClientStates,
        total: Callable[[Tensor], Tensor],
    ) -> dict[str, float]:
        """What the server does before clients train; `total` adds a tensor up over all processes, which all call it.

        Returns what there is to tell of it, the same in all processes: further columns of the round's metrics.
        """
        return {}

    def notes(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Lines for the end of the run's report, made of the metrics of all rounds."""
        return []

    def batches(self, n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> np.ndarray:
        """Which of its own images a client sees at each step, (n_steps, B)."""
        return shuffled_epochs(n_images, batch_size, n_steps, rng)

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """What a client does in a round, its tensors holding `local.start`: it yields each phase to be trained.

        Clients that train side by side must yield the same phases.
        """
        yield Phase(local.turn.n_steps)

    def image_weights(self, positions: Tensor) -> Tensor | None:
        """What images (their positions, (B,)) count in their mean loss, 1 on average; None where all count the same.

        Images that the target has nothing of count nothing, all together too.
        """
        if self._importance is None:
            return None
        weights = self._importance[positions]
        return weights / weights.mean().clamp(min=_LEAST)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The scalar to minimise, from the loss per example (B,): their mean, by `image_weights`.

        A method that adds to the loss of an example hands the sum to this.
        """
        weights = self.image_weights(local.batch.positions)
        return (loss if weights is None else loss * weights).mean()

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Change the gradients of a step (of `local.parameters`) in place, before the optimiser takes them."""

    def upload(self, local: ClientContext) -> dict[str, Tensor]:
        """What a client sends when it is done: by default its model, as far as it travels."""
        return {name: tensor for name, tensor in local.tensors.items() if name in local.shared}

    def traffic(
        self, sent: int, server: Mapping[str, Tensor], shared: Collection[str], trained: Collection[str]
    ) -> tuple[int, int]:
        """Bytes that a client, whose upload has `sent`, sends and gets in a round.

        `shared` are the names that travel, of those that are `trained`. What the server keeps beside the model counts
        where clients read it.
        """
        return sent, sum(server[name].nbytes for name in shared)

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The server's next tensors, from its own and the weighted mean, or sum, of the uploads (float64).

        Clients whose loss was not finite have no part in either.
        """
        return dict(server) | {name: cast_like(value, server[name]) for name, value in mean.items()}

    def personal_model(self, start: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The model that a client is evaluated with, from what it would start a round from and what it keeps."""
        return start
