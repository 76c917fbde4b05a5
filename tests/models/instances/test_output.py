"""Grouping against a brute force and by hand; quality against pycocotools, torchmetrics and panopticapi's formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from datasets.classes import ClassSet
from datasets.instances import with_centres
from datasets.task_data import Batch
from datasets.tasks import TASKS
from losses import panoptic_deeplab
from models.detection.output import mean_precision
from models.instances.output import (
    LEAST_HEAT,
    ROW,
    Objects,
    group,
    mean_output,
    object_quality,
    object_rows,
    true_objects,
)
from tests.datasets.test_instances import random_ids

N_CLASSES, SIZE = 2, 32
TASK = TASKS["instances"].with_classes(ClassSet(("cat", "dog")))


def perfect(target: Tensor, sureness: float = 20.0) -> Tensor:
    """The output (B, 6, S, S) of a network that knows the target (B, 5, S, S)."""
    shown = torch.nn.functional.one_hot(target[:, 0].long(), N_CLASSES + 1).movedim(-1, 1)
    return torch.cat([sureness * shown, target[:, 2:]], dim=1)


def noisy(target: Tensor, seed: int = 0) -> Tensor:
    """The same with errors of all kinds."""
    generator = torch.Generator().manual_seed(seed)

    def noise(channels: int) -> Tensor:
        coarse = torch.randn(len(target), channels, 8, 8, generator=generator)
        return torch.nn.functional.interpolate(coarse, SIZE, mode="bilinear")

    output = perfect(target, 3.0)
    return output + torch.cat([noise(3) * 2, noise(1) * 0.15, noise(2) * 3], dim=1)


def apart(n: int, seed: int = 0) -> Tensor:
    """Targets of objects with centres of their own."""
    return with_centres(random_ids(n, SIZE, seed))


# Grouping


def brute_force(output: np.ndarray) -> tuple[np.ndarray, list[int], list[float]]:
    """Pixel by pixel; centres suppress those of the eight pixels around them."""
    logits, heat, across, down = output[:3], output[3], output[4], output[5]
    size = len(heat)
    centres = []
    for y in range(size):
        for x in range(size):
            around = heat[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            if heat[y, x] > LEAST_HEAT and heat[y, x] >= around.max():
                centres.append((-heat[y, x], y, x))
    centres.sort()
    shares = np.exp(logits - logits.max(0)) / np.exp(logits - logits.max(0)).sum(0)
    members: dict[int, list[tuple[int, int]]] = {}
    for y in range(size):
        for x in range(size):
            if logits[:, y, x].argmax() and centres:
                ways = [(y + down[y, x] - v) ** 2 + (x + across[y, x] - u) ** 2 for _, v, u in centres]
                members.setdefault(int(np.argmin(ways)), []).append((y, x))
    numbers, classes, scores = np.zeros((size, size), int), [], []
    for number, centre in enumerate(sorted(members), start=1):
        pixels = members[centre]
        votes = Counter(int(logits[:, y, x].argmax()) for y, x in pixels)
        label = max(sorted(votes), key=votes.__getitem__)
        for y, x in pixels:
            numbers[y, x] = number
        classes.append(label - 1)
        scores.append(min(1.0, -centres[centre][0]) * np.mean([shares[label, y, x] for y, x in pixels]))
    return numbers, classes, scores


@pytest.mark.parametrize("seed", range(3))
def test_grouping_is_that_of_a_brute_force(seed: int) -> None:
    output = noisy(apart(3, seed), seed)
    for image, objects in zip(output, group(output), strict=True):
        numbers, classes, scores = brute_force(image.double().numpy())
        assert len(classes) > 1 and objects.classes.tolist() == classes
        assert np.array_equal(objects.numbers, numbers)
        np.testing.assert_allclose(objects.scores, scores, rtol=1e-4)


@pytest.mark.parametrize(("size", "radius"), [(32, 1), (320, 1), (321, 2), (641, 3)])
def test_a_centre_suppresses_lower_ones_within_a_window_that_grows_with_the_image(size: int, radius: int) -> None:
    """Panoptic-DeepLab's window is of 7 pixels, 3 to each side, at 641 pixels."""
    for apart_by, n in ((radius, 1), (radius + 1, 2)):
        output = torch.zeros(1, 6, size, size)
        output[0, 1, 10, 10], output[0, 1, 10, 10 + apart_by] = 9.0, 9.0  # of a class
        output[0, 3, 10, 10], output[0, 3, 10, 10 + apart_by] = 0.9, 0.8
        assert len(group(output)[0].classes) == n


def test_two_objects_of_a_class_side_by_side_are_told_apart() -> None:
    ids = torch.zeros(1, 2, 16, 16)
    ids[0, :, 4:12, 0:8], ids[0, :, 4:12, 8:16] = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[[1.0]], [[2.0]]])
    [objects] = group(perfect(with_centres(ids)))
    assert objects.classes.tolist() == [0, 0]
    assert np.array_equal(objects.numbers > 0, ids[0, 1] > 0)
    assert objects.numbers[5, 0] == objects.numbers[11, 7] != objects.numbers[5, 8]


