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

    As many clients of the round get their u_i together as three models in double precision for each fit into the memory
    that a process has for states, one at least. For them all, the process that has it reads each model once.
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

        nothing = server[names[0]].new_zeros(sum(sizes))
        at_once, everyone = max(1, states.memory // (3 * 8 * sum(sizes))), list(turns)
        for first in range(0, len(everyone), at_once):
            rows = {client: row for row, client in enumerate(everyone[first : first + at_once])}
            mine = total(torch.stack([model_of(client) if client in states.own else nothing for client in rows]))
            others = mine.new_zeros(len(rows), sum(sizes) + 1)  # weighted sums, and behind each the sum of its weights
            apart = torch.empty_like(mine)  # once for all: allocated for every model, it would fragment the memory
            for other in states.own:
                theirs = model_of(other).to(mine.dtype)
                distance = torch.sub(mine, theirs, out=apart)[:, :n_weights].square_().sum(1)
                attention = self.alpha_k / self.sigma * torch.exp(-distance / self.sigma)
                if other in rows:
                    attention[rows[other]] = 0.0
                others.addr_(attention, torch.cat([theirs, theirs.new_ones(1)]))
            others = total(others)
            others *= (most / others[:, -1:].clamp(min=1e-30)).clamp(max=1.0)
            mixed = mine.mul_(1.0 - others[:, -1:]).add_(others[:, :-1])
            for client, row in rows.items():
                if client in states.own:
                    parts = zip(names, mixed[row].split(sizes), strict=True)
                    cloud = {name: in_kind_of(u.view_as(server[name]), server[name]) for name, u in parts}
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
