"""The metrics against torchmetrics, scikit-learn and NumPy on the same counted values, for any grouping of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import correlate2d
from sklearn.metrics import f1_score
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import functional as by_torchmetrics

from datasets.tasks import TASKS, Task
from models.central.metrics import METRICS, image_statistics, metric_names, summarise

N, S, CLASSES = 6, 16, 5
ANGLES = ("angle_mean", "angle_median", "within_11.25", "within_22.5", "within_30")
SUMS = [
    name for name, metric in METRICS.items() if not metric.is_kept
]  # the others: tests/models/detection/test_output.py
Images = tuple[Tensor, Tensor, Tensor]


def task_with(name: str) -> Task:
    """A task that is measured by one metric only."""
    classes = METRICS[name].per_class
    return replace(TASKS["depth_euclidean"], metrics=(name,), out_channels=CLASSES if classes else 1)


def random_images(name: str, seed: int) -> Images:
    """Output, target and mask of `N` images, the last without anything that counts."""
    generator = torch.Generator().manual_seed(seed)
    size = () if name == "hits" else (S, S)
    valid = torch.rand(N, *size, generator=generator) < torch.rand(N, *[1] * len(size), generator=generator)
    valid[-1] = False
    if METRICS[name].per_class:
        target = torch.randint(CLASSES - 1, (N, *size), generator=generator)  # the last class does not occur
        return torch.randn(N, CLASSES, *size, generator=generator), target, valid
    if name == "ssim":  # masks in patches of a quarter of an image, which leave some windows untouched
        patches = torch.rand(N, 1, 2, 2, generator=generator) < 0.8
        patches[-1] = False
        valid = patches.repeat_interleave(S // 2, -1).repeat_interleave(S // 2, -2)[:, 0]
    channels = {"angle": 3, "flow": 2}.get(name, 1)
    target, noise = torch.randn(2, N, channels, S, S, generator=generator)
    if name == "flow":  # in pixels, of which some errors are outliers
        return 40 * target + 3 * noise, 40 * target, valid[:, None]
    if name != "angle":
        target = target.abs().clamp(max=1) * (target.abs() > 0.2)  # zeros, too
    return target + 0.4 * noise, target, valid[:, None]


def counted(images: Images) -> tuple[Tensor, Tensor]:
    """The values that count, pooled over images: (n, channels) each, or predicted and true ids (n,)."""
    output, target, valid = images
    if not target.is_floating_point():
        return output.argmax(1)[valid], target[valid]
    return output.movedim(1, -1)[valid[:, 0]], target.movedim(1, -1)[valid[:, 0]]


def angles_between(images: Images) -> np.ndarray:
    a, b = (values.double().numpy() for values in counted(images))
    return np.degrees(np.arccos((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)))


def angles(images: Images) -> list[float]:
    degrees = angles_between(images)
    return [degrees.mean(), np.median(degrees), *((degrees < limit).mean() for limit in (11.25, 22.5, 30))]


def end_points(images: Images) -> list[float]:
    """Pixel by pixel: the distance, and whether it is above 3 and above a twentieth of the vector's length."""
    pixels = zip(*(values.double().tolist() for values in counted(images)), strict=True)
    pairs = [(math.dist(found, true), math.hypot(*true)) for found, true in pixels]
    outliers = [error > 3 and error / length > 0.05 for error, length in pairs]
    return [sum(error for error, _ in pairs) / len(pairs), sum(outliers) / len(pairs)]


def relative(images: Images) -> list[float]:
    output, target = counted(images)
    return [float(by_torchmetrics.mean_absolute_percentage_error(output[target > 0], target[target > 0]))]


def within_quarter(images: Images) -> list[float]:
    output, target = (values.double().numpy() for values in counted(images))
    with np.errstate(divide="ignore", invalid="ignore"):
        return [((output > 0) & (np.maximum(output / target, target / output) < 1.25)).mean()]


