"""FedAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.algorithms.fedavgm import BELOW_ONE
from network.algorithms.fedopt import FedOpt
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class FedAdam(FedOpt):
    """Adam at the server: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2; symbols as in `FedOpt`.

    v <- beta_2 v + (1 - beta_2) Delta^2, with the paper's beta_1 = 0.9 and beta_2 = 0.99.
    """

    beta2: float = setting(0.99, "decay of the server's second moment", BELOW_ONE)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The running mean of Delta^2."""
        return self.beta2 * v + (1.0 - self.beta2) * square
