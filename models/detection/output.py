"""What a detector finds, and how good that is; outputs and targets are those of `datasets/pyramid.py`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.classes import MOST_BOXES
from datasets.pyramid import BOX, Points, match, pyramid_points

# Of torchvision's FCOS, but for the threshold of scores, 0.2 there: what is below it is lost to average precision.
SCORE_THRESHOLD, CANDIDATES, NMS_THRESHOLD, MOST_FOUND = 0.05, 1000, 0.6, 100
DETECTION = 6  # numbers of a detection in a row of statistics: class, score, sides
ROW = MOST_FOUND * DETECTION + MOST_BOXES * BOX
_NOBODY = -1.0  # the class of a place in a row that holds no box
# COCO's, in double precision: torchmetrics' own are rounded to single, which puts a recall of 1/10 on the other side.
_OVERLAPS, _RECALLS = np.linspace(0.5, 0.95, 10).tolist(), np.linspace(0, 1, 101).tolist()


def mean_detections(targets: Iterable[tuple[Tensor, Tensor]], n_classes: int, image_size: int) -> Tensor:
    """An output (1, A, C + 8) that ignores the image, from batches of targets and their validity.

    Each point predicts how often it belonged to an object of each class, and the mean box and centredness that it then
    had; a point that never did predicts the means over all points.
    """
    from torchvision.models.detection._utils import BoxLinearCoder

    points = pyramid_points(image_size)
    n_images, sums = 0, torch.zeros(len(points), n_classes + 6, dtype=torch.float64)
    for target, valid in targets:
        squares = Points.alone(points.to(target.device).expand(len(target), -1, -1))
        matched = match(squares, target, valid)
        shown = F.one_hot(matched.classes.long().clamp(min=0), n_classes)
        distances = BoxLinearCoder(normalize_by_size=True).encode(squares.anchors, matched.boxes)
        ones = torch.ones_like(matched.centredness)[..., None]
        seen = torch.cat([shown, distances, matched.centredness[..., None], ones], dim=2)
        sums += torch.where(matched.foreground[..., None], seen, 0.0).sum(0, dtype=torch.float64).cpu()
        n_images += len(target)
    shown, means, often = sums.split([n_classes, 5, 1], dim=1)
    overall = means.sum(0) / often.sum().clamp(min=1)
    means = torch.where(often > 0, means / often.clamp(min=1), overall)
    means[:, 4:] = means[:, 4:].logit(eps=0.01)
    # Seen once more with torchvision's prior probability of a class, so that what never was stays possible.
    shares = (shown + 0.01) / (n_images + 1)
    return torch.cat([shares.logit(), means, points], dim=1)[None].float()


@dataclass(frozen=True)
class Detections:
    """The detections in one image, by falling score: classes (n,) int64, scores (n,) and boxes (n, 4) in pixels."""

    classes: Tensor
    scores: Tensor
    boxes: Tensor

    @property
    def rows(self) -> Tensor:
        """All in one, (n, 6): class, score, left, top, right and bottom."""
        return torch.cat([self.classes[:, None], self.scores[:, None], self.boxes], dim=1)


def detect(output: Tensor) -> list[Detections]:
    """The detections of each image, as torchvision's `FCOS.postprocess_detections` makes them.

    Each level gives its candidates of highest score, boxes
    are cut at the image's border, and of those of a class that overlap the one of highest score stays.
    """
    return [_detect(Points.of(image)) for image in output]


def _detect(points: Points) -> Detections:
    from torchvision.ops import batched_nms, clip_boxes_to_image

    scores = points.scores.where(points.scores > SCORE_THRESHOLD, 0.0)
    at, classes = [], []
    for size in points.size.unique():
        level = torch.where(points.size == size)[0]
        best = scores[level].flatten()
        best = best.topk(min(CANDIDATES, int((best > 0).sum()))).indices
        at.append(level[best // scores.shape[-1]])
        classes.append(best % scores.shape[-1])
    which, of_class = torch.cat(at), torch.cat(classes)
    finest = points.size == points.size.amin()
    # The points of the finest level begin at 0 and have their size for a step.
    height, width = (int(positions[finest].max() + points.size.amin()) for positions in (points.y, points.x))
    boxes = clip_boxes_to_image(points.boxes[which], (height, width))
    chosen = batched_nms(boxes, scores[which, of_class], of_class, NMS_THRESHOLD)[:MOST_FOUND]
    return Detections(of_class[chosen], scores[which, of_class][chosen], boxes[chosen])


def detection_rows(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """What `average_precision` needs of each image, (B, ROW): its detections, then its true boxes."""
    rows = torch.full((len(output), ROW), _NOBODY, device=output.device)
    predicted, there = rows.split([MOST_FOUND * DETECTION, MOST_BOXES * BOX], dim=1)
    there.view(-1, MOST_BOXES, BOX)[:, : target.shape[1]] = target.where(valid[..., None], _NOBODY)
    for row, detections in zip(predicted.unflatten(1, (MOST_FOUND, DETECTION)), detect(output), strict=True):
        row[: len(detections.classes)] = detections.rows
    return rows


def average_precision(rows: Tensor) -> Tensor:
    """mAP at an IoU of 0.5, and the mean over those of 0.5 to 0.95 (COCO's), of images by their `detection_rows`.

    (2,) float32, means over the classes that have boxes; nan where no image has any.
    """
    rows_found, there = rows.split([MOST_FOUND * DETECTION, MOST_BOXES * BOX], dim=1)
    rows_found, there = rows_found.unflatten(1, (MOST_FOUND, DETECTION)), there.unflatten(1, (MOST_BOXES, BOX))
    if not (there[..., -1] >= 0).any():
        return torch.full((2,), torch.nan)
    predicted, actual = [], []
    for detections, boxes in zip(rows_found, there, strict=True):
        detections, boxes = detections[detections[:, 0] >= 0], boxes[boxes[:, -1] >= 0]
        scored = {"labels": detections[:, 0].long(), "scores": detections[:, 1], "boxes": detections[:, 2:]}
        predicted.append(scored)
        actual.append({"labels": boxes[:, -1].long(), "boxes": boxes[:, :4]})
    return mean_precision(predicted, actual, "bbox")


def mean_precision(
    predicted: list[dict[str, Tensor]], actual: list[dict[str, Tensor]], shapes: Literal["bbox", "segm"]
) -> Tensor:
    """mAP at an IoU of 0.5, and the mean over those of 0.5 to 0.95, (2,): of boxes or masks in torchmetrics' form."""
    from torchmetrics.detection import MeanAveragePrecision  # takes seconds to import

    metric = MeanAveragePrecision("xyxy", shapes, _OVERLAPS, _RECALLS, backend="faster_coco_eval")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of images with more than a hundred detections, which there are none of
        metric.update(predicted, actual)
        values = metric.compute()
    return torch.stack([values["map_50"], values["map"]])
