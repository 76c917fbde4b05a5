"""FedAdagrad."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.fedopt import FedOpt
from utils.arguments import Argument

if TYPE_CHECKING:
    from torch import Tensor


class FedAdagrad(FedOpt):
    """Adagrad at the server: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2; symbols as in `FedOpt`.

    v <- v + Delta^2. beta_1 is 0 unless given, since Adagrad as usually understood has no momentum.
    """

    arguments: ClassVar[dict[str, Argument]] = FedOpt.arguments | {
        "beta1": replace(FedOpt.arguments["beta1"], default=0.0)
    }

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The sum of all Delta^2."""
        return v + square
