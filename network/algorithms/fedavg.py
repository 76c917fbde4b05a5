"""FedAvg, and the hooks in which other methods differ from it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.client import Local, LocalSettings, Phase, Turn
from network.sampling import SAMPLERS, shuffled_epochs
from network.state import ClientStates, in_kind_of
from utils.args import POSITIVE_INT
from utils.arguments import Argument, read_arguments
from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from datasets.task_data import TaskData


class FedAvg:
    """Federated averaging: McMahan et al. 2017 (arXiv 1602.05629), algorithm 1.

    | symbol | argument |
    |---|---|
    | C K, clients a round | `--clients_per_round` (all by default, as in arXiv 2503.14553) |
    | S_t, the clients of a round | `--client_sampling`, see `network/sampling.py` |
    | E, local work | `--local_epochs`, or `--sgd_per_epoch` steps times `--epoch_per_round` |
    | B, batch size | `--batch_size` |
    | eta | `--init_lr` |
    | N_VC of FedVC | `--virtual_client_size` |

    The server's model becomes the mean of the clients' models, weighted by their numbers of images. Buffers (batch
    norm's running statistics) are averaged like weights, as in the published code.

    With `--virtual_client_size` it is FedVC, which Hsu, Qi and Brown 2020 (arXiv 2003.08082, section 5.3) made for
    clients of different size, and so is every method that inherits it: a turn uses N_VC images, a random subset of the
    client's or, where it has fewer, draws with replacement, once, in N_VC / B steps. Clients are then drawn in
    proportion to their size (`--client_sampling systematic`, unless another is given), and all draws count the same.
    Large clients are drawn several times a round; two virtual clients of one would train on two subsets, but here it
    trains once and counts twice, which is as unbiased. With clients of N_VC images each that all take part, and one
    local epoch, it is FedAvg to the bit.

    `arguments` are the method's own; each becomes an attribute. `personal` says that clients have models of their own
    though all tensors travel.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "clients_per_round": Argument(None, "clients that take part in a round; default: all", POSITIVE_INT),
        "client_sampling": Argument(
            None, "how the clients of a round are chosen; default: uniform, or systematic with --virtual_client_size",
            choices=tuple(SAMPLERS),
        ),
        "virtual_client_size": Argument(
            None, "images of a client's turn, in place of its local epochs or steps; default: all it has", POSITIVE_INT
        ),
    }  # fmt: skip
    personal: ClassVar[bool] = False
    clients_per_round: int | None
    client_sampling: str
    virtual_client_size: int | None

    def __init__(self, args: Namespace) -> None:
        read_arguments(self, args)
        if self.client_sampling is None:
            self.client_sampling = args.client_sampling = "systematic" if self.virtual_client_size else "uniform"
        if self.virtual_client_size and self.virtual_client_size % args.batch_size:
            raise UserError(
                f"--virtual_client_size {self.virtual_client_size} is no multiple of --batch_size {args.batch_size}; "
                "give one of whole batches"
            )

    def check_clients(self, n_clients: int) -> None:
        """UserError if the arguments do not fit a federation of so many clients."""
        if (self.clients_per_round or 0) > n_clients:
            raise UserError(
                f"--clients_per_round {self.clients_per_round} is more than the {n_clients} clients; see --n_clients"
            )

    def prepare(self, data: TaskData, groups: np.ndarray, clients: Sequence[np.ndarray]) -> None:
        """Look, once and before anything else, at what the rounds will be about; all processes do.

        Args:
            data: the task's images, with their labels, table and positions held out.
            groups: (N,) the group of every image that the partition dealt, -1 for none.
            clients: each client's images, as positions in `data`.
        """

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
    ) -> dict[int, Turn]:  # fmt: skip
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
            turns[i] = Turn(images, n_steps, weight, sizes[i] / everything)
        return turns

    def start_round(
        self, model: nn.Module, turns: Mapping[int, Turn], server: Mapping[str, Tensor], states: ClientStates,
        total: Callable[[Tensor], Tensor],
    ) -> dict[str, float]:  # fmt: skip
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

    def local_update(self, local: Local) -> Iterator[Phase]:
        """What a client does in a round, its tensors holding `local.start`: it yields each phase to be trained.

        Clients that train side by side must yield the same phases.
        """
        yield Phase(local.turn.n_steps)

    def local_loss(self, loss: Tensor, local: Local) -> Tensor:
        """The scalar to minimise, from the loss an example (B,)."""
        return loss.mean()

    def correct(self, gradients: list[Tensor], local: Local) -> None:
        """Change the gradients of a step (of `local.parameters`) in place, before the optimiser takes them."""

    def upload(self, local: Local) -> dict[str, Tensor]:
        """What a client sends when it is done: by default its model, as far as it travels."""
        return {name: tensor for name, tensor in local.tensors.items() if name in local.shared}

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The server's next tensors, from its own and the weighted mean, or sum, of the uploads (float64).

        Clients whose loss was not finite have no part in either.
        """
        return dict(server) | {name: in_kind_of(value, server[name]) for name, value in mean.items()}

    def personal_model(self, start: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The model that a client is evaluated with, from what it would start a round from and what it keeps."""
        return start
