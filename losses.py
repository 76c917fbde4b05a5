"""The tasks' losses, one number per example.

Every loss takes the model's output, the decoded target and which pixels count, and returns a tensor (B,): the mean
over the example's own counted values, 0 for an example with nothing that counts. A loss per example, and not only
the batch's mean, is what reweighting federated methods need.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.tasks import get_task
from models.detection.output import fcos
from utils.registry import Registry

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_IGNORED = -100  # no class has this id


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of `values` (B, …) over each example's counted entries; `valid` broadcasts to it. Shape (B,)."""
    # where, not a product: an infinite value that does not count must not become NaN.
    counted, which = torch.where(valid, values, 0.0).flatten(1), valid.flatten(1)
    n_counted = which.sum(1) * (counted.shape[1] // which.shape[1])
    return counted.sum(1) / n_counted.clamp(min=1)


def l1(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Mean absolute error; output and target (B, C, H, W), valid (B, 1 or C, H, W)."""
    return masked_mean((output - target).abs(), valid)


def mse(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Mean squared error; shapes as for `l1`."""
    # Masked before it is squared: 0 times infinity would be NaN in the backward pass.
    return masked_mean(torch.where(valid, output - target, 0.0).square(), valid)


def cross_entropy(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Cross-entropy in nats of logits (B, C, …) for ids (B, …); ids that do not count are left out.

    All logits must be finite, even those that do not count: else their gradient is not 0.
    """
    target = target.where(valid, _IGNORED)
    if target.ndim == 1:  # one class per image: there is no mean to take
        return F.cross_entropy(output, target, ignore_index=_IGNORED, reduction="none")
    # A row of logits per pixel: where channels lie last in memory, as they do here, that is a view, and twice as fast.
    rows = output.movedim(1, -1).flatten(0, -2)
    errors = F.cross_entropy(rows, target.flatten(), ignore_index=_IGNORED, reduction="none")
    return masked_mean(errors.view_as(target), valid)


LOSSES: Registry[Loss] = {"l1": l1, "mse": mse, "cross_entropy": cross_entropy, "fcos": fcos}


def return_task_loss(task: str) -> Loss:
    """The loss of a task by the task's name; UserError if there is no such task."""
    return LOSSES[get_task(task).loss]
