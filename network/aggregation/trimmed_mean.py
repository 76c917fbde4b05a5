"""The coordinate-wise trimmed mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.aggregation.rule import CoordinateWise
from utils.args import number
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class TrimmedMean(CoordinateWise):
    """The mean of each number over clients without its extremes: Yin et al. 2018 (arXiv 1803.01498), definition 2.

    | symbol | argument |
    |---|---|
    | beta | `--trim_share` (0.2) |

    Of n clients, the beta n largest and the beta n smallest values are left out, rounded down. With 0 it is the mean in
    which every client counts the same.
    """

    title = "Trimmed mean"
    trim_share: float = setting(0.2, "share of values left out at either end", number(float, least=0, most=0.4999))

    def of(self, block: Tensor) -> Tensor:
        """The trimmed means (B,) of (n, B)."""
        n = len(block)
        cut = int(self.trim_share * n + 1e-9)  # 0.29 * 100 is a little less than 29
        return block.sort(dim=0).values[cut : n - cut].mean(dim=0)
