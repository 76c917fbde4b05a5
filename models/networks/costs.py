"""What a model costs: parameters, operations, memory."""

from __future__ import annotations

import resource
import sys

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from datasets.task_data import TaskData
from models.networks.kept_outputs import full_model, kept_flops
from models.networks.parts import is_within


def forward_flops(model: nn.Module, data: TaskData) -> int:
    """Operations of the convolutions and matrix products of one image's forward pass, two for each multiplication.

    The model, on the data's device, is left in eval mode.
    """
    images = data.batch(torch.zeros(1, dtype=torch.int64)).images
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operation for a whole layer, which is not counted
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model.eval()(images)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return counter.get_total_flops()


def model_costs(model: nn.Module, data: TaskData, part: str) -> dict[str, int]:
    """Parameters, how many of them belong to the part that is trained, and forward MACs of one image.

    All are of the whole model, also where an encoder's outputs are kept.
    """
    sizes = {name: parameter.numel() for name, parameter in full_model(model).named_parameters()}
    return {
        "parameters": sum(sizes.values()),
        "parameters_trained": sum(size for name, size in sizes.items() if is_within(part, name)),
        "forward_macs": (forward_flops(model, data) + kept_flops(model)) // 2,
    }


def peak_memory(device: torch.device) -> dict[str, int | str]:
    """The most bytes that this process has held so far: on its GPU, or else in main memory; and where."""
    if device.type == "cuda":
        return {"peak_memory": torch.cuda.max_memory_allocated(device), "device": torch.cuda.get_device_name(device)}
    unit = 1 if sys.platform == "darwin" else 1024  # what the system counts in
    return {"peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "device": device.type}