def similarity(images: Images) -> list[float]:
    """SSIM as in Wang et al. 2004, Gaussian window of 11 x 11 pixels, mirrored margins.

    The mean over all windows, masks or not, that lie on counted pixels altogether; nan without any.
    """
    offsets = np.arange(-5, 6)
    window = np.exp(-np.add.outer(offsets**2, offsets**2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for output, target, valid in zip(*images, strict=True):
        x, y = (np.pad(values[0].double().numpy(), 5, mode="reflect") for values in (output, target))
        mx, my, xx, yy, xy = (correlate2d(each, window, "valid") for each in (x, y, x * x, y * y, x * y))
        vx, vy, cxy = xx - mx**2, yy - my**2, xy - mx * my
        map_ = (2 * mx * my + 1e-4) * (2 * cxy + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
        counted = valid[0].numpy()
        clean = [counted[max(0, i - 5) : i + 6, max(0, j - 5) : j + 6].all() for i, j in np.ndindex(counted.shape)]
        values.append(map_.ravel()[clean])
    values = np.concatenate(values)
    return [values.mean() if len(values) else np.nan]


def edges(images: Images) -> list[float]:
    output, target = (values.numpy().ravel() > 0.2 for values in counted(images))
    return [f1_score(target, output)]


def classes_by(score: Callable[..., Tensor]) -> Callable[[Images], list[float]]:
    """Share of hits, and `score` averaged over the classes that occur."""

    def of(images: Images) -> list[float]:
        predicted, target = counted(images)
        hits = by_torchmetrics.accuracy(predicted, target, task="multiclass", num_classes=CLASSES, average="micro")
        each = score(predicted, target, task="multiclass", num_classes=CLASSES, average="none")
        return [float(hits), float(each[target.unique()].mean())]

    return of


def overlaps(images: Images) -> list[float]:
    """Pixel accuracy and mean IoU of the classes that occur; weighted IoU, and that of the classes in any of both."""
    predicted, target = (ids.numpy() for ids in counted(images))
    unions = np.array([np.sum((predicted == k) | (target == k)) for k in range(CLASSES)])
    inner = np.array([np.sum((predicted == k) & (target == k)) for k in range(CLASSES)])
    each = inner[unions > 0] / unions[unions > 0]
    frequencies = np.bincount(target, minlength=CLASSES)[unions > 0] / len(target)
    return [*classes_by(by_torchmetrics.jaccard_index)(images), float(frequencies @ each), float(each.mean())]


def published_overlap(images: Images) -> list[float]:
    """Intersection over union of each class but the first, 0 for those that are in neither."""
    predicted, target = counted(images)
    overlaps = []
    for label in range(1, CLASSES):
        union = ((predicted == label) | (target == label)).sum()
        overlaps.append(float(((predicted == label) & (target == label)).sum() / union) if union else 0.0)
    return [np.mean(overlaps)]


REFERENCES: dict[str, Callable[[Images], list[float]]] = {
    "mae": lambda images: [float(by_torchmetrics.mean_absolute_error(*counted(images)))],
    "rmse": lambda images: [float(by_torchmetrics.mean_squared_error(*counted(images), squared=False))],
    "abs_rel": relative,
    "delta1": within_quarter,
    "angle": angles,
    "flow": end_points,
    "ssim": similarity,
    "edge_f1": edges,
    "overlap": overlaps,
    "published_overlap": published_overlap,
    "hits": classes_by(by_torchmetrics.f1_score),
}


def measure(name: str, images: Images, groups: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The loss, here the number of the image or 0 where nothing counts, and the metric of each group."""
    task = task_with(name)
    loss = torch.arange(float(len(images[0]))) * images[2].reshape(len(images[2]), -1).any(1)
    return summarise(task, image_statistics(task, loss, *images), groups)


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation makes."""

    bytes = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = op(*args, **kwargs or {})
        if isinstance(made, Tensor):
            self.bytes = max(self.bytes, made.nbytes)
        return made


@pytest.mark.parametrize("name", ["overlap", "hits"])
def test_hits_of_classes_are_those_of_torchmetrics(name: str) -> None:
    output, target, valid = random_images(name, 7)
    scores = by_torchmetrics.classification.multiclass_stat_scores(
        output.argmax(1).reshape(N, -1),
        torch.where(valid, target, CLASSES).reshape(N, -1),
        num_classes=CLASSES + 1,
        average="none",
        multidim_average="samplewise",
        ignore_index=CLASSES,
    )
    expected = scores[:, :CLASSES, [0, 1, 3]].flatten(1).float()
    assert expected.any() and torch.equal(METRICS[name].statistics(output, target, valid), expected)


def test_counting_classes_takes_less_than_the_output() -> None:
    images = torch.randn(2, 40, S, S), torch.randint(40, (2, S, S)), torch.ones(2, S, S, dtype=torch.bool)
    with Largest() as largest:
        METRICS["overlap"].statistics(*images)
    assert 0 < largest.bytes < images[0].nbytes


def test_every_metric_has_a_reference() -> None:
    assert list(REFERENCES) == SUMS


@pytest.mark.parametrize("name", SUMS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), owners=st.lists(st.integers(0, 1), min_size=N - 1, max_size=N - 1))
def test_group_equals_its_pooled_images(name: str, seed: int, owners: list[int]) -> None:
    images = random_images(name, seed)
    everyone = np.arange(N)
    groups = [everyone, *(np.flatnonzero(np.equal([*owners, 0], owner)) for owner in (0, 1))]
    values = measure(name, images, groups)
    for i, group in enumerate(groups):
        chosen = tuple(values[group] for values in images)
        if not chosen[2].any():
            continue
        expected = REFERENCES[name](chosen)
        for key, wanted in zip(METRICS[name].names, expected, strict=True):
            if key == "angle_median":
                assert values[key][i] == pytest.approx(wanted, abs=0.501)  # from a histogram in steps of half a degree
            else:
                assert values[key][i] == pytest.approx(wanted, rel=2e-4, abs=1e-4, nan_ok=True), key


@pytest.mark.parametrize("name", SUMS)
def test_group_without_anything_to_count_is_nan(name: str) -> None:
    values = measure(name, random_images(name, 0), [np.array([], int), np.array([N - 1]), np.arange(N)])
    assert list(values) == metric_names(task_with(name))
    for value in values.values():
        assert np.isnan(value).tolist() == [True, True, False]


def test_loss_is_the_mean_over_images_that_count() -> None:
    # The losses are 0 to 5, and nothing of image 5 counts: (0 + 1 + 2 + 3 + 4) / 5 and (1 + 3) / 2.
    values = measure("mae", random_images("mae", 0), [np.arange(N), np.array([1, 3, 5])])
    assert values["loss"].tolist() == [2.0, 2.0]


def test_similarity_is_that_of_torchmetrics_where_everything_counts() -> None:
    output, target, valid = random_images("ssim", 5)
    images = output[:-1], target[:-1], torch.ones_like(valid[:-1])
    expected = by_torchmetrics.image.structural_similarity_index_measure(*images[:2], data_range=1.0)
    assert measure("ssim", images, [np.arange(N - 1)])["ssim"] == pytest.approx([float(expected)], abs=1e-6)


def test_windows_that_touch_masked_pixels_have_no_part_in_similarity() -> None:
    # Flat grey 1/2 and 1/4 are (2 / 8 + c) / (1 / 4 + 1 / 16 + c) alike, c = 0.0001. From column 11 on the images are
    # the same, but masked; the windows of the first six columns, 11 pixels wide, end before.
    output, target = torch.full((1, 1, 16, 16), 0.5), torch.full((1, 1, 16, 16), 0.25)
    target[..., 11:] = 0.5
    valid = torch.ones(1, 1, 16, 16, dtype=torch.bool)
    valid[..., 11:] = False
    everything = [np.array([0])]
    assert measure("ssim", (output, target, valid), everything)["ssim"] == pytest.approx([0.2501 / 0.3126], abs=1e-5)
    valid[..., 5] = False  # which leaves no window untouched
    assert np.isnan(measure("ssim", (output, target, valid), everything)["ssim"]).all()


@pytest.mark.parametrize("name", sorted(SUMS))
def test_value_of_what_does_not_count_does_not_leak(name: str) -> None:
    output, target, valid = random_images(name, 3)
    everything = [np.arange(N)]
    hidden = ~(valid[:, None] if valid.shape == target.shape and not target.is_floating_point() else valid)
    spoiled = output.masked_fill(hidden.expand_as(output), np.nan)
    clean, dirty = (measure(name, (each, target, valid), everything) for each in (output, spoiled))
    for key in METRICS[name].names:
        assert dirty[key] == pytest.approx(clean[key]), key


def turned(degrees: list[float]) -> Images:
    """One image whose normals are turned by these angles."""
    angle = torch.deg2rad(torch.tensor(degrees))
    output = torch.stack([angle.sin(), torch.zeros(len(degrees)), angle.cos()])[None, :, None]
    target = torch.tensor([0.0, 0.0, 1.0]).view(1, 3, 1, 1).expand_as(output)
    return output, target, torch.ones(1, 1, 1, len(degrees), dtype=torch.bool)


@settings(max_examples=100, deadline=None)
@given(degrees=st.lists(st.floats(0, 180, width=32), min_size=1, max_size=9))
def test_median_angle_is_numpys_to_half_a_degree_for_any_number_of_pixels(degrees: list[float]) -> None:
    # Angles of nearly 0 and 180 degrees come out of the cosine in single precision, hence 0.03 more.
    [median] = measure("angle", turned(degrees), [np.array([0])])["angle_median"]
    assert median == pytest.approx(np.median(degrees), abs=0.53)


def test_angles_by_hand() -> None:
    values = measure("angle", turned([10.2, 10.2, 10.2, 50.7, 50.7]), [np.array([0])])
    assert values["angle_median"] == pytest.approx([10.25], abs=0.25)
    assert values["angle_mean"][0] == pytest.approx((3 * 10.2 + 2 * 50.7) / 5, abs=0.01)
    assert [values[key][0] for key in ANGLES[2:]] == pytest.approx([0.6, 0.6, 0.6])
    [median] = measure("angle", turned([3.2, 20.4]), [np.array([0])])["angle_median"]
    assert median == pytest.approx(11.8, abs=0.25)


def test_median_angle_of_many_pixels_is_close() -> None:
    degrees = np.random.default_rng(0).gamma(2.0, 8.0, 20_001).clip(0, 180)
    [median] = measure("angle", turned(degrees.tolist()), [np.array([0])])["angle_median"]
    assert median == pytest.approx(np.median(degrees), abs=0.02)


def test_absent_classes_have_no_part_in_the_mean() -> None:
    # True ids 0 0 1, predicted 0 1 1: union over intersection 1/2 and 1/2; class 2 to 4 do not occur.
    ids = torch.tensor([[0, 0, 1]])
    output = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1]]), CLASSES).movedim(-1, 1).float()
    values = measure("overlap", (output, ids, torch.ones_like(ids, dtype=torch.bool)), [np.array([0])])
    assert values["miou"].tolist() == [0.5]
    assert values["pixel_accuracy"] == pytest.approx([2 / 3])


@pytest.mark.parametrize(("name", "expected"), [("overlap", (1 / 3 + 1 / 2) / 2), ("hits", 7 / 12)])
def test_a_class_that_is_predicted_but_absent_costs_only_the_classes_that_it_hides(name: str, expected: float) -> None:
    # True ids 0 0 0 1 1, predicted 0 2 2 1 2. Class 2 has no part in the mean, where scikit-learn would count it as 0:
    # intersections over unions are 1/3 and 1/2, F1 is 2/4 and 2/3.
    ids, predicted = torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([[0, 2, 2, 1, 2]])
    output = torch.nn.functional.one_hot(predicted, CLASSES).movedim(-1, 1).float()
    values = measure(name, (output, ids, torch.ones_like(ids, dtype=torch.bool)), [np.array([0])])
    assert values[METRICS[name].names[1]] == pytest.approx([expected])


def test_names_of_a_task_begin_with_the_loss() -> None:
    assert metric_names(TASKS["normal"]) == ["loss", *ANGLES]
    assert metric_names(TASKS["segment_semantic"]) == ["loss", "pixel_accuracy", "miou", "fwiou", "miou_union"]
