"""Objects as maps: which one each pixel is of, where its centre is, and how that is stored.

A stored map is a picture of one of two kinds. One channel of 16 bits holds 1000 times the class's id and a number that
counts the class's objects, as Cityscapes and the built-in rooms have it; 0 is background. Three channels of 8 bits,
which sources of other layouts write (`datasets/sources/outlines.py`), hold the class's number plus 1, and the object's
number; class 0 is background and class 255 counts nowhere.

A target is (B, 5, S, S): the class, 0 for background and k + 1 for class k; the object's number in its image, 0 for
none; and what Panoptic-DeepLab (Cheng et al. 2020, arXiv 1911.10194) learns of objects: a heat map with a Gaussian at
each object's centre, and for pixels of objects the way to the centre, x and y, in pixels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datasets.classes import INSTANCES_OF_A_CLASS, MOST_BOXES, VOID, ClassSet

IDS, CENTRES = 2, 3  # channels of a target: class and number, and what follows from these; an output has the latter
MOST_CLASSES = VOID - 1  # of which one more than the highest number is not yet `VOID`
SIGMA = 1 / 64  # of the side: the Gaussians' standard deviation, which is 8 pixels of 641 in the paper


def classes_and_objects(values: np.ndarray, classes: ClassSet) -> np.ndarray:
    """A stored map (C, H, W) as (2, H, W) int32: class as in a target, or `VOID`, and a number that objects differ in.

    Ids of no known class are void. ValueError where the picture is of neither kind.
    """
    if values.dtype.kind not in "ui" or len(values) not in (1, 3) or values.min() < 0:
        raise ValueError(
            f"{len(values)} channels of {values.dtype} where a map of instances has 1 or 3 of whole numbers"
        )
    numbers = values.astype(np.int32)
    if len(numbers) == 3:
        of_class, objects = numbers[0], numbers[0] * (VOID + 1) + numbers[1]
        return np.stack([np.where(of_class > len(classes.names), VOID, of_class), objects])
    ids = numbers[0] // INSTANCES_OF_A_CLASS
    known = np.array(classes.ids or range(len(classes.names)))
    order = np.argsort(known)
    at = np.searchsorted(known[order], ids).clip(max=len(known) - 1)
    of_class = np.where(known[order][at] == ids, order[at] + 1, VOID)
    return np.stack([np.where(numbers[0] == 0, 0, of_class), numbers[0]]).astype(np.int32)


def numbered(maps: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Maps (2, S, S) of `classes_and_objects` as they are packed, uint8: class or `VOID`, and the numbers 1, 2, ….

    Void is what is not `inside` (S, S), and what exceeds the `MOST_BOXES` largest objects.
    """
    of_class, objects = np.where(inside, maps[0], VOID), maps[1]
    shown = (of_class > 0) & (of_class != VOID)
    _, which, areas = np.unique(objects[shown], return_inverse=True, return_counts=True)
    largest = np.sort(np.argsort(-areas, kind="stable")[:MOST_BOXES])
    number = np.zeros(len(areas), np.uint8)
    number[largest] = np.arange(1, len(largest) + 1)
    numbers = np.zeros(of_class.shape, np.uint8)
    numbers[shown] = number[which]
    of_class = np.where(shown & (numbers == 0), VOID, of_class)
    return np.stack([of_class.astype(np.uint8), numbers])


def with_centres(target: Tensor) -> Tensor:
    """Targets (B, 5, S, S) float32 from their ids, the first two channels of (B, 2 or 5, S, S).

    An object's centre is the mean of its pixels. The Gaussian stands on the pixel that holds it, where it is 1; where
    several reach, the largest counts. So both are those of what is shown, also of objects that a frame cuts.
    """
    ids = target[:, :IDS].float()
    size, numbers = target.shape[-1], target[:, 1].long().flatten(1)
    along = torch.arange(size, device=target.device)
    x, y = along.repeat(size), along.repeat_interleave(size)
    ones = torch.ones_like(numbers)
    # Whole numbers: their sums do not depend on the order in which a GPU adds.
    n, sum_x, sum_y = (
        ones.new_zeros(len(numbers), MOST_BOXES + 1).scatter_add_(1, numbers, channel.expand_as(numbers))
        for channel in (ones, x, y)
    )
    centre_x, centre_y = sum_x / n.clamp(min=1), sum_y / n.clamp(min=1)
    across, down = _bell(centre_x, along), _bell(centre_y, along)
    heat = torch.zeros_like(ids[:, :1])
    for number in range(1, int(numbers.max()) + 1):
        there = (n[:, number] > 0)[:, None, None]
        gaussian = down[:, number, :, None] * across[:, number, None, :] * there
        heat = torch.maximum(heat, gaussian[:, None])
    offsets = torch.stack([centre_x.gather(1, numbers) - x, centre_y.gather(1, numbers) - y], dim=1)
    offsets = (offsets * (numbers > 0)[:, None]).unflatten(2, (size, size))
    return torch.cat([ids, heat, offsets.float()], dim=1)


def _bell(centres: Tensor, along: Tensor) -> Tensor:
    """Gaussians (B, M, S) along a side around the pixels that hold the centres (B, M)."""
    apart = along - centres.round()[..., None]
    return torch.exp(-0.5 * (apart / (SIGMA * len(along))) ** 2)
