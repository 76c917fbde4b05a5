"""Measures of a model against torchmetrics on the same predictions, and the constant baseline against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassJaccardIndex
from torchmetrics.regression import MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredError

from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import MAPS, TASKS, Task, get_task
from models.central.evaluation import (
    evaluate,
    evaluate_trivial,
    held_out_values,
    mean_values,
    measure_trivial,
    trivial_output,
)
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from tests.datasets.tables import table_of
from utils.errors import UserError

SIZE, CPU = 32, torch.device("cpu")


@pytest.fixture(scope="module")
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


@pytest.fixture(scope="module")
def data_of(table: Table) -> Callable[[str], TaskData]:
    return cache(lambda name: TaskData(table, table.bind(get_task(name)), SIZE, CPU))


def model_of(task: Task) -> TaskModel:
    torch.manual_seed(1)
    return TaskModel(ModelConfig(task.name, image_size=SIZE, norm="group", classes=task.classes))


def predictions(data: TaskData, positions: np.ndarray) -> tuple[Tensor, Batch]:
    batch = data.batch(torch.from_numpy(positions))
    with torch.no_grad():
        return model_of(data.task)(batch.images).output, batch


def measured(metric: object, predicted: Tensor, target: Tensor) -> float:
    metric.update(predicted, target)
    return float(metric.compute())


def over_present_classes(metric: object, predicted: Tensor, target: Tensor) -> float:
    metric.update(predicted, target)
    return float(metric.compute()[target.unique()].mean())


# A model against torchmetrics, on all images: more than one chunk


@pytest.mark.parametrize(
    "name", [name for name, task in TASKS.items() if task.dense and not task.categorical and name not in MAPS]
)
def test_regression_equals_torchmetrics(
    data_of: Callable[[str], TaskData], accelerator: Accelerator, name: str
) -> None:
    data = data_of(name)
    everything = np.arange(len(data))
    values = mean_values(data, evaluate(model_of(data.task), data, everything, accelerator))
    output, batch = predictions(data, everything)
    counted = batch.valid.expand_as(output)
    predicted, target = output[counted], batch.target[counted]
    expected = {
        "mae": measured(MeanAbsoluteError(), predicted, target),
        "rmse": measured(MeanSquaredError(squared=False), predicted, target),
        "abs_rel": measured(MeanAbsolutePercentageError(), predicted[target > 0], target[target > 0]),
        "delta1": float((torch.maximum(predicted / target, target / predicted) < 1.25)[predicted > 0].sum())
        / len(target),
    }
    shared = values.keys() & expected.keys()
    assert shared or name == "normal"
    assert {key: values[key] for key in shared} == pytest.approx({key: expected[key] for key in shared}, rel=1e-4)
    # The loss is the mean over images of each image's own mean.
    images = [(o[c], t[c]) for o, t, c in zip(output, batch.target, counted, strict=True) if c.any()]
    kind = MeanAbsoluteError if data.task.loss == "l1" else MeanSquaredError
    assert values["loss"] == pytest.approx(np.mean([measured(kind(), *image) for image in images]), rel=1e-4)


@pytest.mark.parametrize("name, per_class", [("segment_semantic", "miou"), ("class_scene", "macro_f1")])
def test_classes_equal_torchmetrics(
    data_of: Callable[[str], TaskData], accelerator: Accelerator, name: str, per_class: str
) -> None:
    data = data_of(name)
    everything = np.arange(len(data))
    values = mean_values(data, evaluate(model_of(data.task), data, everything, accelerator))
    output, batch = predictions(data, everything)
    predicted, target = output.argmax(1)[batch.valid], batch.target[batch.valid]
    classes = data.task.out_channels
    kinds = {"miou": MulticlassJaccardIndex, "macro_f1": MulticlassF1Score}
    accuracy = "accuracy" if name == "class_scene" else "pixel_accuracy"
    assert values[accuracy] == pytest.approx(measured(MulticlassAccuracy(classes, average="micro"), predicted, target))
    expected = over_present_classes(kinds[per_class](classes, average="none"), predicted, target)
    assert values[per_class] == pytest.approx(expected, rel=1e-5)
    logits = output.movedim(1, -1).double().numpy()
    errors = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, batch.target.numpy()[..., None], -1)[..., 0]
    valid = batch.valid.numpy()
    of_image = [error[counted].mean() for error, counted in zip(errors, valid, strict=True) if counted.any()]
    assert values["loss"] == pytest.approx(np.mean(of_image), rel=1e-5)


def test_normals_equal_numpy(data_of: Callable[[str], TaskData], accelerator: Accelerator) -> None:
    data = data_of("normal")
    values = mean_values(data, evaluate(model_of(data.task), data, data.test, accelerator))
    output, batch = predictions(data, data.test)
    a, b = (x.movedim(1, -1)[batch.valid[:, 0]].double().numpy() for x in (output, batch.target))
    angles = np.degrees(np.arccos((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)))
    assert values["angle_mean"] == pytest.approx(angles.mean(), rel=1e-4)
    assert values["angle_median"] == pytest.approx(np.median(angles), abs=0.5)
    for limit in (11.25, 22.5, 30):
        assert values[f"within_{limit:g}"] == pytest.approx((angles < limit).mean(), abs=1e-4)


@pytest.mark.parametrize("name", ["depth_euclidean", "segment_semantic", "class_scene"])
def test_order_of_the_positions_does_not_matter(
    data_of: Callable[[str], TaskData], accelerator: Accelerator, name: str
) -> None:
    data = data_of(name)
    model = model_of(data.task)
    order = np.random.default_rng(0).permutation(len(data))
    rows, shuffled = (evaluate(model, data, positions, accelerator) for positions in (np.arange(len(data)), order))
    torch.testing.assert_close(shuffled, rows[order])
    assert mean_values(data, shuffled) == pytest.approx(mean_values(data, rows), rel=1e-5, nan_ok=True)


def test_model_is_measured_in_eval_mode(data_of: Callable[[str], TaskData], accelerator: Accelerator) -> None:
    data = data_of("normal")
    torch.manual_seed(0)
    model = TaskModel(ModelConfig("normal", image_size=SIZE, norm="batch")).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    both, one = (evaluate(model, data, positions, accelerator) for positions in (data.test, data.test[:1]))
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    torch.testing.assert_close(both[:1], one, rtol=1e-4, atol=1e-4)


# The constant baseline


@pytest.mark.parametrize("name", ["depth_euclidean", "normal", "reshading", "edge_texture"])
def test_trivial_map_is_the_masked_mean(data_of: Callable[[str], TaskData], name: str) -> None:
    data = data_of(name)
    batch = data.batch(torch.from_numpy(data.train))
    hidden = ~batch.valid.expand_as(batch.target).numpy()
    mean = np.ma.masked_array(batch.target.double().numpy(), hidden).mean(axis=0)
    output = trivial_output(data)[0].numpy()
    seen = ~np.ma.getmaskarray(mean)
    assert seen.any()
    np.testing.assert_allclose(output[seen], mean.data[seen], atol=1e-6)
    assert np.isfinite(output).all()


def test_trivial_classes_are_the_logarithm_of_their_shares(data_of: Callable[[str], TaskData]) -> None:
    data = data_of("class_scene")
    n = len(data.table.class_names)
    counts = np.bincount(data.table.labels[data.train], minlength=n)
    output = trivial_output(data)[0].numpy()
    # One observation is shared among the classes.
    np.testing.assert_allclose(output, np.log((counts + 1 / n) / (counts.sum() + 1)), rtol=1e-5)
    assert counts[output.argmax()] == counts.max()
    assert np.exp(output).sum() == pytest.approx(1, abs=1e-5)


def test_trivial_segments_are_shares_at_each_pixel(data_of: Callable[[str], TaskData]) -> None:
    data = data_of("segment_semantic")
    ids = data.batch(torch.from_numpy(data.train)).target.numpy()
    counts = np.stack([(ids == i).sum(0) for i in range(18)])
    assert counts[0].any()
    counts[0] = 0  # uncertain pixels do not count
    shares = np.exp(trivial_output(data)[0].numpy())
    np.testing.assert_allclose(shares, (counts + 1 / 18) / (counts.sum(0) + 1), rtol=1e-4)
    np.testing.assert_array_equal(np.take_along_axis(counts, shares.argmax(0)[None], 0)[0], counts.max(0))


def test_trivial_predictor_is_measured_like_a_model(
    data_of: Callable[[str], TaskData], accelerator: Accelerator
) -> None:
    data = data_of("depth_euclidean")
    output = trivial_output(data)
    measured_parts = evaluate_trivial(data, data.train, data.test, accelerator=accelerator)
    for positions, values in zip((data.train, data.test), measured_parts, strict=True):
        batch = data.batch(torch.from_numpy(positions))
        errors = (output - batch.target).abs().numpy()
        valid = batch.valid.numpy()
        losses = [error[counted].mean() for error, counted in zip(errors, valid, strict=True) if counted.any()]
        assert values["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
        assert values["mae"] == pytest.approx(errors[valid].mean(), rel=1e-5)


def write(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def test_a_part_in_which_nothing_counts_is_named(accelerator: Accelerator, tmp_path: Path) -> None:
    table = table_of(tmp_path, 6, ["rgb", "mask"])
    for cell in table.image_ids:
        write(tmp_path / cell, np.zeros((SIZE, SIZE, 3), np.uint8))
    for number, cell in enumerate(table.cells("mask")):  # 0 is "uncertain"; two images know more
        write(tmp_path / cell, np.full((SIZE, SIZE), 5 * (number in (1, 5)), np.uint8))
    data = TaskData(table, table.bind(get_task("segmentation")), SIZE, CPU)
    parts = {"held-out": data.test, "training": data.train}
    measured_parts = measure_trivial(data, parts, accelerator)
    assert measured_parts == evaluate_trivial(data, *parts.values(), accelerator=accelerator)
    with pytest.raises(
        UserError, match=r"segmentation: .* nan, because nothing counts in the 2 validation images; .* mask"
    ):
        measure_trivial(data, parts | {"validation": np.array([2, 3])}, accelerator)


def test_held_out_values_are_of_the_held_out_images(
    data_of: Callable[[str], TaskData], accelerator: Accelerator
) -> None:
    data = data_of("normal")
    values, trivial = held_out_values(model_of(data.task), data, accelerator)
    output, batch = predictions(data, data.test)
    batch_errors = zip((output - batch.target).abs(), batch.valid.expand_as(output), strict=True)
    assert values["loss"] == pytest.approx(np.mean([float(e[c].mean()) for e, c in batch_errors]), rel=1e-5)
    assert [trivial] == evaluate_trivial(data, data.test, accelerator=accelerator)
