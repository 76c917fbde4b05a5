"""Loss and detections against torchvision's FCOS, average precision against pycocotools and by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOS
from torchvision.models.detection.image_list import ImageList

from datasets.classes import ClassSet
from datasets.pyramid import Points, match, pyramid_points, unlearnable
from datasets.targets import countable
from datasets.task_data import Batch
from datasets.tasks import TASKS
from losses import fcos
from models.detection.output import (
    NMS_THRESHOLD,
    SCORE_THRESHOLD,
    average_precision,
    detect,
    detection_rows,
    mean_detections,
)

SIZE, CLASSES, STRIDES = 128, 5, (8, 16, 32, 64, 128)
CORNERS = [(8.0, 8.0, 40.0, 30.0), (10.0, 12.0, 44.0, 34.0), (0.0, 0.0, 128.0, 128.0), (90.0, 20.0, 97.0, 26.0)]


def theirs() -> FCOS:
    """torchvision's detector, of which only loss and postprocessing are asked."""
    backbone = torch.nn.Identity()
    backbone.out_channels = 32
    return FCOS(backbone, CLASSES, score_thresh=SCORE_THRESHOLD, nms_thresh=NMS_THRESHOLD)


def anchors() -> Tensor:
    sizes = AnchorGenerator(tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES))
    maps = [torch.zeros(1, 1, SIZE // stride, SIZE // stride) for stride in STRIDES]
    return sizes(ImageList(torch.zeros(1, 3, SIZE, SIZE), [(SIZE, SIZE)]), maps)[0]


def random_output(n: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """What a network could give for n images, with torchvision's anchors as points."""
    generator = torch.Generator().manual_seed(seed)
    squares = anchors()
    values = scale * torch.randn(n, len(squares), CLASSES + 5, generator=generator)
    values[..., CLASSES:-1] = values[..., CLASSES:-1].abs() * 2
    where = torch.stack([(squares[:, :2] + squares[:, 2:]).T / 2], 0).flatten(0, 1).T
    constants = torch.cat([where, squares[:, 2:3] - squares[:, :1]], dim=1)
    return torch.cat([values, constants.expand(n, -1, -1)], dim=-1)


def random_boxes(n: int, seed: int) -> Tensor:
    """(n, 5) boxes of all sizes with classes."""
    rng = np.random.default_rng(seed)
    sides = np.exp(rng.uniform(np.log(4), np.log(SIZE), (n, 2)))
    low = rng.random((n, 2)) * (SIZE - sides)
    return torch.tensor(np.concatenate([low, low + sides, rng.integers(CLASSES, size=(n, 1))], 1), dtype=torch.float32)


def padded(boxes: Sequence[Tensor], width: int = 20) -> tuple[Tensor, Tensor]:
    target, valid = torch.full((len(boxes), width, 5), -1.0), torch.zeros(len(boxes), width, dtype=torch.bool)
    for row, which, each in zip(target, valid, boxes, strict=True):
        row[: len(each)], which[: len(each)] = each, True
    return target, valid


def heads(output: Tensor) -> dict[str, Tensor]:
    logits, distances, centredness, _ = output.split([CLASSES, 4, 1, 3], dim=-1)
    return {"cls_logits": logits, "bbox_regression": distances, "bbox_ctrness": centredness}


def their_loss(output: Tensor, boxes: Tensor) -> Tensor:
    """torchvision's loss of an image as a batch of its own."""
    target = [{"boxes": boxes[:, :4], "labels": boxes[:, 4].long()}]
    per_level = [(SIZE // stride) ** 2 for stride in STRIDES]
    return sum(theirs().compute_loss(target, heads(output[None]), [anchors()], per_level).values())


BOXES = [random_boxes(0, 0), random_boxes(1, 1), random_boxes(4, 2), random_boxes(20, 3), random_boxes(12, 4)]


def test_loss_of_each_image_is_torchvisions_with_that_image_alone_and_so_is_its_gradient() -> None:
    output = random_output(len(BOXES)).requires_grad_()
    expected = torch.stack([their_loss(image, boxes) for image, boxes in zip(output, BOXES, strict=True)])
    [wanted] = torch.autograd.grad(expected.sum(), output)
    losses = fcos(output, *padded(BOXES))
    [gradient] = torch.autograd.grad(losses.sum(), output)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    values = slice(0, CLASSES + 5)  # the constants are torchvision's own
    torch.testing.assert_close(gradient[..., values], wanted[..., values], rtol=1e-5, atol=1e-6)


def test_loss_under_vmap_is_the_same() -> None:
    output, (target, valid) = random_output(len(BOXES)), padded(BOXES)
    together = torch.func.vmap(fcos)(output, target, valid)
    torch.testing.assert_close(together, fcos(output, target, valid))


def test_padding_changes_nothing() -> None:
    output = random_output(len(BOXES))
    torch.testing.assert_close(fcos(output, *padded(BOXES, 20)), fcos(output, *padded(BOXES, 100)), rtol=0, atol=0)


def test_point_is_of_the_smallest_box_around_it() -> None:
    boxes = torch.tensor([[*corners, number] for number, corners in enumerate(CORNERS)])
    points = Points.of(random_output(1))
    found = match(points, *padded([boxes]))
    at = {(x, y, size): i for i, (x, y, size) in enumerate(random_output(1)[0, :, -3:].tolist())}
    for point, number in (((24, 24, 8), 0), ((32, 32, 8), 1), ((48, 48, 16), 2), ((96, 24, 8), 3)):
        assert found.foreground[0, at[point]] and found.classes[0, at[point]] == number
    # Too far from a centre; of a box that is too small for the level; and outside of all.
    for point in ((40, 16, 8), (32, 32, 32), (0, 120, 8)):
        assert not found.foreground[0, at[point]]
    # From (24, 24), the sides of (8, 8, 40, 30) are 16, 16, 16 and 6 away: sqrt(16 / 16 * 6 / 16).
    assert found.centredness[0, at[24, 24, 8]] == pytest.approx((6 / 16) ** 0.5)


def test_boxes_whose_class_changes_no_loss_are_unlearnable() -> None:
    lost, points = [], pyramid_points(SIZE)
    values = torch.rand(len(points), CLASSES + 5, generator=torch.Generator().manual_seed(0))
    output = torch.cat([values, points], dim=1)[None].double()  # in which no change is lost by rounding
    for seed in range(4):
        boxes = random_boxes(60, seed)
        valid = torch.ones(1, len(boxes), dtype=torch.bool)
        plain = fcos(output, boxes[None], valid)
        for number, is_lost in enumerate(unlearnable(boxes, SIZE).tolist()):
            other = boxes.clone()
            other[number, 4] = (other[number, 4] + 1) % CLASSES
            assert torch.equal(fcos(output, other[None], valid), plain) == is_lost
            lost.append(is_lost)
    assert 10 < sum(lost) < 230


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_detections_are_torchvisions(scale: float) -> None:
    output = random_output(3, seed=1, scale=scale)
    output[2, :, :CLASSES] = -20.0  # nothing is found
    per_level = [(SIZE // stride) ** 2 for stride in STRIDES]
    split = {name: list(values.split(per_level, dim=1)) for name, values in heads(output).items()}
    shapes = [(SIZE, SIZE)] * 3
    expected = theirs().postprocess_detections(split, [list(anchors().split(per_level))] * 3, shapes)
    for ours, wanted in zip(detect(output), expected, strict=True):
        torch.testing.assert_close(ours.scores, wanted["scores"])
        torch.testing.assert_close(ours.boxes, wanted["boxes"])
        assert torch.equal(ours.classes, wanted["labels"])
    assert len(expected[0]["labels"]) == 100 and not len(expected[2]["labels"])


def rows_of(found: Sequence[Tensor], boxes: Sequence[Tensor]) -> Tensor:
    """Rows of statistics for detections (n, 6) and boxes (m, 5)."""
    rows = detection_rows(random_output(len(boxes)), *padded(boxes))
    rows[:, :600] = -1
    for row, each in zip(rows, found, strict=True):
        row[: each.numel()] = each.flatten()
    return rows


def perfect(boxes: Tensor) -> Tensor:
    return torch.cat([boxes[:, 4:], torch.full((len(boxes), 1), 0.9), boxes[:, :4]], dim=1)


def test_perfect_detections_have_a_precision_of_1_and_none_have_0() -> None:
    assert average_precision(rows_of([perfect(b) for b in BOXES], BOXES)).tolist() == pytest.approx([1, 1])
    assert average_precision(rows_of([torch.zeros(0, 6)] * len(BOXES), BOXES)).tolist() == [0, 0]


def test_images_without_boxes_have_no_precision_of_their_own() -> None:
    false_alarm = perfect(BOXES[1])
    alone = average_precision(rows_of([false_alarm], [BOXES[0]]))
    assert alone.isnan().all()
    # Among others a false alarm counts: of two detections of one box's class the surer is wrong.
    both = rows_of([false_alarm, perfect(BOXES[1]) - torch.tensor([0, 0.1, 0, 0, 0, 0])], [BOXES[0], BOXES[1]])
    assert average_precision(both).tolist() == pytest.approx([0.5, 0.5])


def test_noisy_detections_have_the_precision_of_pycocotools() -> None:
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    rng = torch.Generator().manual_seed(0)
    found = []
    for boxes in BOXES:
        near = perfect(boxes.repeat(3, 1))
        near[:, 2:] += torch.randn(len(near), 4, generator=rng) * 2
        near[:, 1] = torch.rand(len(near), generator=rng)
        wrong = torch.rand(len(near), generator=rng) < 0.2
        near[:, 0] = torch.where(wrong, (near[:, 0] + 1) % CLASSES, near[:, 0])
        found.append(near[(near[:, 2] < near[:, 4]) & (near[:, 3] < near[:, 5])])
    values = average_precision(rows_of(found, BOXES))

    def box(corners: Tensor) -> list[float]:
        left, top, right, bottom = corners.tolist()
        return [left, top, right - left, bottom - top]

    truth, images = coco.COCO(), range(1, len(BOXES) + 1)
    annotations = [
        {
            "image_id": i,
            "category_id": int(b[4]),
            "bbox": box(b[:4]),
            "area": float((b[2:4] - b[:2]).prod()),
            "iscrowd": 0,
        }
        for i, boxes in zip(images, BOXES, strict=True)
        for b in boxes
    ]
    truth.dataset = {
        "images": [{"id": i} for i in images],
        "categories": [{"id": k} for k in range(CLASSES)],
        "annotations": [each | {"id": number} for number, each in enumerate(annotations, start=1)],
    }
    truth.createIndex()
    detected = truth.loadRes(
        [
            {"image_id": i, "category_id": int(d[0]), "score": float(d[1]), "bbox": box(d[2:])}
            for i, each in zip(images, found, strict=True)
            for d in each
        ]
    )
    judged = evaluation.COCOeval(truth, detected, "bbox")
    judged.evaluate(), judged.accumulate(), judged.summarize()
    assert values.tolist() == pytest.approx([judged.stats[1], judged.stats[0]], abs=1e-6)
    assert 0.2 < values[1] < values[0] < 0.95


def test_trivial_predictor_says_what_is_usual_at_each_point() -> None:
    target, valid = padded([BOXES[1], BOXES[1], BOXES[0], BOXES[1]])
    batches = [(target[:2], valid[:2]), (target[2:], valid[2:])]
    output = mean_detections(batches, CLASSES, SIZE)
    points = Points.of(output)
    matched = match(points, target[:1], valid[:1])
    seen, label = matched.foreground[0], int(BOXES[1][0, 4])
    assert seen.any()
    # Three of four images have the box, which is counted once more with a probability of 0.01.
    expected = torch.full((int(seen.sum()),), 3.01 / 5)
    torch.testing.assert_close(points.logits[0, seen, label].sigmoid(), expected)
    torch.testing.assert_close(points.logits[0, ~seen].sigmoid(), torch.full_like(points.logits[0, ~seen], 0.01 / 5))
    corners = BOXES[1][:, :4].expand(int(seen.sum()), 4)
    torch.testing.assert_close(points.boxes[0, seen], corners, rtol=1e-4, atol=1e-4)
    centred = matched.centredness[0, seen].clamp(0.01, 0.99)
    torch.testing.assert_close(points.centredness[0, seen].sigmoid(), centred, rtol=1e-4, atol=1e-5)
    # Where there never was an object it has the mean box, so that all is finite; and it beats a guess.
    guess = torch.cat([torch.zeros_like(output[..., :-3]), output[..., -3:]], dim=-1)
    losses, of_guess = (fcos(each.expand(4, -1, -1), target, valid) for each in (output, guess))
    assert losses.isfinite().all() and losses.mean() < of_guess.mean()
    assert mean_detections([(target[2:3], valid[2:3])], CLASSES, SIZE).isfinite().all()  # no box anywhere


def test_cover_of_boxes_is_that_of_their_pixels() -> None:
    task = TASKS["detection"].with_classes(ClassSet(tuple("abcde")))
    target, valid = padded(BOXES)
    target = target.round()
    batch = Batch(torch.zeros(len(BOXES), 3, SIZE, SIZE), target, valid)
    values, counted = countable(task, batch)
    assert values.shape == (len(BOXES), CLASSES, 8, 8) and counted.all()
    painted = np.zeros((len(BOXES), CLASSES, SIZE, SIZE))
    for picture, boxes, there in zip(painted, target, valid, strict=True):
        for left, top, right, bottom, label in boxes[there].int().tolist():
            picture[label, top:bottom, left:right] += 1
    cells = painted.reshape(len(BOXES), CLASSES, 8, 16, 8, 16).mean(axis=(3, 5))
    np.testing.assert_allclose(values, cells.clip(max=1.0), atol=1e-6)
