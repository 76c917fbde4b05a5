"""FedAMP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from network.algorithms.arguments import NON_NEGATIVE, Argument
from network.algorithms.fedavg import FedAvg
from network.client import Local, Phase, Turn
from network.state import ClientStates, in_kind_of, part, under
from utils.args import POSITIVE


class FedAMP(FedAvg):
    """Attentive message passing: Huang et al. 2021 (arXiv 2007.03797), algorithm 1.

    | symbol | argument |
    |---|---|
    | sigma, of A(x) = 1 - exp(-x / sigma) | `--sigma` |
    | alpha_k, lambda | `--alpha_k`, `--lam` |

    Before it trains, client i gets u_i = sum_j xi_ij w_j over all clients' models as they last were, with
    xi_ij = alpha_k A'(|w_i - w_j|^2) for j != i and xi_ii the rest; then it minimises F_i(w) + lambda / (2 alpha_k)
    |w - u_i|^2 from w_i on. Distances are between parameters; buffers are mixed with the same weights. Where the
    others' weights exceed (N - 1) / N together (alpha_k is then too large a step), they are scaled down to that: no
    client counts less in its own u_i than in a plain mean. There is no global model.

    Models are mixed one at a time, each read by the process that has it: |S| N models read and 2 |S| summed over the
    processes a round, three models in double precision of memory a process.
    """

    arguments: ClassVar[dict[str, Argument]] = FedAvg.arguments | {
        "sigma": Argument(1.0, "squared distance at which attention falls to 1/e", POSITIVE),
        "alpha_k": Argument(1.0, "step of the message passing", POSITIVE),
        "lam": Argument(1.0, "lambda, the pull on personal models", NON_NEGATIVE),
    }
    sigma: float
    alpha_k: float
    lam: float

    def is_shared(self, name: str) -> bool:
        """Nothing is averaged: every client keeps its whole model."""
        return False

    def start_round(
        self, model: nn.Module, turns: Mapping[int, Turn], server: Mapping[str, Tensor], states: ClientStates,
        total: Callable[[Tensor], Tensor],
    ) -> None:  # fmt: skip
        """Make u_i, in the state of each client of the round."""
        parameters = [name for name, _ in model.named_parameters()]
        names = [*parameters, *(name for name in server if name not in parameters)]
        sizes = [server[name].numel() for name in names]
        n_weights = sum(sizes[: len(parameters)])
        most = 1.0 - 1.0 / states.n_clients

        def model_of(client: int) -> Tensor:
            own = part("own", states.load(client))
            return torch.cat([own.get(name, server[name]).flatten() for name in names])

        for client in turns:
            at_home = client in states.own
            mine = total(model_of(client) if at_home else server[names[0]].new_zeros(sum(sizes)))
            others = mine.new_zeros(len(mine) + 1)  # their weighted sum, and behind it the sum of the weights
            for other in states.own:
                if other != client:
                    theirs = model_of(other).to(mine.dtype)
                    distance = (mine - theirs)[:n_weights].square().sum()
                    attention = self.alpha_k / self.sigma * torch.exp(-distance / self.sigma)
                    others += attention * torch.cat([theirs, theirs.new_ones(1)])
            others = total(others)
            if at_home:
                others *= (most / others[-1].clamp(min=1e-30)).clamp(max=1.0)
                mixed = (others[:-1] + (1.0 - others[-1]) * mine).split(sizes)
                cloud = {n: in_kind_of(u.view_as(server[n]), server[n]) for n, u in zip(names, mixed, strict=True)}
                states.save(client, states.load(client) | under("cloud", cloud))

    def local_update(self, local: Local) -> Iterator[Phase]:
        """Train towards u_i, which is not kept."""
        local.scratch = part("cloud", local.state)
        for name in local.scratch:
            del local.state[f"cloud.{name}"]
        yield from super().local_update(local)

    def correct(self, gradients: list[Tensor], local: Local) -> None:
        """Add lambda / alpha_k (w - u_i)."""
        local.pull(gradients, local.scratch, self.lam / self.alpha_k)
