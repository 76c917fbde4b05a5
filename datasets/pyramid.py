"""Boxes as dense targets: the points of a detector's pyramid, and which object each of them should predict.

Tian et al. 2019 (FCOS, arXiv 1904.01355), as torchvision has it. An output is (B, A, C + 8) for the A points of the
pyramid's levels: the logits of the C classes; the distances from the point to the left, top, right and bottom of its
box, in units of the point's size; the logit of its centredness; and x, y and size of the point itself in pixels, which
are the same for every image. So the loss, and the boxes that the model finds, follow from output and target alone, as
in every other task.

A target is (B, M, 5): left, top, right, bottom in pixels and class of at most M boxes; `valid` (B, M) marks those
that exist. An image without boxes is all background, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

EXTRA = 8  # columns of an output beside the classes
BOX = 5  # numbers of a target box
RADIUS = 1.5  # torchvision's, in sizes of a point
LEVELS = 5
_LARGE = 256  # pixels


def finest_stride(image_size: int) -> int:
    """The stride of the finest level: torchvision's 8, and 4 in small images, whose objects are a few pixels wide."""
    return 8 if image_size >= _LARGE else 4


def pyramid_points(image_size: int) -> Tensor:
    """The points of all levels, (A, 3): x, y and size in pixels, level after level and row after row.

    As the centres of torchvision's anchors they lie at the multiples of the level's stride; in small images that is
    less than the size at the coarsest levels.
    """
    points = []
    for size in (finest_stride(image_size) << level for level in range(LEVELS)):
        n = -(-image_size // size)
        at = torch.arange(n) * float(image_size // n)
        points.append(F.pad(torch.cartesian_prod(at, at).flip(1), (0, 1), value=size))
    return torch.cat(points)


@dataclass(frozen=True)
class Points:
    """An output by its parts: logits (…, A, C), distances (…, A, 4), centredness, x, y and size (…, A)."""

    logits: Tensor
    distances: Tensor
    centredness: Tensor
    x: Tensor
    y: Tensor
    size: Tensor

    @classmethod
    def of(cls, output: Tensor) -> Points:
        """Those of an output (…, A, C + 8)."""
        logits, distances, rest = output.split([output.shape[-1] - EXTRA, 4, EXTRA - 4], dim=-1)
        return cls(logits, distances, *rest.unbind(-1))

    @classmethod
    def alone(cls, points: Tensor) -> Points:
        """The points (…, A, 3) of `pyramid_points`, with nothing predicted."""
        return cls.of(F.pad(points, (EXTRA - 3, 0)))

    @property
    def anchors(self) -> Tensor:
        """The squares (…, A, 4) around the points that torchvision's box coder refers to."""
        half = self.size / 2
        return torch.stack([self.x - half, self.y - half, self.x + half, self.y + half], dim=-1)

    @property
    def scores(self) -> Tensor:
        """How surely each point shows each class (…, A, C): the root of its probability times the centredness."""
        return (self.logits.sigmoid() * self.centredness.sigmoid().unsqueeze(-1)).sqrt()

    @property
    def boxes(self) -> Tensor:
        """The predicted boxes (…, A, 4) in pixels."""
        from torchvision.models.detection._utils import BoxLinearCoder

        return BoxLinearCoder(normalize_by_size=True).decode(self.distances, self.anchors)


@dataclass(frozen=True)
class Matched:
    """What each point should predict: whether it is of an object (…, A), and if so its box (…, A, 4) and class (…, A).

    `centredness` (…, A) is 1 in the middle of the box and 0 at its border; 0 for points of no object. `which` (…, A) is
    the box's place among the M of its image.
    """

    foreground: Tensor
    boxes: Tensor
    classes: Tensor
    centredness: Tensor
    which: Tensor


def match(points: Points, target: Tensor, valid: Tensor) -> Matched:
    """The box of each point, as torchvision's `FCOS.compute_loss` chooses it, on padded boxes.

    A point belongs to the smallest of the boxes that it lies in, near the box's centre (within `RADIUS` times the
    point's size), and whose farthest side is 4 to 8 sizes away; less at the finest level and more at the coarsest.
    """
    left, top, right, bottom, _ = target.unsqueeze(-3).unbind(-1)  # (…, 1, M), against points (…, A, 1)
    x, y, size = (values.unsqueeze(-1) for values in (points.x, points.y, points.size))
    off_centre = torch.maximum((x - (left + right) / 2).abs(), (y - (top + bottom) / 2).abs())
    sides = torch.stack([x - left, y - top, right - x, bottom - y])
    farthest = sides.amax(0)
    lower = torch.where(size > size.amin(), 4 * size, 0.0)
    upper = torch.where(size < size.amax(), 8 * size, torch.inf)
    fits = (off_centre < RADIUS * size) & (sides.amin(0) > 0) & (farthest > lower) & (farthest < upper)
    # In single precision areas that differ by less than 8 are alike, there as here; of such boxes the first is taken.
    preference = (fits & valid.unsqueeze(-2)).float() * (1e8 - (right - left) * (bottom - top))
    best, which = preference.max(-1)
    foreground = best >= 1e-5
    box = target.gather(-2, which.unsqueeze(-1).expand(*which.shape, BOX))
    return Matched(foreground, box[..., :4], box[..., 4], _centredness(points, box, foreground), which)


def unlearnable(target: Tensor, image_size: int) -> Tensor:
    """Which of an image's boxes (M, 5) have no point that could learn them, (M,) bool: `match` gives them none.

    They are so small that they lie between the points, or each of their points belongs to a smaller box.
    """
    valid = torch.ones(1, len(target), dtype=torch.bool)
    matched = match(Points.alone(pyramid_points(image_size)[None]), target[None], valid)
    return ~torch.isin(torch.arange(len(target)), matched.which[matched.foreground])


def _centredness(points: Points, box: Tensor, foreground: Tensor) -> Tensor:
    left, top, right, bottom = box[..., :4].unbind(-1)
    across, down = (
        torch.minimum(near, far) / torch.maximum(near, far)
        for near, far in ((points.x - left, right - points.x), (points.y - top, bottom - points.y))
    )
    return torch.where(foreground, across * down, 0.0).sqrt()
