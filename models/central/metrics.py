"""The tasks' metrics, from statistics of each image.

Every metric is computed in two steps: statistics per image (counts and sums of errors), and a formula on their sum
over a group of images. One pass over the images therefore serves every grouping of them (clients, held-out part,
the worst client), and several processes just concatenate what each has seen. A metric that is no function of sums,
as the average precision of detections is not, has its rows kept, and its formula takes those of a group whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from models.detection.output import ROW, average_precision, detection_rows
from models.instances.output import ROW as ROW_OF_OBJECTS
from models.instances.output import object_quality, object_rows

if TYPE_CHECKING:
    from datasets.tasks import Task

EDGE_THRESHOLD = 0.2  # of the strongest edge of an image, above which a pixel counts as an edge
_ANGLES = (11.25, 22.5, 30.0)
_ANGLE_STEPS = 360  # of the histogram that the median angle is read from, so half a degree each
_SSIM_WINDOW = 11  # pixels, the width of torchmetrics' Gaussian window


@dataclass(frozen=True)
class Metric:
    """Named values of one kind.

    `statistics(output, target, valid)` gives (B, k) with k = `width`, or `width` times the classes if `per_class`;
    `finish` maps sums (..., k) to values (..., len(names)), nan where nothing was counted. Where rows are `kept`, it
    maps those of one group of images, (n, k), to (len(names),) instead. Of the values called `errors` less is better.
    """

    names: tuple[str, ...]
    statistics: Callable[[Tensor, Tensor, Tensor], Tensor]
    finish: Callable[[Tensor], Tensor]
    width: int = 2
    per_class: bool = False
    is_kept: bool = False
    errors: tuple[str, ...] = ()

    def of_groups(self, rows: Tensor, groups: Sequence[Tensor]) -> Tensor:
        """The values (len(groups), len(names)) float64 of groups of the rows (N, k) of `statistics`."""
        if self.is_kept:
            return torch.stack([self.finish(rows[group]).double() for group in groups])
        return self.finish(_sums_of(rows, groups))


def _sums_of(rows: Tensor, groups: Sequence[Tensor]) -> Tensor:
    """Sums (len(groups), k) float64 of groups of rows (N, k)."""
    return torch.stack([rows[group].double().sum(0) for group in groups])


def _counted_sums(valid: Tensor, *values: Tensor) -> Tensor:
    """Sums over each image's counted pixels of the values, (B, C, H, W) each, and their number: (B, n + 1)."""
    weight = valid.expand_as(values[0]).flatten(1)
    sums = [torch.where(weight, value.flatten(1).float(), 0.0).sum(1) for value in values]
    return torch.stack([*sums, weight.sum(1).float()], dim=1)


def _ratios(sums: Tensor) -> Tensor:
    """All columns but the last over the last."""
    return sums[..., :-1] / sums[..., -1:]


