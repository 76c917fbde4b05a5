"""The tasks' losses, one number per example.

Every loss takes the model's output, the decoded target and which pixels count. It returns a tensor (B,): the mean over
each example's counted values, 0 for an example where nothing counts. Methods that reweight images need a loss per
example, not only the batch's mean.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.instances import CENTRES
from datasets.pyramid import Points, match
from datasets.tasks import get_task

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_IGNORED = -100  # no class has this id
_EPSILON = 1e-7  # torchvision's, in GIoU
_NO_LENGTH = 1e-6  # pixels squared
_HEAT_WEIGHT, _WAY_WEIGHT = 200.0, 0.01 * 641  # Panoptic-DeepLab's; the second is per pixel there, and here per side


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


def endpoint(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Mean distance between the ends of vectors in pixels; output and target (B, 2, H, W), valid (B, 1, H, W)."""
    apart = torch.where(valid, output - target, 0.0)
    # Its gradient at 0 would not be finite without the small number, which adds a thousandth of a pixel at most.
    return masked_mean((apart.square().sum(1, keepdim=True) + _NO_LENGTH).sqrt(), valid)


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


def fcos(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Focal loss of the classes, generalised IoU of the boxes and cross-entropy of the centredness: (B,).

    That of an image is what torchvision's `FCOS.compute_loss` gives for it as a batch of its own: each sum over the
    points is divided by the number of the image's points that belong to an object, at least 1. torchvision divides by
    that of the whole batch instead, so that its loss is no mean over images (its RetinaNet divides as is done here).
    Works under `torch.func.vmap`: nothing is selected by a mask, and nothing waits for the device.
    """
    from torchvision.ops import sigmoid_focal_loss

    points = Points.of(output)
    matched = match(points, target, valid)
    numbers = torch.arange(points.logits.shape[-1], device=output.device)
    shown = (matched.classes.unsqueeze(-1) == numbers) & matched.foreground.unsqueeze(-1)
    focal = sigmoid_focal_loss(points.logits, shown.to(output.dtype)).sum((-2, -1))
    apart = torch.where(matched.foreground, _generalised_iou_loss(points.boxes, matched.boxes), 0.0)
    centred = F.binary_cross_entropy_with_logits(points.centredness, matched.centredness, reduction="none")
    of_objects = apart + torch.where(matched.foreground, centred, 0.0)
    return (focal + of_objects.sum(-1)) / matched.foreground.sum(-1).clamp(min=1)


def _generalised_iou_loss(boxes: Tensor, others: Tensor) -> Tensor:
    """1 - GIoU (arXiv 1902.09630) of boxes (…, 4): torchvision's, which assigns through a mask, by clamps."""
    low, high = torch.maximum(boxes, others), torch.minimum(boxes, others)
    inner = ((high[..., 2:] - low[..., :2]).clamp(min=0)).prod(-1)
    outer = (low[..., 2:] - high[..., :2]).prod(-1)
    union = sum((sides[..., 2:] - sides[..., :2]).prod(-1) for sides in (boxes, others)) - inner
    return 1 - inner / (union + _EPSILON) + (outer - union) / (outer + _EPSILON)


def panoptic_deeplab(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Cross-entropy of the classes, 200 times the heat map's MSE, and the L1 error of the ways to the centres: (B,).

    Cheng et al. 2020 (arXiv 1911.10194), equation 1, without its weights of small objects and hard pixels. Output
    (B, C + 4, S, S): logits of the background and the C classes, heat map, x and y; target (B, 5, S, S) as in
    `datasets/instances.py`. Ways count in pixels of objects, and in shares of the side: so their weight is the paper's
    in its images of 641 pixels, whatever the size.
    """
    logits, heat, ways = output.split([output.shape[1] - CENTRES, 1, CENTRES - 1], dim=1)
    classes, numbers, true_heat, true_ways = target.split([1, 1, 1, CENTRES - 1], dim=1)
    apart = (ways - true_ways).abs() / output.shape[-1]
    return (
        cross_entropy(logits, classes[:, 0].long(), valid[:, 0])
        + _HEAT_WEIGHT * mse(heat, true_heat, valid)
        + _WAY_WEIGHT * masked_mean(apart, valid & (numbers > 0))
    )


LOSSES: dict[str, Loss] = {
    "l1": l1, "mse": mse, "endpoint": endpoint, "cross_entropy": cross_entropy, "fcos": fcos,
    "panoptic_deeplab": panoptic_deeplab,
}  # fmt: skip


def return_task_loss(task: str) -> Loss:
    """The loss of a task by the task's name; UserError if there is no such task."""
    return LOSSES[get_task(task).loss]
