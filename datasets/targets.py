"""Targets as maps of numbers that can be averaged, whatever their kind."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.instances import CENTRES
from datasets.task_data import Batch
from datasets.tasks import GRID, Task


def countable(task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
    """The targets (B, C, …) as numbers, and which of them count, broadcastable to it.

    Ids become one number per class, 1 for the class of the pixel or image. Boxes become, per class, the share of each
    of 8 by 8 cells that they cover, at most 1; all of these count, since having no box is an answer, too. Maps of
    objects have one for the background and one for each class, the heat map, and for pixels of objects the way to the
    centre, as a share of the image's side.
    """
    if task.boxes:
        cover = _cover(batch.target.where(batch.valid[..., None], 0.0), batch.valid, batch.images.shape[-1], task)
        return cover, torch.ones_like(cover[:, :1], dtype=torch.bool)
    if task.instances:
        classes, numbers, heat, ways = batch.target.split([1, 1, 1, 2], dim=1)
        shown = F.one_hot(classes[:, 0].long(), task.out_channels - CENTRES).movedim(-1, 1)
        valid = batch.valid.expand_as(batch.target[:, :1])
        of_objects = (valid & (numbers > 0)).expand_as(ways)
        values = torch.cat([shown.float(), heat, ways / ways.shape[-1]], dim=1)
        return values, torch.cat([valid.expand(-1, shown.shape[1] + 1, -1, -1), of_objects], dim=1)
    if task.categorical:
        return F.one_hot(batch.target, task.out_channels).movedim(-1, 1), batch.valid[:, None]
    return batch.target, batch.valid


def _cover(boxes: Tensor, valid: Tensor, size: int, task: Task) -> Tensor:
    """(B, C, 8, 8) from boxes (B, M, 5) in a square of `size` pixels."""
    edges = torch.arange(GRID + 1, device=boxes.device) * (size / GRID)

    def overlap(low: Tensor, high: Tensor) -> Tensor:
        """The share of each cell, (B, M, 8), between two sides."""
        within = torch.minimum(high[..., None], edges[1:]) - torch.maximum(low[..., None], edges[:-1])
        return within.clamp(min=0) * (GRID / size)

    left, top, right, bottom, classes = boxes.unbind(-1)
    of_class = F.one_hot(classes.long(), task.out_channels) * valid[..., None]
    across, down = overlap(left, right), overlap(top, bottom)
    return torch.einsum("bmc,bmi,bmj->bcij", of_class.float(), down, across).clamp(max=1.0)