def test_nothing_is_found_without_a_centre_or_without_a_pixel() -> None:
    target = apart(1)
    without_centre, without_pixels = perfect(target), perfect(target)
    without_centre[:, 3] = LEAST_HEAT
    without_pixels[:, 0] = 50
    for output in (without_centre, without_pixels, torch.full_like(target[:, :1].expand(-1, 6, -1, -1), torch.nan)):
        [objects] = group(output)
        assert not objects.numbers.any() and not len(objects.classes) and not len(objects.scores)


def test_true_objects_are_those_of_the_map() -> None:
    [image, _, empty] = well_apart()
    there = true_objects(image)
    assert there.classes.tolist() == [1, 0] and there.scores.tolist() == [1, 1] and torch.equal(there.numbers, image[1])
    assert not len(true_objects(empty).classes)


# Quality


def quality(output: Tensor, target: Tensor, valid: Tensor | None = None) -> list[float]:
    valid = torch.ones_like(target[:, :1], dtype=torch.bool) if valid is None else valid
    rows = object_rows(output, target, valid)
    assert rows.shape == (len(output), ROW)
    return object_quality(rows).tolist()


def masks(objects: Objects) -> dict[str, Tensor]:
    numbers = torch.arange(1, len(objects.classes) + 1)
    return {
        "masks": objects.numbers == numbers[:, None, None],
        "labels": objects.classes,
        "scores": objects.scores,
    }


def true_masks(target: Tensor) -> dict[str, Tensor]:
    numbers = [number for number in target[1].unique().tolist() if number]
    found = torch.stack([target[1] == number for number in numbers]) if numbers else torch.zeros(0, SIZE, SIZE) > 0
    labels = [int(target[0][target[1] == number][0]) - 1 for number in numbers]
    return {"masks": found, "labels": torch.tensor(labels, dtype=torch.int64)}


def well_apart() -> Tensor:
    """Targets whose objects' centres are several pixels from each other."""
    ids = torch.zeros(3, 2, SIZE, SIZE)
    for image, corners in enumerate([[(2, 2), (20, 6)], [(1, 20), (10, 10), (22, 22)], []]):
        for number, (y, x) in enumerate(corners, start=1):
            ids[image, 0, y : y + 8, x : x + 7], ids[image, 1, y : y + 8, x : x + 7] = 1 + number % 2, number
    return with_centres(ids)


def test_perfect_maps_have_a_quality_of_1_and_empty_ones_of_0() -> None:
    target = well_apart()
    assert quality(perfect(target), target) == pytest.approx([1, 1, 1])
    assert quality(torch.zeros(3, 6, SIZE, SIZE), target) == [0, 0, 0]
    assert np.isnan(quality(perfect(target[2:]), target[2:])).all()


