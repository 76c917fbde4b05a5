"""What a detector's output means: FCOS, Tian et al. 2019 (arXiv 1904.01355), as torchvision has it.

An output is (B, A, C + 8) for the A points of the pyramid's levels: the logits of the C classes; the distances from the
point to the left, top, right and bottom of its box, in units of the point's size; the logit of its centredness; and x,
y and size of the point itself in pixels, which are the same for every image. So the loss, and the boxes that the
model finds, follow from output and target alone, as in every other task.

A target is (B, M, 5): left, top, right, bottom in pixels and class of at most M boxes; `valid` (B, M) marks those
that exist. An image without boxes is all background, and counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.tasks import MOST_BOXES

# Of torchvision's FCOS, but for the threshold of scores, 0.2 there: what is below it is lost to average precision.
RADIUS, SCORE_THRESHOLD, CANDIDATES, NMS_THRESHOLD, MOST_FOUND = 1.5, 0.05, 1000, 0.6, 100
EXTRA = 8  # columns of an output beside the classes
DETECTION, BOX = 6, 5  # numbers of a detection (class, score, sides) and of a target box in a row of statistics
ROW = MOST_FOUND * DETECTION + MOST_BOXES * BOX
_NOBODY = -1.0  # the class of a place in a row that holds no box
_EPSILON = 1e-7  # torchvision's, in GIoU
# COCO's, in double precision: torchmetrics' own are rounded to single, which puts a recall of 1/10 on the other side.
_OVERLAPS, _RECALLS = np.linspace(0.5, 0.95, 10).tolist(), np.linspace(0, 1, 101).tolist()


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

    @property
    def anchors(self) -> Tensor:
        """The squares (…, A, 4) around the points that torchvision's box coder refers to."""
        half = self.size / 2
        return torch.stack([self.x - half, self.y - half, self.x + half, self.y + half], dim=-1)

    @property
    def boxes(self) -> Tensor:
        """The predicted boxes (…, A, 4) in pixels."""
        from torchvision.models.detection._utils import BoxLinearCoder

        return BoxLinearCoder(normalize_by_size=True).decode(self.distances, self.anchors)


@dataclass(frozen=True)
class Matched:
    """What each point should predict: whether it is of an object (…, A), and if so its box (…, A, 4) and class (…, A).

    `centredness` (…, A) is 1 in the middle of the box and 0 at its border; 0 for points of no object.
    """

    foreground: Tensor
    boxes: Tensor
    classes: Tensor
    centredness: Tensor


def match(points: Points, target: Tensor, valid: Tensor) -> Matched:
    """The box of each point, as torchvision's `FCOS.compute_loss` chooses it, on padded boxes.

    A point belongs to the smallest of the boxes that it lies in, near the box's centre (within `RADIUS` times the
    point's size), and whose farthest side is 4 to 8 sizes away; less at the finest level and more at the coarsest.
    """
    left, top, right, bottom, _ = target.unsqueeze(-3).unbind(-1)  # (…, 1, M), against points (…, A, 1)
    x, y, size = (each.unsqueeze(-1) for each in (points.x, points.y, points.size))
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
    return Matched(foreground, box[..., :4], box[..., 4], _centredness(points, box, foreground))


def _centredness(points: Points, box: Tensor, foreground: Tensor) -> Tensor:
    left, top, right, bottom = box[..., :4].unbind(-1)
    across, down = (
        torch.minimum(near, far) / torch.maximum(near, far)
        for near, far in ((points.x - left, right - points.x), (points.y - top, bottom - points.y))
    )
    return torch.where(foreground, across * down, 0.0).sqrt()


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
    union = sum((each[..., 2:] - each[..., :2]).prod(-1) for each in (boxes, others)) - inner
    return 1 - inner / (union + _EPSILON) + (outer - union) / (outer + _EPSILON)


