"""Noise."""

from __future__ import annotations

import numpy as np

from network.attacks.attack import Change, Honest
from network.attacks.sign_flip import SignFlip


class Gaussian(SignFlip):
    """Attackers send Gaussian noise as long as their honest change, times `--attack_scale` (1).

    Papers give the noise a standard deviation (200 in arXiv 1703.02757, section 6); which one is large depends on the
    model, the learning rate and the number of steps. Noise as long as the change is as hard to tell by its length.
    """

    title = "Gaussian noise"

    def sent(self, own: Change, honest: Honest | None, rng: np.random.Generator) -> Change:
        """Noise in every number."""
        import torch

        noise = {
            name: torch.from_numpy(rng.standard_normal(tuple(tensor.shape))).to(tensor) for name, tensor in own.items()
        }
        lengths = [torch.stack(torch._foreach_norm(list(tensors.values()))).norm() for tensors in (own, noise)]
        factor = self.attack_scale * lengths[0] / lengths[1]
        return {name: factor * tensor for name, tensor in noise.items()}
