"""The registry of tasks: decoding against hand-made numbers, quantisation, and what every entry needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from datasets.classes import VOID, ClassSet
from datasets.packed import surface
from datasets.tasks import CLASS, DEPTH_TARGETS, TASKS, Task, get_task
from losses import LOSSES
from models.central.metrics import METRICS
from utils.errors import UserError


def decode(task: Task, stored: list | np.ndarray) -> tuple[Tensor, Tensor]:
    """Target and mask of one stored image (C, H, W), without the batch's dimension."""
    values = np.asarray(stored, task.encoding.dtype)
    valid = surface(values, task.encoding)
    target, counted = task.decode(torch.from_numpy(values.astype(np.int32))[None], torch.from_numpy(valid)[None, None])
    return target[0], counted[0]


@pytest.mark.parametrize(
    "depth_target, expected",
    [
        ("scaled", [[0.25, 0.5], [1, 0]]),  # of the farthest, 4 m; not of the invalid 65535
        ("metric", [[1, 2], [4, 0]]),
        ("log", [[0, math.log(2)], [math.log(4), 0]]),
    ],
)
def test_depth(depth_target: str, expected: list[list[float]]) -> None:
    target, valid = decode(get_task("depth_euclidean", depth_target), [[[512, 1024], [2048, 65535]]])
    torch.testing.assert_close(target, torch.tensor([expected], dtype=torch.float32))
    assert valid.tolist() == [[[True, True], [True, False]]]


@pytest.mark.parametrize("depth_target", DEPTH_TARGETS)
def test_depth_without_any_surface_is_finite(depth_target: str) -> None:
    target, valid = decode(get_task("depth_euclidean", depth_target), np.full((1, 2, 2), 65535))
    assert not valid.any() and (target == 0).all()


def test_flow_that_leaves_the_picture_does_not_count() -> None:
    values = np.zeros((2, 2, 3), np.float32)
    values[0] = [[0, 1.4, 0], [-0.6, 0, -math.inf]]
    values[1] = [[0, 0, 1.4], [0, 0.6, -math.inf]]
    stored = torch.from_numpy(values)[None]
    target, valid = TASKS["motion"].decode(stored, stored[:, :1].isfinite())
    assert valid[0, 0].tolist() == [[True, True, True], [False, False, False]]
    assert target[0, :, 0, 1].tolist() == pytest.approx([1.4, 0]) and target[0, :, 1, 2].tolist() == [0, 0]


def test_a_task_says_which_photographs_it_sees() -> None:
    assert [each.domain for each in TASKS["motion"].photographs] == ["rgb", "rgb_next"]
    assert TASKS["motion"].in_channels == 6 and TASKS["normal"].in_channels == 3


# What `--published_quirks True` changes


def published(name: str, stored: list | np.ndarray) -> tuple[Tensor, Tensor]:
    return decode(get_task(name, published_quirks=True), stored)


def test_published_depth_keeps_pixels_without_surface() -> None:
    # Gaps are put 1 % behind the farthest surface, 2048; with the farthest scaled to 1.
    target, valid = published("depth_euclidean", [[[512, 1024], [2048, 65535]]])
    far = 1.01 * 2048
    torch.testing.assert_close(target, torch.tensor([[[512 / far, 1024 / far], [2048 / far, 1.0]]]))
    assert valid.all()
    # Without gaps the farthest pixels are taken for one: 1.01 times the second, 1000.
    target, _ = published("depth_euclidean", [[[505, 1000], [2048, 2048]]])
    torch.testing.assert_close(target, torch.tensor([[[0.5, 1 / 1.01], [1.0, 1.0]]]))
    assert published("depth_euclidean", np.full((1, 2, 2), 65535))[0].isfinite().all()


@pytest.mark.parametrize("name, mark", [("normal", 128), ("principal_curvature", 0), ("reshading", 13)])
def test_published_pictures_are_read_as_they_are(name: str, mark: int) -> None:
    stored = np.array([[51, mark], [255, 127]])
    stored = np.repeat(stored[None], TASKS[name].encoding.channels, axis=0)
    target, valid = published(name, stored)
    torch.testing.assert_close(target, torch.from_numpy(stored / 255).float())  # 51/255 is 0.2, 127/255 "flat"
    assert valid.all()


@pytest.mark.parametrize("name", ["keypoints3d", "edge_texture"])
def test_published_strengths_are_ours(name: str) -> None:
    stored = np.array([[[0, 10000], [40000, 65535]]])
    for ours, theirs in zip(decode(TASKS[name], stored), published(name, stored), strict=True):
        assert torch.equal(ours, theirs)


