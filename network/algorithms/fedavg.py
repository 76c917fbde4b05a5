"""FedAvg, and the hooks in which other methods differ from it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, nn

from network.client import Local


class FedAvg:
    """Federated averaging: McMahan et al. 2017 (arXiv 1602.05629), algorithm 1.

    | symbol | argument |
    |---|---|
    | C K, clients a round | `--clients_per_round` (all by default, as in arXiv 2503.14553) |
    | E, local work | `--sgd_per_epoch` steps times `--epoch_per_round` |
    | B, batch size | `--batch_size` |
    | eta | `--init_lr` |

    The server's model becomes the mean of the clients' models, weighted by their numbers of images. Buffers (batch
    norm's running statistics) are averaged like weights, as in the published code.
    """

    def __init__(self, args: Namespace) -> None:
        """Keep the method's own arguments; FedAvg has one."""
        self.clients_per_round: int | None = args.clients_per_round

    def client_state(self, model: nn.Module) -> dict[str, Tensor]:
        """What a client keeps between rounds, at its first turn."""
        return {}

    def is_shared(self, name: str) -> bool:
        """Whether the parameter or buffer of this name travels between clients and server."""
        return True

    def select(self, n_clients: int, rng: np.random.Generator) -> Sequence[int]:
        """The clients that take part in a round."""
        if self.clients_per_round is None or self.clients_per_round >= n_clients:
            return range(n_clients)
        return sorted(rng.choice(n_clients, self.clients_per_round, replace=False).tolist())

    def batches(self, n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Which of its own images a client sees at each step: epochs in random order, the last batch as it is."""
        per_epoch = range(0, n_images, batch_size)
        batches: list[np.ndarray] = []
        while len(batches) < n_steps:
            order = rng.permutation(n_images)
            batches += [order[start : start + batch_size] for start in per_epoch]
        return batches[:n_steps]

    def local_loss(self, loss: Tensor, local: Local) -> Tensor:
        """The scalar to minimise, from the loss an example (B,)."""
        return loss.mean()

    def correct(self, gradients: list[Tensor], local: Local) -> None:
        """Change the gradients of a step in place, before the optimiser takes them."""

    def upload(self, local: Local) -> dict[str, Tensor]:
        """What a client sends when it is done: by default its model."""
        return {name: tensor for name, tensor in local.tensors.items() if self.is_shared(name)}

    def weight(self, local: Local) -> float:
        """How much the client counts in the server's mean."""
        return float(local.n_images)

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The server's next tensors from its own and the weighted mean of the uploads (float64)."""
        new = dict(server)
        for name, value in mean.items():
            target = server[name].dtype
            new[name] = (value if target.is_floating_point else value.round()).to(target)
        return new