def panoptic_quality(pictures: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """panopticapi's `pq_compute_single_core` and `pq_average`, over things, with void in the true picture only.

    A picture is (found numbers, their classes, true numbers with -1 for void, their classes).
    """
    sums = {label: np.zeros(4) for label in range(N_CLASSES)}  # of IoU, true and false positives, false negatives
    for found, found_classes, true, true_classes in pictures:
        areas, true_areas = Counter(found.ravel()), Counter(true.ravel())
        pairs = Counter(zip(found.ravel(), true.ravel(), strict=True))
        matched, matched_true = set(), set()
        for (number, true_number), intersection in pairs.items():
            if number < 1 or true_number < 1 or found_classes[number - 1] != true_classes[true_number - 1]:
                continue
            union = areas[number] + true_areas[true_number] - intersection - pairs[number, -1]
            if intersection / union > 0.5:
                sums[found_classes[number - 1]] += (intersection / union, 1, 0, 0)
                matched.add(number), matched_true.add(true_number)
        for number, label in enumerate(true_classes, start=1):
            sums[label][3] += number in true_areas and number not in matched_true
        for number, label in enumerate(found_classes, start=1):
            sums[label][2] += number not in matched and pairs[number, -1] / areas[number] <= 0.5
    of_classes = [s[0] / (s[1] + s[2] / 2 + s[3] / 2) for s in sums.values() if s[1:].any()]
    return float(np.mean(of_classes))


def test_noisy_maps_have_the_quality_of_panopticapi() -> None:
    target = apart(12)
    valid = void(12)
    target, _ = TASK.decode(target[:, :2].to(torch.uint8), valid)
    output = noisy(target)
    pictures = []
    for objects, image, counts in zip(group(output), target, valid[:, 0], strict=True):
        classes = [
            int(image[0][image[1] == number][0]) - 1 if (image[1] == number).any() else 0
            for number in range(1, int(image[1].max()) + 1)
        ]
        true = image[1].int().where(counts, -1).numpy()
        pictures.append((objects.numbers.numpy(), objects.classes.tolist(), true, classes))
    found = quality(output, target, valid)
    assert found[0] == pytest.approx(panoptic_quality(pictures), abs=1e-6) and 0.2 < found[0] < 0.9


def void(n: int) -> Tensor:
    """Which pixels (n, 1, S, S) count: blocks are missing."""
    blocks = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(3)) > 0.25
    return blocks.repeat_interleave(SIZE // 4, 2).repeat_interleave(SIZE // 4, 3)


def test_noisy_maps_have_the_precision_of_their_masks() -> None:
    target = apart(12)
    output = noisy(target)
    expected = mean_precision([masks(each) for each in group(output)], [true_masks(each) for each in target], "segm")
    found = quality(output, target)
    assert found[1:] == pytest.approx(expected.tolist(), abs=1e-6)
    assert 0.1 < found[2] < found[1] < 0.9


def test_noisy_maps_have_the_precision_of_pycocotools() -> None:
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    encode = pytest.importorskip("pycocotools.mask").encode
    target = apart(12)
    output = noisy(target)

    def compressed(mask: Tensor) -> dict:
        return encode(np.asfortranarray(mask.numpy().astype(np.uint8)))

    truth = coco.COCO()
    annotations = [
        {"image_id": i, "category_id": int(label), "segmentation": compressed(mask), "area": int(mask.sum()),
         "bbox": [0, 0, 1, 1], "iscrowd": 0}
        for i, image in enumerate(target, start=1) for each in [true_masks(image)]
        for mask, label in zip(each["masks"], each["labels"], strict=True)
    ]  # fmt: skip
    truth.dataset = {
        "images": [{"id": i, "height": SIZE, "width": SIZE} for i in range(1, 13)],
        "categories": [{"id": k} for k in range(N_CLASSES)],
        "annotations": [each | {"id": number} for number, each in enumerate(annotations, start=1)],
    }
    truth.createIndex()
    results = [
        {"image_id": i, "category_id": int(label), "score": float(score), "segmentation": compressed(mask)}
        for i, objects in enumerate(group(output), start=1)
        for each in [masks(objects)]
        for mask, label, score in zip(each["masks"], each["labels"], each["scores"], strict=True)
    ]
    judged = evaluation.COCOeval(truth, truth.loadRes(results), "segm")
    judged.evaluate(), judged.accumulate(), judged.summarize()
    assert quality(output, target)[1:] == pytest.approx([judged.stats[1], judged.stats[0]], abs=1e-6)


def test_what_does_not_count_is_neither_missed_nor_a_false_alarm() -> None:
    target = well_apart()[:1]
    valid = torch.ones_like(target[:, :1], dtype=torch.bool)
    valid[:, :, :12] = False  # the first object lies there
    hidden, _ = TASK.decode(target[:, :2].to(torch.uint8), valid)
    assert quality(perfect(target), hidden, valid) == pytest.approx([1, 1, 1])  # the network still sees it
    nothing = torch.zeros_like(valid)
    blank, _ = TASK.decode(target[:, :2].to(torch.uint8), nothing)
    assert np.isnan(quality(perfect(target), blank, nothing)).all()


# Loss and constant baseline


def test_loss_is_that_of_the_paper() -> None:
    target = well_apart()
    valid = void(3)
    target, _ = TASK.decode(target[:, :2].to(torch.uint8), valid)
    output = noisy(target)
    for i, loss in enumerate(panoptic_deeplab(output, target, valid).tolist()):
        seen, objects = valid[i, 0].numpy(), (target[i, 1] > 0).numpy()
        of_class = output[i, :3].log_softmax(0).gather(0, target[i, :1].long())[0].numpy()
        squares = (output[i, 3] - target[i, 2]).square().numpy()
        ways = (output[i, 4:] - target[i, 3:]).abs().numpy()
        expected = -of_class[seen].mean() + 200 * squares[seen].mean()
        if objects.any():
            expected += 0.01 * (641 / SIZE) * ways[:, objects].mean()  # pixels of an image of 641
        assert loss == pytest.approx(float(expected), rel=1e-5)
    assert panoptic_deeplab(perfect(target), target, valid).max() < 1e-3


def test_trivial_predictor_says_what_is_usual_at_each_pixel() -> None:
    target = well_apart()
    valid = torch.ones_like(target[:, :1], dtype=torch.bool)
    batches = [Batch(torch.zeros(n), target[part], valid[part]) for n, part in ((2, slice(2)), (1, slice(2, 3)))]
    output = mean_output(batches, TASK)
    assert output.shape == (1, 6, SIZE, SIZE)
    classes = target[:, 0].long()
    shares = torch.stack([((classes == k).sum(0) + 1 / 3) / 4 for k in range(3)])
    torch.testing.assert_close(output[0, :3].exp(), shares)
    torch.testing.assert_close(output[0, 3], target[:, 2].mean(0))
    n = (target[:, 1] > 0).sum(0)
    torch.testing.assert_close(output[0, 4:], target[:, 3:].sum(0) / n.clamp(min=1), atol=1e-4, rtol=1e-4)
    guess = torch.zeros_like(output).expand(3, -1, -1, -1)
    assert (
        panoptic_deeplab(output.expand(3, -1, -1, -1), target, valid).mean()
        < panoptic_deeplab(guess, target, valid).mean()
    )
