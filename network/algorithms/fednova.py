"""FedNova."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.fedprox import FedProx
from network.engine.client import ClientContext
from network.engine.state import add_prefix, strip_prefix
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class FedNova(FedProx):
    """Normalised averaging: Wang et al. 2020 (arXiv 2007.07481), equations 3 and 6.

    | symbol | argument |
    |---|---|
    | tau_i, local steps | different by client with `--local_epochs` |
    | mu, of local proximal steps | `--mu` (0: none) |
    | rho, local momentum | `--momentum` |

    In FedAvg, a client that takes more steps has more influence than its images give it. Here clients send d_i, the
    change of their model divided by |a_i|_1, and the server sets x <- x + tau_eff sum_i p_i d_i with tau_eff =
    sum_i p_i |a_i|_1. a_i are the weights of the client's gradients in its change: 1 each for plain SGD, others under
    momentum or with the proximal term. |a_i|_1 is measured as the local optimiser's effective steps, so that it also
    holds for changing learning rates. (For proximal steps, the paper's code takes sum_i p_i tau_i for tau_eff.) Buffers
    are averaged.
    """

    mu: float = setting(0.0, "weight of the proximal term", NON_NEGATIVE)
    # It is positive, and turns the direction if it is not.
    left_alone: ClassVar[Collection[str]] = ("effective_steps",)

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Add mu (w - w_t), and the same term to what the effective local steps are measured by."""
        if self.mu:
            super().correct(gradients, local)
            local.effective_steps_gradient.add_(local.effective_steps, alpha=self.mu)

    def upload(self, local: ClientContext) -> dict[str, Tensor]:
        """d_i under "direction", |a_i|_1 as "effective_steps", and the buffers."""
        names = local.shared_parameters()
        ways = {name: (local.tensors[name] - local.start[name]) / local.effective_steps for name in names}
        buffers = {name: tensor for name, tensor in super().upload(local).items() if name not in ways}
        return buffers | add_prefix("direction", ways) | {"effective_steps": local.effective_steps}

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move by tau_eff times the mean direction."""
        ways = strip_prefix("direction", mean)
        moved = {name: value for name, value in mean.items() if name in server}
        moved |= {name: server[name] + mean["effective_steps"] * way for name, way in ways.items()}
        return super().server_step(server, moved)
