"""FedOpt: what FedAdam, FedYogi and FedAdagrad have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from network.algorithms.fedavg import FedAvg
from network.algorithms.fedavgm import BELOW_ONE
from network.engine.state import add_prefix, zeros
from utils.args import POSITIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor, nn


class FedOpt(FedAvg, ABC):
    """An adaptive optimiser at the server: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2.

    | symbol | argument |
    |---|---|
    | eta | `--server_lr` |
    | beta_1, beta_2 | `--beta1`, `--beta2` |
    | tau | `--tau` (0.001) |

    With Delta, the mean change of the clients' models: m <- beta_1 m + (1 - beta_1) Delta, v as the subclass defines
    it, and x <- x + eta m / (sqrt(v) + tau). As in the paper, v starts at tau^2 and nothing corrects the bias of the
    first rounds. Buffers are averaged.
    """

    server_lr: float = setting(0.01, "server's learning rate", POSITIVE)
    beta1: float = setting(0.9, "server's momentum", BELOW_ONE)
    tau: float = setting(1e-3, "degree of adaptivity", POSITIVE)

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v, from the present one and Delta^2."""

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """m and v of each parameter."""
        second = {name: zero + self.tau**2 for name, zero in zeros(model).items()}
        return add_prefix("first", zeros(model)) | add_prefix("second", second)

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move the parameters along m, scaled by v."""
        moved = dict(mean)
        for name, value in mean.items():
            if f"first.{name}" in server:
                change = value - server[name]
                m = self.beta1 * server[f"first.{name}"] + (1.0 - self.beta1) * change
                v = self.second_moment(server[f"second.{name}"].to(change.dtype), change.square())
                x = server[name] + self.server_lr * m / (v.sqrt() + self.tau)
                moved |= {f"first.{name}": m, f"second.{name}": v, name: x}
        return super().server_step(server, moved)
