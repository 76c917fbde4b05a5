"""A little is enough."""

from __future__ import annotations

from statistics import NormalDist
from typing import ClassVar

import numpy as np

from network.attacks.attack import Attack, Change, Honest
from utils.args import number
from utils.settings import setting


class ALIE(Attack):
    """Changes within the honest clients' spread: Baruch et al. 2019 (arXiv 1902.06156), algorithm 3.

    | symbol | argument |
    |---|---|
    | z | `--alie_z` (z_max of the paper) |

    All attackers send mean - z std, number by number. Of n clients with m attackers, z_max is the quantile (n - m - s)
    / (n - m) of the normal distribution, with s = floor(n / 2 + 1) - m: s honest clients are farther from the mean, so
    that with them the attackers are a majority. With few attackers z_max is small, and 0 where s is half of the honest
    clients; then give z. In the paper, attackers estimate mean and spread from their own data; here they know those of
    all of the round's honest clients, the worst case.
    """

    version: ClassVar[int] = 2
    knows: ClassVar[bool] = True
    alie_z: float | None = setting(
        None, "standard deviations from the mean; default: the paper's, by the numbers of clients", number(float)
    )

    def sent(self, own: Change, honest: Honest | None, rng: np.random.Generator) -> Change:
        """mean - z std of the honest changes."""
        assert honest
        z = z_max(honest.n, honest.n_attackers) if self.alie_z is None else self.alie_z
        return {name: honest.mean[name] - z * honest.std[name] for name in own}


def z_max(n_honest: int, n_attackers: int) -> float:
    """The paper's z; 0 where its quantile is not between the mean and the farthest client."""
    n = n_honest + n_attackers
    supporters = n // 2 + 1 - n_attackers
    quantile = (n_honest - supporters) / n_honest if n_honest else 0.5
    return NormalDist().inv_cdf(quantile) if 0.5 <= quantile < 1 else 0.0
