"""The registry of tasks: decoding against hand-made numbers, quantisation, and what every entry needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from datasets.packed import surface
from datasets.tasks import DEPTH_TARGETS, SEGMENT_CLASSES, TASKS, Task, get_task
from losses import LOSSES
from utils.errors import UserError
from utils.metrics import METRICS


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


def test_segments() -> None:
    target, valid = decode(TASKS["segment_semantic"], [[[0, 1], [17, 0]]])
    assert target.tolist() == [[0, 1], [17, 0]] and target.dtype == torch.int64
    assert valid.tolist() == [[False, True], [True, False]]


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


def test_scene_classes() -> None:
    target, valid = TASKS["class_scene"].decode(torch.tensor([3, 0]), torch.tensor([True, True]))
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


def test_tasks_are_those_of_the_paper_and_curvature() -> None:
    assert set(TASKS) == {
        "class_scene", "segment_semantic", "edge_texture", "keypoints3d", "normal", "reshading", "depth_euclidean",
        "principal_curvature",
    }  # fmt: skip


@pytest.mark.parametrize("depth_target", DEPTH_TARGETS)
@pytest.mark.parametrize("name", TASKS)
def test_entry_is_complete(name: str, depth_target: str) -> None:
    task = get_task(name, depth_target)
    assert task.name == name
    assert task.loss in LOSSES
    assert task.metrics and set(task.metrics) <= set(METRICS)
    assert task.dense == (task.encoding is not None)
    assert (task.loss == "cross_entropy") == task.categorical
    assert not (task.categorical and task.activation == "tanh")  # it would bound the logits


@pytest.mark.parametrize("name, channels", [("normal", 3), ("principal_curvature", 2), ("segment_semantic", 18)])
def test_out_channels(name: str, channels: int) -> None:
    assert TASKS[name].out_channels == channels


def test_segments_have_a_name_each() -> None:
    assert len(set(SEGMENT_CLASSES)) == 18 and SEGMENT_CLASSES[:2] == ("uncertain", "background")


@pytest.mark.parametrize(
    "depth_target, activation, unit, metrics",
    [
        ("scaled", "tanh", "of the farthest", ("mae", "rmse", "abs_rel", "delta1")),
        ("metric", "identity", "m", ("mae", "rmse", "abs_rel", "delta1")),
        ("log", "identity", "log m", ("mae", "rmse")),  # ratios of logarithms mean nothing
    ],
)
def test_depth_targets(depth_target: str, activation: str, unit: str, metrics: tuple[str, ...]) -> None:
    task = get_task("depth_euclidean", depth_target)
    assert (task.activation, task.unit, task.metrics) == (activation, unit, metrics)


def test_depth_target_concerns_depth_alone() -> None:
    changed = {name for name in TASKS for kind in DEPTH_TARGETS if get_task(name, kind) != TASKS[name]}
    assert changed == {"depth_euclidean"}


def test_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match="unknown task 'depth'; --task takes one of depth_euclidean, normal"):
        get_task("depth")