def test_published_segmentation_bounds_its_logits_and_counts_absent_classes() -> None:
    ours, theirs = (get_task("segment_semantic", published_quirks=quirks) for quirks in (False, True))
    assert (ours.activation, theirs.activation) == ("identity", "tanh")
    assert (ours.metrics, theirs.metrics) == (("overlap",), ("published_overlap",))


def test_published_quirks_and_another_depth_target_exclude_each_other() -> None:
    with pytest.raises(UserError, match="--published_quirks True does not support --depth_target log"):
        get_task("depth_euclidean", "log", published_quirks=True)


# The tasks as they are by default


def test_normals() -> None:
    # (255, 0, 0) is (1, -1, -1), (0, 255, 255) its opposite, (128, 128, 128) no surface.
    stored = np.array([[255, 0, 0], [0, 255, 255], [128, 128, 128]]).T[:, None]
    target, valid = decode(TASKS["normal"], stored)
    corner = np.array([1, -1, -1]) / math.sqrt(3)
    np.testing.assert_allclose(target[:, 0].T.numpy(), [corner, -corner, [0, 0, 0]], atol=1e-6)
    assert valid.tolist() == [[[True, True, False]]]


def test_normals_with_one_grey_channel_count() -> None:
    valid = decode(TASKS["normal"], np.array([[128, 128, 255], [128, 127, 128]]).T[:, None])[1]
    assert valid.all()


def test_curvature() -> None:
    # (191, 127) is (64/128, 0), (127, 63) is (0, -64/128); (127, 127) is flat and (0, 0) no surface.
    stored = np.array([[191, 127], [127, 63], [127, 127], [0, 0], [0, 127]]).T[:, None]
    target, valid = decode(TASKS["principal_curvature"], stored)
    assert valid.tolist() == [[[True, True, False, False, True]]]
    expected = [[0.5, 0], [0, -0.5], [0, 0], [0, 0], [-127 / 128, 0]]
    np.testing.assert_allclose(target[:, 0].T.numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("name", ["segment_semantic", "segmentation"])
def test_segments(name: str) -> None:
    target, valid = decode(TASKS[name], [[[0, VOID], [17, 1]]])
    assert target.tolist() == [[0, 0], [17, 1]] and target.dtype == torch.int64
    assert valid.tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("name, zero_counts", [("keypoints3d", True), ("edge_texture", False)])
def test_strengths_are_scaled_by_the_strongest(name: str, zero_counts: bool) -> None:
    target, valid = decode(TASKS[name], [[[0, 10000], [40000, 65535]]])
    expected = [[0, 10000 / 65535], [40000 / 65535, 1]]
    torch.testing.assert_close(target, torch.tensor([expected], dtype=torch.float32))
    assert valid.tolist() == [[[zero_counts, True], [True, True]]]
    blank, _ = decode(TASKS[name], np.zeros((1, 2, 2)))
    assert (blank == 0).all()


def test_shading() -> None:
    stored, valid = torch.tensor([[[[51, 255, 102]]]]), torch.tensor([[[[True, True, False]]]])
    target, counted = TASKS["reshading"].decode(stored, valid)
    torch.testing.assert_close(target, torch.tensor([[[[0.2, 1.0, 0.0]]]]))  # 51/255, 255/255, not counted
    assert torch.equal(counted, valid)


@pytest.mark.parametrize("name", ["class_scene", "classification"])
def test_classes(name: str) -> None:
    target, valid = TASKS[name].decode(torch.tensor([3, 0]), torch.tensor([True, True]))
    assert target.tolist() == [3, 0] and target.dtype == torch.int64
    assert valid.all()


@given(st.lists(st.floats(0.01, 127.9), min_size=1, max_size=20))
def test_depth_comes_back_within_its_quantisation(metres: list[float]) -> None:
    stored = np.round(np.array(metres) * 512).astype(np.uint16)[None, None]
    target, valid = decode(get_task("depth_euclidean", "metric"), stored)
    assert valid.all()
    np.testing.assert_allclose(target[0, 0].numpy(), metres, rtol=1e-6, atol=0.5 / 512 + 1e-6)


@given(st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda n: np.linalg.norm(n) > 0.1))
def test_normals_come_back_within_their_quantisation(vector: tuple[float, float, float]) -> None:
    normal = np.array(vector) / np.linalg.norm(vector)
    stored = np.round((normal + 1) / 2 * 255)[:, None, None]
    target, valid = decode(TASKS["normal"], stored)
    # Each of three components is off by at most 1/255: sqrt(3)/255 = 0.0068 is 0.39 degrees.
    angle = math.degrees(math.acos(min(1.0, float(target[:, 0, 0].double() @ torch.from_numpy(normal)))))
    assert valid.all() and angle < 0.4


