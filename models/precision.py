"""Whether a model computes in bfloat16: only where the processor has the arithmetic for it."""

from __future__ import annotations

import torch

from models.task_model import TaskModel
from utils.errors import UserError


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers natively and not by way of float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and any(_cpu_has(feature) for feature in ("amx_tile", "avx512_bf16"))


def set_precision(model: TaskModel, precision: str, device: torch.device) -> None:
    """Let the model's forward pass run under bfloat16 autocast, or not; its outputs are float32 in any case.

    "auto" takes bfloat16 on GPUs that have it and on processors with matrix units for it (AMX). Processors that have
    its vector instructions only (AVX-512) gain nothing on small networks, and 1.2 times at most on larger ones, so
    that they take it when asked to. UserError if "bf16" is asked for and the device does not have it.
    """
    if precision == "bf16" and not has_bf16(device):
        raise UserError(f"--precision bf16: the {device.type} has no bfloat16 arithmetic; use --precision fp32")
    wanted = has_bf16(device) if device.type == "cuda" else _cpu_has("amx_tile")
    model.bf16 = precision == "bf16" or (precision == "auto" and wanted)


def _cpu_has(feature: str) -> bool:
    # PyTorch has no public name for these checks; where a version lacks one, the feature counts as missing.
    return getattr(torch.cpu, f"_is_{feature}_supported", lambda: False)()
