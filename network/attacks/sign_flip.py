"""Changes with the opposite sign."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from network.attacks.attack import Attack, Change, Honest
from utils.args import POSITIVE
from utils.settings import setting


class SignFlip(Attack):
    """Attackers send the opposite of the change that honest training made of their model: Li et al. 2019.

    (RSA, arXiv 1811.03761, section 5.) `--attack_scale` (1) makes it longer.
    """

    version: ClassVar[int] = 2
    title = "sign flip"
    attack_scale: float = setting(1.0, "length of what is sent, in lengths of the honest change", POSITIVE)

    def sent(self, own: Change, honest: Honest | None, rng: np.random.Generator) -> Change:
        """Minus its own change."""
        return {name: -self.attack_scale * change for name, change in own.items()}
