"""Manipulation of the inner product."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from network.attacks.attack import Attack, Change, Honest
from utils.args import POSITIVE
from utils.settings import setting


class IPM(Attack):
    """The opposite of the honest mean: Xie, Koyejo and Gupta 2019 (arXiv 1903.03936), section 4.

    | symbol | argument |
    |---|---|
    | epsilon | `--ipm_epsilon` (0.5) |

    All attackers send -epsilon times the mean of the changes of the round's honest clients, all of which they know. The
    mean over m attackers and n - m honest clients has the wrong direction where epsilon > (n - m) / m; a small epsilon
    is meant for robust rules, which take it for one of the honest clients' changes.
    """

    version: ClassVar[int] = 2
    knows: ClassVar[bool] = True
    ipm_epsilon: float = setting(0.5, "length of what is sent, in lengths of the honest mean", POSITIVE)

    def sent(self, own: Change, honest: Honest | None, rng: np.random.Generator) -> Change:
        """Minus epsilon times the honest mean."""
        assert honest
        return {name: -self.ipm_epsilon * honest.mean[name] for name in own}
