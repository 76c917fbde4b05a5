"""FedProx."""

from __future__ import annotations

from argparse import Namespace

import torch
from torch import Tensor

from network.algorithms.fedavg import FedAvg
from network.client import Local


class FedProx(FedAvg):
    """FedAvg with a proximal term: Li et al. 2020 (arXiv 1812.06127), algorithm 2.

    | symbol | argument |
    |---|---|
    | mu | `--mu` |

    Clients minimise F_k(w) + mu/2 |w - w_t|^2, w_t being the server's model at the start of the round. The paper
    lets the local solution be inexact; here it is a fixed number of SGD steps. The term enters by its gradient,
    mu (w - w_t), which spares a pass through it.
    """

    def __init__(self, args: Namespace) -> None:
        super().__init__(args)
        self.mu: float = args.mu

    def correct(self, gradients: list[Tensor], local: Local) -> None:
        """Add mu (w - w_t)."""
        start = [local.server[name] for name in local.parameters]
        drift = torch._foreach_sub([parameter.data for parameter in local.parameters.values()], start)
        torch._foreach_add_(gradients, drift, alpha=self.mu)