def mean_detections(targets: Iterable[tuple[Tensor, Tensor]], n_classes: int, image_size: int) -> Tensor:
    """An output (1, A, C + 8) that ignores the image, from batches of targets and their validity.

    Each point predicts how often it belonged to an object of each class, and the mean box and centredness that it then
    had; a point that never did predicts the means over all points.
    """
    from torchvision.models.detection._utils import BoxLinearCoder

    points = pyramid_points(image_size)
    n_images, sums = 0, torch.zeros(len(points), n_classes + 6, dtype=torch.float64)
    for target, valid in targets:
        blank = target.new_zeros(len(target), len(points), n_classes + EXTRA)
        blank[..., -3:] = points.to(target.device)
        squares = Points.of(blank)
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
class Found:
    """The detections in one image, by falling score: classes (n,) int64, scores (n,) and boxes (n, 4) in pixels."""

    classes: Tensor
    scores: Tensor
    boxes: Tensor

    @property
    def rows(self) -> Tensor:
        """All in one, (n, 6): class, score, left, top, right and bottom."""
        return torch.cat([self.classes[:, None], self.scores[:, None], self.boxes], dim=1)


def detect(output: Tensor) -> list[Found]:
    """The detections of each image, as torchvision's `FCOS.postprocess_detections` makes them.

    A score is the root of class probability times centredness. Each level gives its candidates of highest score, boxes
    are cut at the image's border, and of those of a class that overlap the one of highest score stays.
    """
    return [_detect(Points.of(image)) for image in output]


def _detect(points: Points) -> Found:
    from torchvision.ops import batched_nms, clip_boxes_to_image

    scores = (points.logits.sigmoid() * points.centredness.sigmoid().unsqueeze(-1)).sqrt()
    scores = scores.where(scores > SCORE_THRESHOLD, 0.0)
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
    height, width = (int(each[finest].max() + points.size.amin()) for each in (points.y, points.x))
    boxes = clip_boxes_to_image(points.boxes[which], (height, width))
    chosen = batched_nms(boxes, scores[which, of_class], of_class, NMS_THRESHOLD)[:MOST_FOUND]
    return Found(of_class[chosen], scores[which, of_class][chosen], boxes[chosen])


def detection_rows(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """What `average_precision` needs of each image, (B, ROW): its detections, then its true boxes."""
    rows = torch.full((len(output), ROW), _NOBODY, device=output.device)
    found, there = rows.split([MOST_FOUND * DETECTION, MOST_BOXES * BOX], dim=1)
    there.view(-1, MOST_BOXES, BOX)[:, : target.shape[1]] = target.where(valid[..., None], _NOBODY)
    for row, each in zip(found.unflatten(1, (MOST_FOUND, DETECTION)), detect(output), strict=True):
        row[: len(each.classes)] = each.rows
    return rows


def average_precision(rows: Tensor) -> Tensor:
    """mAP at an IoU of 0.5, and the mean over those of 0.5 to 0.95 (COCO's), of images by their `detection_rows`.

    (2,) float32, means over the classes that have boxes; nan where no image has any.
    """
    from torchmetrics.detection import MeanAveragePrecision  # takes seconds to import

    found, there = rows.split([MOST_FOUND * DETECTION, MOST_BOXES * BOX], dim=1)
    found, there = found.unflatten(1, (MOST_FOUND, DETECTION)), there.unflatten(1, (MOST_BOXES, BOX))
    if not (there[..., -1] >= 0).any():
        return torch.full((2,), torch.nan)
    predicted, actual = [], []
    for detections, boxes in zip(found, there, strict=True):
        detections, boxes = detections[detections[:, 0] >= 0], boxes[boxes[:, -1] >= 0]
        scored = {"labels": detections[:, 0].long(), "scores": detections[:, 1], "boxes": detections[:, 2:]}
        predicted.append(scored)
        actual.append({"labels": boxes[:, -1].long(), "boxes": boxes[:, :4]})
    metric = MeanAveragePrecision(iou_thresholds=_OVERLAPS, rec_thresholds=_RECALLS, backend="faster_coco_eval")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of images with more than a hundred detections, which there are none of
        metric.update(predicted, actual)
        values = metric.compute()
    return torch.stack([values["map_50"], values["map"]])
