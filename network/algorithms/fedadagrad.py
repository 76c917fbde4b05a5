"""FedAdagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.algorithms.fedavgm import BELOW_ONE
from network.algorithms.fedopt import FedOpt
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class FedAdagrad(FedOpt):
    """Adagrad at the server: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2; symbols as in `FedOpt`.

    v <- v + Delta^2. beta_1 is 0 unless given, since Adagrad as usually understood has no momentum.
    """

    beta1: float = setting(0.0, "server's momentum", BELOW_ONE)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The sum of all Delta^2."""
        return v + square
