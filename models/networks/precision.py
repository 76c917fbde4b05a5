"""Whether a model computes in bfloat16: only where the processor has the arithmetic for it."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from models.networks.task_model import TaskModel
from utils.errors import UserError


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers natively and not by way of float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and any(_cpu_has(feature) for feature in ("amx_tile", "avx512_bf16"))


def wants_bf16(precision: str, device: torch.device) -> bool:
    """Whether `--precision` means bfloat16 on this device.

    "auto" takes bfloat16 on GPUs that have it and never on a CPU, where a step gains a factor of 1.2 to 1.5 with matrix
    units (AMX) and hardly any without: the same command should not give other numbers for that. UserError if "bf16" is
    asked for and the device does not have it.
    """
    if precision == "bf16" and not has_bf16(device):
        raise UserError(f"--precision bf16: the {device.type} has no bfloat16 arithmetic; use --precision fp32")
    return precision == "bf16" or (precision == "auto" and device.type == "cuda" and has_bf16(device))


def set_precision(model: TaskModel, precision: str, device: torch.device) -> None:
    """Let the model's forward pass run under bfloat16 autocast, or not; its outputs are float32 in any case.

    UserError as by `wants_bf16`, or where the device would train this network wrongly.
    """
    bf16 = wants_bf16(precision, device)
    if bf16 and device.type == "cpu" and _strides_over_one_cell(model):
        raise UserError(
            "--precision bf16: PyTorch's gradients are wrong on CPUs where a network shrinks maps of one cell, as this "
            "one does; use --precision fp32 or a larger --image_size"
        )
    model.bf16 = bf16


def _strides_over_one_cell(model: TaskModel) -> bool:
    """Whether a strided convolution of several cells gets a map of one cell.

    In bfloat16 on CPUs its gradient holds memory that was never written (PyTorch 2.14).
    """
    seen: list[torch.Size] = []
    shapes = deepcopy(model).to("meta").eval()
    for module in shapes.modules():
        if isinstance(module, nn.Conv2d) and max(module.stride) > 1 and max(module.kernel_size) > 1:
            module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[-2:]))
    size = model.config.image_size
    shapes(torch.empty(1, model.task.in_channels, size, size, device="meta"))
    return torch.Size((1, 1)) in seen


def _cpu_has(feature: str) -> bool:
    # PyTorch has no public name for these checks; where a version lacks one, the feature counts as missing.
    return getattr(torch.cpu, f"_is_{feature}_supported", lambda: False)()