# The registry


def test_tasks_are_those_of_the_paper_and_curvature_and_nine_for_any_table() -> None:
    assert set(TASKS) == {
        "class_scene",
        "segment_semantic",
        "edge_texture",
        "keypoints3d",
        "normal",
        "reshading",
        "depth_euclidean",
        "principal_curvature",
        "classification",
        "segmentation",
        "detection",
        "instances",
        "depth",
        "normals",
        "edges",
        "regression",
        "motion",
    }


@pytest.mark.parametrize("variant", [*DEPTH_TARGETS, "published"])
@pytest.mark.parametrize("name", TASKS)
def test_entry_is_complete(name: str, variant: str) -> None:
    task = get_task(name, published_quirks=True) if variant == "published" else get_task(name, variant)
    assert task.name == name
    assert task.loss in LOSSES
    assert task.metrics and set(task.metrics) <= set(METRICS)
    assert task.drawn.keys() <= {name for metric in task.metrics for name in METRICS[metric].names}
    assert task.dense == (task.encoding is not None and not task.boxes)
    assert (task.loss in ("cross_entropy", "fcos", "panoptic_deeplab")) == task.categorical
    assert not (task.categorical and task.activation == "tanh") or variant == "published"  # it bounds the logits
    assert set(task.variants) <= {*DEPTH_TARGETS, "published"}


@pytest.mark.parametrize("quirks", [False, True])
@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.dense])
def test_pixels_without_surface_count_where_a_task_is_not_masked(name: str, quirks: bool) -> None:
    task = get_task(name, published_quirks=quirks)
    stored = torch.full((1, task.encoding.channels, 2, 2), 7, dtype=torch.int32)
    _, counted = task.decode(stored, torch.zeros(1, 1, 2, 2, dtype=torch.bool))
    assert counted.any() == counted.all() == (not task.masked)


@pytest.mark.parametrize("name, channels", [("normal", 3), ("principal_curvature", 2), ("depth_euclidean", 1)])
def test_out_channels(name: str, channels: int) -> None:
    assert TASKS[name].out_channels == channels


# Classes


def test_no_entry_has_classes_of_its_own() -> None:
    assert all(task.classes is None and (task.out_channels == 0) == task.categorical for task in TASKS.values())


@pytest.mark.parametrize(
    "name, column",
    [
        ("classification", CLASS),
        ("class_scene", CLASS),
        ("segmentation", "mask"),
        ("segment_semantic", "segment_semantic"),
    ],
)
def test_a_task_has_an_output_for_each_class_of_its_column(name: str, column: str) -> None:
    classes = ClassSet(("cat", "dog", "eel"))
    task = TASKS[name].with_classes(classes)
    assert (task.out_channels, task.classes, task.labelled_by) == (3, classes, column)
    assert TASKS[name].classes is None


@pytest.mark.parametrize(
    "depth_target, activation, unit, metrics",
    [
        ("scaled", "tanh", "m, given the farthest surface", ("mae", "rmse", "abs_rel", "delta1")),
        ("metric", "identity", "m", ("mae", "rmse", "abs_rel", "delta1")),
        ("log", "identity", "m", ("mae", "rmse")),  # ratios of logarithms mean nothing
    ],
)
def test_depth_targets(depth_target: str, activation: str, unit: str, metrics: tuple[str, ...]) -> None:
    task = get_task("depth_euclidean", depth_target)
    assert (task.activation, task.unit, task.metrics) == (activation, unit, metrics)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("depth_target", DEPTH_TARGETS)
def test_depth_of_pictures_is_in_metres(depth_target: str, published: bool) -> None:
    if published and depth_target != "scaled":
        return
    task = get_task("depth_euclidean", depth_target, published)
    stored = torch.tensor([[[[512, 1024], [2048, 65535]]], [[[256, 512], [768, 768]]]])
    valid = stored != 65535
    target, _ = task.decode(stored, valid)
    metres = task.physical(target, stored, valid) if task.physical else target
    # 512 is a metre. The published code moves the farthest value of an image without gaps 1 % behind the second.
    expected = torch.tensor([[[[1, 2], [4, 0]]], [[[0.5, 1], [1.5, 1.5]]]])
    if published:
        expected[1, 0, 1] = 1.01
    torch.testing.assert_close(metres[valid], expected[valid])


def test_depth_target_concerns_depth_alone() -> None:
    changed = {name for name in TASKS for kind in DEPTH_TARGETS if get_task(name, kind) != TASKS[name]}
    assert changed == {"depth_euclidean", "depth"}


def test_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match="unknown task 'height'; --task takes one of depth_euclidean, normal"):
        get_task("height")
