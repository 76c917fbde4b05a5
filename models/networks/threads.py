"""How many threads compute a network on the CPU: few where there is little to share out.

Threads that share a step wait for each other after every operation. With little to compute that costs more than it
saves, and many times more where other processes use the cores as well: all wait for the one that has no core.

The number follows from the size of what is computed at once and is not measured. Sums are rounded otherwise with
another number of threads, so that with a measured one the same seed would give other numbers beside other work.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from datasets.task_data import TaskData
from models.networks.costs import forward_flops

# Operations of a forward pass for which a thread is worth the waiting for it. Two threads that sleep while they wait
# began to pay in training between 96 and 128 px of the built-in network in batches of 16: 0.6 and 1.0 billion.
_FLOPS_A_THREAD = 0.5e9


def threads_for(model: nn.Module, data: TaskData, n_images: int) -> int:
    """The number of threads for forward or training passes of so many of the data's images at once.

    One for every half billion operations of the forward pass's convolutions and matrix products, at least one, and at
    most as many as PyTorch would take: `OMP_NUM_THREADS`, or the cores. On a GPU the number stays as it is. The model,
    on the data's device, is left in eval mode.
    """
    if data.device.type != "cpu":
        return torch.get_num_threads()
    if _most() == 1:
        return 1
    return max(1, min(_most(), int(n_images * forward_flops(model, data) / _FLOPS_A_THREAD)))


def set_threads(model: nn.Module, data: TaskData, n_images: int) -> None:
    """Compute with that number from here on."""
    torch.set_num_threads(threads_for(model, data, n_images))


@cache
def _most() -> int:
    """What PyTorch takes by itself, as found at the first call."""
    return torch.get_num_threads()
