"""Which objects a network finds, and how good that is; outputs and targets are those of `datasets/instances.py`.

An output is (B, C + 4, S, S): the logits of the background and the C classes, the heat map of the objects' centres, and
the way from each pixel to its object's centre, x and y in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.classes import MOST_BOXES
from datasets.instances import CENTRES
from datasets.targets import countable
from datasets.task_data import Batch
from datasets.tasks import Task
from models.detection.output import MOST_FOUND, mean_precision

LEAST_HEAT = 0.1  # of a centre: Panoptic-DeepLab's
_SUPPRESSED = 3 / 641  # of the side, around a centre where no other is: its window of 7 pixels
FOUND, THERE = 5, 2  # numbers of a found and of a true object in a row of statistics
ROW = MOST_FOUND * FOUND + MOST_BOXES * THERE
_NOBODY = -1.0  # the class of a place in a row that holds no object
_SAME = 0.5  # intersection over union above which two objects are one, in panoptic quality


@dataclass(frozen=True)
class Objects:
    """What is found in an image: the object's number of each pixel (S, S), 0 for none; and of object k + 1 its class
    (n,) int64, from 0, and its score (n,).
    """

    numbers: Tensor
    classes: Tensor
    scores: Tensor


def group(output: Tensor) -> list[Objects]:
    """The objects of each image (B, C + 4, S, S), as Panoptic-DeepLab groups pixels.

    Centres are the largest values of the heat map within a window, above `LEAST_HEAT` (at most `MOST_FOUND`, the
    largest). A pixel that is likelier of some class than of the background belongs to the centre nearest to where it
    points, the first of equally near ones. An object's class is that of most of its pixels, the first of equally common
    ones; its score is the heat at its centre times its pixels' mean probability of the class.
    """
    return [_group(image) for image in output]


def true_objects(target: Tensor) -> Objects:
    """The objects of a target (5, S, S), with scores of 1."""
    numbers = target[1].long()
    classes = _classes_of(target)[: int(numbers.max())]
    return Objects(numbers, classes, torch.ones_like(classes, dtype=target.dtype))


def _classes_of(target: Tensor) -> Tensor:
    """The classes (MOST_BOXES,) of the numbers from 1 on in a target (5, S, S), -1 for those that no object has."""
    numbers = target[1].long().flatten()
    return numbers.new_zeros(MOST_BOXES + 1).scatter_(0, numbers, target[0].long().flatten())[1:] - 1


def _group(output: Tensor) -> Objects:
    logits, heat, ways = output.split([len(output) - CENTRES, 1, CENTRES - 1])
    classes, size = logits.argmax(0), output.shape[-1]
    at = (classes > 0).nonzero()  # (p, 2), rows and columns
    centres, heights = _centres(heat[0], max(1, round(_SUPPRESSED * size)))
    numbers = torch.zeros_like(classes)
    if not len(at) or not len(centres):
        return Objects(numbers, at.new_zeros(0), heights[:0])
    rows, columns = at.T
    aims = at + ways.flip(0)[:, rows, columns].T
    nearest = (aims[:, None] - centres).square().sum(2).argmin(1)
    member = F.one_hot(nearest, len(centres)).T.to(logits.dtype)  # (centres, p)
    votes = member @ F.one_hot(classes[rows, columns], len(logits)).to(logits.dtype)
    of_class = votes.argmax(1)
    shares = (member @ logits.softmax(0)[:, rows, columns].T).gather(1, of_class[:, None])[:, 0]
    areas = member.sum(1)
    has_pixels = areas > 0
    place = has_pixels.cumsum(0)  # the number of those that have pixels
    numbers[rows, columns] = place[nearest]
    return Objects(
        numbers, of_class[has_pixels] - 1, (heights.clamp(max=1.0) * shares / areas.clamp(min=1))[has_pixels]
    )


def _centres(heat: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """Rows and columns (n, 2) of the centres in a heat map (S, S), and the heat there (n,), the largest first."""
    largest = F.max_pool2d(heat[None], 2 * radius + 1, stride=1, padding=radius)[0]
    at = ((heat == largest) & (heat > LEAST_HEAT)).nonzero()
    heights, order = heat[at[:, 0], at[:, 1]].sort(descending=True, stable=True)
    return at[order[:MOST_FOUND]], heights[:MOST_FOUND]


def mean_output(batches: Iterable[Batch], task: Task) -> Tensor:
    """An output (1, C + 4, S, S) that ignores the image: logarithms of the classes' shares, and mean heat and ways."""
    total = count = torch.zeros(1, dtype=torch.float64)
    for batch in batches:
        values, valid = countable(task, batch)
        total = total + values.where(valid, 0.0).cpu().sum(0, keepdim=True, dtype=torch.float64)
        count = count + valid.cpu().sum(0, keepdim=True)
    n_classes = task.out_channels - CENTRES
    # One observation shared among all classes keeps the loss of absent ones finite.
    logits = ((total[:, :n_classes] + 1.0 / n_classes) / (count[:, :n_classes] + 1.0)).log()
    heat, ways = (total / count.clamp(min=1))[:, n_classes:].split([1, CENTRES - 1], dim=1)
    return torch.cat([logits, heat, ways * total.shape[-1]], dim=1).float()


