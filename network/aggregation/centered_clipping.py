"""Centered clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from network.aggregation.rule import ByDistance, distances_to
from utils.args import POSITIVE, POSITIVE_INT
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class CenteredClipping(ByDistance):
    """Changes clipped around the round before's aggregate: Karimireddy et al. 2021 (arXiv 2012.10333), section 4.

    | symbol | argument |
    |---|---|
    | tau | `--clip_radius` (the median distance of a round's changes to v_0) |
    | L, the number of iterations | `--clip_steps` (3) |

    From v_0, the aggregate of the round before (0 in the first): v <- v + 1/n sum_i (x_i - v) min(1, tau / |x_i - v|).
    In the paper, x_i are the momenta of workers that take one step; here they are the changes of clients' models. With
    a large tau it is the mean in which every client counts the same. A tau that fits depends on the learning rate and
    the number of steps, so that by default it follows the distances: half of the clients are then clipped in the first
    iteration. v_0 is 0 in buffers: a variance that goes on falling as it did would fall below 0.
    """

    version: ClassVar[int] = 2
    title = "Centered clipping"
    remembers: ClassVar[bool] = True
    clip_radius: float | None = setting(
        None, "radius beyond which changes are clipped; default: the median distance", POSITIVE
    )
    clip_steps: int = setting(3, "iterations of the clipping", POSITIVE_INT)

    def coefficients(self, products: Tensor) -> Tensor:
        """The weights of the changes and, last, of v_0."""
        weights = products.new_zeros(len(products))
        weights[-1] = 1.0
        start = distances_to(products, weights)[:-1]
        radius = self.clip_radius or float(start.quantile(0.5))
        for _ in range(self.clip_steps):
            distances = distances_to(products, weights)[:-1]
            # A distance of 0 is within any radius.
            factors = (radius / distances.clamp(min=1e-300)).clamp(max=1.0) / len(distances)
            weights = weights * (1.0 - factors.sum())
            weights[:-1] += factors
        return weights
