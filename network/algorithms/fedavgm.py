"""FedAvgM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from network.algorithms.fedavg import FedAvg
from network.engine.state import add_prefix, zeros
from utils.args import POSITIVE, number
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor, nn

BELOW_ONE = number(float, least=0, most=0.9999)


class FedAvgM(FedAvg):
    """FedAvg with momentum at the server: Hsu et al. 2019 (arXiv 1909.06335), section 4.3.

    | symbol | argument |
    |---|---|
    | beta | `--beta1` (0.9) |
    | the server's learning rate | `--server_lr` (1) |

    With Delta, the mean change of the clients' models: v <- beta v + Delta, and w <- w + server_lr v. Buffers are
    averaged.
    """

    server_lr: float = setting(1.0, "server's learning rate", POSITIVE)
    beta1: float = setting(0.9, "server's momentum", BELOW_ONE)

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """The momentum of each parameter, initially 0."""
        return add_prefix("momentum", zeros(model))

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move the parameters along the momentum."""
        moved = dict(mean)
        for name, value in mean.items():
            if f"momentum.{name}" in server:
                momentum = self.beta1 * server[f"momentum.{name}"] + (value - server[name])
                moved |= {f"momentum.{name}": momentum, name: server[name] + self.server_lr * momentum}
        return super().server_step(server, moved)