def object_rows(output: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """What `object_quality` needs of each image, (B, ROW): the found objects, then the true ones.

    Of a found object: class, score, area in pixels that count, the true object of its class that it overlaps most (in
    intersection over union), and the intersection. Objects do not overlap each other, so that no other can be matched
    above 1/2. Of a true object: class and area. Found objects of which more than half lies where nothing counts are
    left out, unless they match in the rest.
    """
    rows = [_row(*arguments) for arguments in zip(group(output), target, valid[:, 0], strict=True)]
    return torch.stack(rows).float()


def _row(objects: Objects, target: Tensor, valid: Tensor) -> Tensor:
    detections = objects.scores.new_full((MOST_FOUND, FOUND), _NOBODY, dtype=torch.float64)
    there = detections.new_full((MOST_BOXES, THERE), _NOBODY)
    true, of_true = target[1].long(), _classes_of(target)
    n_true = MOST_BOXES + 1
    pairs = (objects.numbers * n_true + true)[valid]
    overlaps = pairs.bincount(minlength=(MOST_FOUND + 1) * n_true).view(-1, n_true)
    areas, true_areas, both = overlaps.sum(1)[1:], overlaps.sum(0)[1:], overlaps[1:, 1:]
    shown = true_areas > 0
    there[shown] = torch.stack([of_true, true_areas], dim=1)[shown].double()
    n = len(objects.classes)
    unions = areas[:n, None] + true_areas - both[:n]
    alike = (objects.classes[:, None] == of_true) & shown
    share, match = torch.where(alike, both[:n] / unions.clamp(min=1), 0.0).max(1)
    full_areas = objects.numbers.flatten().bincount(minlength=n + 1)[1:]
    counts = (areas[:n] > 0) & ((2 * areas[:n] >= full_areas) | (share > _SAME))
    common = both[:n].gather(1, match[:, None])[:, 0].where(share > 0, 0)
    columns = [objects.classes, objects.scores, areas[:n], match, common]
    detections[:n] = torch.stack([column.double() for column in columns], dim=1).where(counts[:, None], _NOBODY)
    return torch.cat([detections.flatten(), there.flatten()])


def object_quality(rows: Tensor) -> Tensor:
    """Panoptic quality, mask mAP at an IoU of 0.5, and over those of 0.5 to 0.95, of images by their `object_rows`.

    (3,) float32. Panoptic quality (Kirillov et al. 2019, arXiv 1801.00868, equation 1) is the mean over the classes
    that are there or found, mAP over those that are there; nan where no image has any object.
    """
    from torchmetrics.detection import PanopticQuality  # takes seconds to import

    detections, there = rows.split([MOST_FOUND * FOUND, MOST_BOXES * THERE], dim=1)
    detections, there = detections.unflatten(1, (MOST_FOUND, FOUND)), there.unflatten(1, (MOST_BOXES, THERE))
    if not (there[..., 0] >= 0).any():
        return torch.full((3,), torch.nan)
    if not (detections[..., 0] >= 0).any():
        return torch.zeros(3)  # torchmetrics says -1 for masks then
    classes = torch.cat([kind[..., 0][kind[..., 0] >= 0] for kind in (detections, there)]).long().unique()
    panoptic = PanopticQuality((classes + 1).tolist(), [0], return_per_class=True)
    predicted, actual = [], []
    for detected, of_true in zip(detections, there, strict=True):
        picture = _picture(detected, of_true)
        colours = [
            torch.stack([F.pad(objects_[:, 0].long() + 1, (1, 0))[number], number], dim=1)
            for objects_, number in zip((detected, of_true), picture.T, strict=True)
        ]
        panoptic.update(*(colour[None] for colour in colours))
        predicted.append(_masks(detected, picture[:, 0]) | {"scores": detected[detected[:, 0] >= 0, 1]})
        actual.append(_masks(of_true, picture[:, 1]))
    of_things = panoptic.compute()[0, : len(classes)].mean()
    return torch.stack([of_things.float(), *mean_precision(predicted, actual, "segm")])


def _picture(detections: Tensor, there: Tensor) -> Tensor:
    """Pixels (n, 2) with the numbers of the found and the true object, 0 for none, whose counts are those of a row.

    Where they lie does not matter for any measure. What a found object shares with others than its match is apart.
    """
    seen, shown = detections[:, 0] >= 0, there[:, 0] >= 0
    areas, match, common = (column.long() * seen for column in detections[:, 2:].T)
    rest = (there[:, 1].long() * shown).scatter_add(0, match, -common)
    found_number, true_number = (torch.arange(1, len(rows) + 1) for rows in (detections, there))
    numbers = torch.cat(
        [
            torch.stack([found_number, match + 1], dim=1),
            F.pad(found_number[:, None], (0, 1)),
            F.pad(true_number[:, None], (1, 0)),
        ]
    )
    return numbers.repeat_interleave(torch.cat([common, areas - common, rest]), dim=0)


def _masks(objects: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """The classes of objects that exist, and their masks (k, 1, n) in a picture of n pixels."""
    exist = (objects[:, 0] >= 0).nonzero()[:, 0]
    return {"labels": objects[exist, 0].long(), "masks": (numbers == exist[:, None] + 1)[:, None]}
