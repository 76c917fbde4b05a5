"""FedYogi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.algorithms.fedadam import FedAdam

if TYPE_CHECKING:
    from torch import Tensor


class FedYogi(FedAdam):
    """Yogi at the server: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2; symbols as in `FedOpt`.

    v <- v - (1 - beta_2) Delta^2 sign(v - Delta^2), with FedAdam's beta_1 and beta_2: v falls slowly where Adam's
    would fall at once.
    """

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """A step towards Delta^2 of a size that does not depend on v."""
        return v - (1.0 - self.beta2) * square * (v - square).sign()
