"""What tests of networks share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import nn


def n_parameters(module: nn.Module) -> int:
    """The number of a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def undrawn(build: Callable[[], nn.Module]) -> nn.Module:
    """A network in evaluation mode, for its shapes: all tensors are 0, as drawing them takes longer than using them."""
    with torch.device("meta"):
        network = build()
    network.to_empty(device="cpu")
    for tensor in chain(network.parameters(), network.buffers()):
        tensor.data.zero_()
    return network.eval()