def _absolute(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    return _counted_sums(valid, (output - target).abs())


def _squared(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    return _counted_sums(valid, (output - target).square())


def _relative(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    return _counted_sums(valid & (target > 0), (output - target).abs() / target.clamp(min=1e-6))


def _within_quarter(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    low, high = target / 1.25, target * 1.25
    return _counted_sums(valid, (output > low) & (output < high))


def _angles(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Sum of the angles in degrees, how many are below the thresholds, their number, and a histogram of them."""
    output = output.float()
    # On a CPU `cosine_similarity` takes fifty times as long as these sums, more than the model itself.
    lengths = (output.square().sum(1) * target.square().sum(1)).clamp(min=1e-12)
    cosine = ((output * target).sum(1) * lengths.rsqrt()).clamp(-1.0, 1.0)
    angle = torch.rad2deg(torch.acos(cosine))[:, None]
    sums = _counted_sums(valid, angle, *(angle < limit for limit in _ANGLES))
    steps = angle.nan_to_num(nan=180.0).flatten(1) * (_ANGLE_STEPS / 180.0)  # nan of a diverged model counts as worst
    bins = steps.long().clamp(0, _ANGLE_STEPS - 1)
    histogram = torch.zeros(len(angle), _ANGLE_STEPS, device=angle.device)
    histogram.scatter_add_(1, bins, valid.flatten(1).float())
    return torch.cat([sums, histogram], dim=1)


def _finish_angles(sums: Tensor) -> Tensor:
    """Mean, median and shares below the thresholds.

    The median is the mean of the two middle angles (the same one, of an odd number), which are put into their steps of
    the histogram by their rank there: it is off by less than a step, and by little where a step has many.
    """
    ratios = _ratios(sums[..., :5])
    histogram = sums[..., 5:].contiguous()
    reached = histogram.cumsum(-1)
    n = reached[..., -1:]
    ranks = torch.cat([((n + 1) / 2).floor(), (n / 2).floor() + 1], dim=-1)
    at = torch.searchsorted(reached, ranks).clamp(max=_ANGLE_STEPS - 1)
    within = histogram.gather(-1, at)
    middle = at + (ranks - 0.5 - (reached.gather(-1, at) - within)) / within
    median = torch.where(n > 0, middle.mean(-1, keepdim=True) * (180.0 / _ANGLE_STEPS), torch.nan)
    return torch.cat([ratios[..., :1], median, ratios[..., 1:]], dim=-1)


def _flow(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Sums of the end-point errors, and of those that are more than 3 pixels and 5 % of the vector; their number."""
    errors = (output - target).norm(dim=1, keepdim=True)
    return _counted_sums(valid, errors, (errors > 3) & (errors > 0.05 * target.norm(dim=1, keepdim=True)))


def _ssim(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Sum of the structural similarity over the windows without masked pixels, and their number."""
    from torchmetrics.functional.image import structural_similarity_index_measure  # takes seconds to import

    # Both are 0 where nothing counts; where, not a product, because 0 times infinity would be nan. Windows that reach
    # there would find the two alike. What margins mirror lies in the window already.
    seen, true = (torch.where(valid, values.float(), 0.0) for values in (output, target))
    _, similarity = structural_similarity_index_measure(
        seen, true, data_range=1.0, reduction="none", return_full_image=True
    )
    masked = F.max_pool2d((~valid).float(), _SSIM_WINDOW, stride=1, padding=_SSIM_WINDOW // 2)
    return _counted_sums(masked == 0, similarity)


def _edge_hits(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    predicted, actual = output > EDGE_THRESHOLD, target > EDGE_THRESHOLD
    return _counted_sums(valid, predicted & actual, predicted & ~actual, ~predicted & actual)[:, :3]


def _f1(hits: Tensor, false_alarms: Tensor, misses: Tensor) -> Tensor:
    return 2 * hits / (2 * hits + false_alarms + misses)


def _class_hits(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """True positives, false positives and false negatives of each class: (B, classes * 3).

    They are counted in place: torchmetrics makes two one-hot codes of all pixels, each twice as large as the output.
    """
    n, classes = output.shape[:2]
    # One class more takes what does not count, so that no real id need be given up for it.
    ids = torch.where(valid, target, classes).reshape(n, -1)
    predicted = torch.where(valid, output.argmax(1), classes).reshape(n, -1)

    def count(classes_found: Tensor) -> Tensor:
        """How often each class is among the ids (B, pixels)."""
        counts = torch.zeros(n, classes + 1, dtype=torch.int64, device=classes_found.device)
        return counts.scatter_add_(1, classes_found, torch.ones_like(classes_found))[:, :classes]

    hits = count(torch.where(predicted == ids, ids, classes))
    return torch.stack([hits, count(predicted) - hits, count(ids) - hits], dim=2).flatten(1).float()


def _finish_classes(per_class: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Share of hits, and the mean of `per_class` over the classes that occur in the targets.

    A class that is predicted but does not occur has no part in the mean; what is taken for it counts as missed by its
    own class.
    """

    def finish(sums: Tensor) -> Tensor:
        """The share of hits, and the mean over the classes that occur."""
        hits, false_alarms, misses = sums.unflatten(-1, (-1, 3)).unbind(-1)
        support = hits + misses
        scores = torch.where(support > 0, per_class(hits, false_alarms, misses), torch.nan)
        return torch.stack([hits.sum(-1) / support.sum(-1), scores.nanmean(-1)], dim=-1)

    return finish


def _overlap(hits: Tensor, false_alarms: Tensor, misses: Tensor) -> Tensor:
    """Intersection over union; nan where both are empty."""
    return hits / (hits + false_alarms + misses)


def _finish_overlap(sums: Tensor) -> Tensor:
    """The two of `_finish_classes`, and the two by which segmentation is measured elsewhere.

    IoU weighted by how often each class occurs in the targets; and the mean over the classes that are in the targets or
    predicted, where a class that is only predicted counts as 0, as in FedCV (arXiv 2111.11066) and most of the field.
    """
    hits, false_alarms, misses = sums.unflatten(-1, (-1, 3)).unbind(-1)
    overlap, support = _overlap(hits, false_alarms, misses), hits + misses
    weighted = torch.where(support > 0, support * overlap, 0.0).sum(-1) / support.sum(-1)
    of_unions = torch.where(support.sum(-1) > 0, overlap.nanmean(-1), torch.nan)
    more = torch.stack([weighted, of_unions], dim=-1)
    return torch.cat([_finish_classes(_overlap)(sums), more], dim=-1)


def _finish_published_classes(sums: Tensor) -> Tensor:
    """Mean IoU over all classes but the first, as the published code: classes that do not occur at all count as 0."""
    hits, false_alarms, misses = sums.unflatten(-1, (-1, 3))[..., 1:, :].unbind(-1)
    overlap = (hits / (hits + false_alarms + misses).clamp(min=1.0)).mean(-1, keepdim=True)
    return torch.where(sums.sum(-1, keepdim=True) > 0, overlap, torch.nan)


# `miou` and `macro_f1` leave out classes that are predicted but absent, `miou_union` and `published_overlap` do not.
METRICS: dict[str, Metric] = {
    "mae": Metric(("mae",), _absolute, _ratios, errors=("mae",)),
    "rmse": Metric(("rmse",), _squared, lambda sums: _ratios(sums).sqrt(), errors=("rmse",)),
    "abs_rel": Metric(("abs_rel",), _relative, _ratios, errors=("abs_rel",)),
    "delta1": Metric(("delta1",), _within_quarter, _ratios),
    "angle": Metric(
        ("angle_mean", "angle_median", "within_11.25", "within_22.5", "within_30"),
        _angles,
        _finish_angles,
        5 + _ANGLE_STEPS,
        errors=("angle_mean", "angle_median"),
    ),
    # Of all pixels alike, where the loss is of images; outliers as in KITTI 2015 (Menze and Geiger, CVPR 2015).
    "flow": Metric(("epe", "outliers"), _flow, _ratios, 3, errors=("epe", "outliers")),
    "ssim": Metric(("ssim",), _ssim, _ratios),
    "edge_f1": Metric(("edge_f1",), _edge_hits, lambda sums: _f1(*sums.unbind(-1))[..., None], 3),
    "overlap": Metric(
        ("pixel_accuracy", "miou", "fwiou", "miou_union"),
        _class_hits,
        _finish_overlap,
        3,
        per_class=True,
    ),
    "published_overlap": Metric(("miou",), _class_hits, _finish_published_classes, 3, per_class=True),
    "average_precision": Metric(("map_50", "map"), detection_rows, average_precision, ROW, is_kept=True),
    "instances": Metric(("pq", "map_50", "map"), object_rows, object_quality, ROW_OF_OBJECTS, is_kept=True),
    "hits": Metric(("accuracy", "macro_f1"), _class_hits, _finish_classes(_f1), 3, per_class=True),
}


def metric_names(task: Task) -> list[str]:
    """The names of the task's values in a table: the loss first, then its metrics."""
    return ["loss", *(name for metric in task.metrics for name in METRICS[metric].names)]


def error_names(task: Task) -> set[str]:
    """Those of `metric_names(task)` of which less is better."""
    return {"loss", *(name for metric in task.metrics for name in METRICS[metric].errors)}


def widths(task: Task) -> list[int]:
    """The columns of `image_statistics`: those of the loss, then of each metric."""
    metrics = [METRICS[name] for name in task.metrics]
    return [2, *(metric.width * (task.out_channels if metric.per_class else 1) for metric in metrics)]


def image_statistics(task: Task, loss: Tensor, output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Statistics per image, (B, k) float32: loss, whether anything of it counts, then those of each metric."""
    counts = valid.flatten(1).any(1) if valid.ndim > 1 else valid
    counts = torch.ones_like(counts) if task.empty_counts else counts
    columns = [torch.stack([loss.float(), counts.float()], dim=1)]
    columns += [METRICS[name].statistics(output, target, valid) for name in task.metrics]
    return torch.cat(columns, dim=1)


def summarise(task: Task, statistics: Tensor, groups: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Loss and metrics of groups of images.

    Args:
        task: whose metrics they are.
        statistics: (N, k), from `image_statistics`.
        groups: the rows of each group.

    Returns:
        For each of `metric_names(task)`, an array (len(groups),), nan where a group has nothing to count.
    """
    at = [torch.as_tensor(group, dtype=torch.int64) for group in groups]
    loss, *parts = statistics.cpu().split(widths(task), dim=1)
    values = [_ratios(_sums_of(loss, at))]
    values += [METRICS[name].of_groups(part, at) for name, part in zip(task.metrics, parts, strict=True)]
    return dict(zip(metric_names(task), torch.cat(values, dim=1).T.numpy(), strict=True))
