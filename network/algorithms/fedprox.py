"""FedProx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class FedProx(FedAvg):
    """FedAvg with a proximal term: Li et al. 2020 (arXiv 1812.06127), algorithm 2.

    | symbol | argument |
    |---|---|
    | mu | `--mu` (0.01, the middle of the paper's 0.001 to 1) |

    Clients minimise F_k(w) + mu/2 |w - w_t|^2, where w_t is the server's model at the start of the round. The paper
    allows inexact local solutions; here, clients take a fixed number of optimiser steps. The term enters as its
    gradient, mu (w - w_t), which need not be computed by backpropagation.
    """

    mu: float = setting(0.01, "weight of the proximal term", NON_NEGATIVE)

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Add mu (w - w_t)."""
        local.pull(gradients, local.start, self.mu)
