"""What tests of networks share."""

from __future__ import annotations

from torch import nn


def n_parameters(module: nn.Module) -> int:
    """The number of a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())
