"""Images that are cut out and mirrored at random in training, with their targets, on the device, a whole batch at once.

What an image is cut out of is its frame, (left, top, width, height, mirrored) in pixels of the image: it may lie partly
outside, where images are black and no target counts. Frames are drawn on the CPU, each client's by a stream of its
own, and taken by PyTorch's `grid_sample`, one call for all images of a step: at 32 pixels in batches of 16 that took a
tenth of the time of kornia's transforms, and of torchvision's, which go image by image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from datasets.task_data import Batch
    from datasets.tasks import Task

_MARGIN = 8  # of crop_flip: an eighth of the side, the 4 pixels of 32 that are usual for CIFAR
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of torchvision's RandomResizedCrop


def _full_images(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """The image as it is, mirrored or not."""
    import numpy as np

    return np.column_stack([np.zeros((n, 2)), np.full((n, 2), size), rng.integers(2, size=n)])


def _shifted(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Moved by up to a margin to each side."""
    frames = _full_images(n, size, rng)
    margin = size // _MARGIN
    frames[:, :2] = rng.integers(-margin, margin + 1, size=(n, 2))
    return frames


def _resized(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """A part of random area and aspect ratio, the whole image where none of the tries fits into it."""
    import numpy as np

    frames = _full_images(n, size, rng)
    area = rng.uniform(*_AREA, (n, _TRIES)) * size**2
    ratio = np.exp(rng.uniform(np.log(_RATIO[0]), np.log(_RATIO[1]), (n, _TRIES)))
    sides = np.rint(np.sqrt(np.stack([area * ratio, area / ratio], axis=2)))
    fits = (sides.min(axis=2) > 0) & (sides.max(axis=2) <= size)
    first = np.arange(n), np.argmax(fits, axis=1)
    frames[:, 2:4] = np.where(fits[first][:, None], sides[first], size)
    frames[:, :2] = rng.integers(size + 1 - frames[:, 2:4].astype(int))
    return frames


# (images, their side, generator) -> frames (images, 5)
AUGMENTS: dict[str, Callable[[int, int, np.random.Generator], np.ndarray] | None] = {
    "none": None,
    "flip": _full_images,
    "crop_flip": _shifted,
    "resized_crop": _resized,
}


def augmented(batch: Batch, frames: Tensor, task: Task) -> Batch:
    """A batch as its frames (B, 5) show it, at the same size; images bilinearly, maps from the nearest pixel.

    Boxes are cut off at the frame, and count as long as a pixel of each side is left. Targets whose values know left
    from right are mirrored as the task says, lengths in pixels become those of the frame, and what follows from where
    objects lie is made anew.
    """
    import torch
    from torch.nn.functional import affine_grid, grid_sample

    from datasets.task_data import Batch

    frames, mirrored, size = frames[:, :4].float(), frames[:, 4] > 0, batch.images.shape[-1]
    scale, middle = frames[:, 2:] / size, (2 * frames[:, :2] + frames[:, 2:]) / size - 1
    scale = torch.stack([scale[:, 0].where(~mirrored, -scale[:, 0]), scale[:, 1]], dim=1)
    theta = torch.cat([torch.diag_embed(scale), middle[:, :, None]], dim=2)
    grid = affine_grid(theta, list(batch.images.shape), align_corners=False)
    inside = (grid.abs() < 1).all(dim=3)[:, None]
    images = grid_sample(batch.images, grid, padding_mode="border", align_corners=False) * inside
    images = images.contiguous(memory_format=torch.channels_last)
    if task.boxes:
        return Batch(images, *_moved_boxes(batch.target, batch.valid, frames, mirrored, size))
    if not task.dense:
        return Batch(images, batch.target, batch.valid)

    def nearest(maps: Tensor) -> Tensor:
        """Maps (B, C, S, S) or (B, S, S) as the frames show them, from the nearest pixel, in the same type."""
        channels = maps.unsqueeze(1) if maps.ndim == 3 else maps
        return grid_sample(channels.float(), grid, "nearest", align_corners=False).view_as(maps).to(maps.dtype)

    target = nearest(batch.target)
    if task.mirror is not None:
        target = task.mirror(target).where(mirrored.view(-1, 1, 1, 1), target)
    if task.remade is not None:
        target = task.remade(target)
    valid = nearest(batch.valid)
    if task.rescaled is not None:
        target, valid = task.rescaled(target, valid, size / frames[:, 2:])
    return Batch(images, target, valid)


def _moved_boxes(boxes: Tensor, valid: Tensor, frames: Tensor, mirrored: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Boxes (B, M, 5) within frames (B, 4), and which (B, M) count."""
    import torch

    corners = boxes[..., :4].unflatten(2, (2, 2))  # (B, M, first or second, x or y)
    corners = ((corners - frames[:, None, None, :2]) * (size / frames[:, None, None, 2:])).clamp(0, size)
    x, y = corners.unbind(dim=3)
    x = (size - x.flip(2)).where(mirrored[:, None, None], x)
    seen = ((x[..., 1] - x[..., 0]) >= 1) & ((y[..., 1] - y[..., 0]) >= 1)
    moved = torch.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1], boxes[..., 4]], dim=2)
    return moved.where(valid[..., None], boxes), valid & seen
