"""What central training shows when it is done: values on the console, and the model's predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from datasets.task_data import TaskData, evenly
from models.central.evaluation import evaluate_zero
from models.detection.output import detect
from models.instances.output import group, true_objects
from models.networks.task_model import TaskModel
from reports.figures.charts import confusion_matrix
from reports.figures.images import detections, objects, predictions

_SHOWN = 8  # images in a figure


def print_values(title: str, values: Mapping[str, Mapping[str, float]]) -> None:
    """A small table, a row of metrics for each name."""
    columns = {column: max(12, len(column)) for column in next(iter(values.values()))}
    width = max(len(name) for name in values)
    print(f"{title}\n{'':{width}} " + " ".join(f"{column:>{wide}}" for column, wide in columns.items()))
    for name, row in values.items():
        print(f"{name:{width}} " + " ".join(f"{row[column]:{wide}.4f}" for column, wide in columns.items()))


def report_held_out(
    model: TaskModel, data: TaskData, values: Mapping[str, float], trivial: Mapping[str, float], folder: Path
) -> dict[str, dict[str, float]]:
    """Print a model's values on the held-out images next to the trivial ones, and draw its predictions there.

    Returns the values there of a prediction of zeros, see `evaluate_zero`.
    """
    zero = evaluate_zero(data, data.test)
    rows = {"model": values, "constant baseline": trivial} | zero
    print_values(f"{data.task.name}, {len(data.test)} images of global test", rows)
    draw_predictions(model, data, folder)
    return zero


@torch.no_grad()
def draw_predictions(model: TaskModel, data: TaskData, folder: Path) -> None:
    """Predictions on held-out images: beside the targets, boxes or objects over them, or a confusion matrix."""
    model.eval()
    task, title, path = data.task, f"{data.task.label}, global test", folder / "predictions.png"
    if not (task.boxes or task.instances or task.dense):
        chunks, names = torch.from_numpy(data.test).split(64), data.table.class_names
        predicted = torch.cat([model(data.batch(at).images).output.argmax(1) for at in chunks]).cpu().numpy()
        matrix = np.zeros((len(names), len(names)), np.int64)
        np.add.at(matrix, (data.table.labels[data.test], predicted), 1)
        confusion_matrix(matrix, names, title, folder / "confusion_matrix.png")
        return
    positions = torch.from_numpy(evenly(data.test, _SHOWN))
    batch = data.batch(positions)
    output, images, valid = model(batch.images).output, batch.images.cpu().numpy(), batch.valid.cpu().numpy()
    if task.boxes:
        boxes = [target[there].cpu().numpy() for target, there in zip(batch.target, batch.valid, strict=True)]
        detections(task, images, boxes, [image.rows.cpu().numpy() for image in detect(output)], title, path)
    elif task.instances:
        there, seen = (
            [(of.numbers.cpu().numpy(), of.classes.cpu().numpy()) for of in found]
            for found in (map(true_objects, batch.target), group(output))
        )
        objects(task, images, there, valid[:, 0], seen, title, path)
    else:
        output = output.argmax(1) if task.categorical else output
        target, output = data.in_physical_units(positions, batch.target, output)
        predictions(task, images, target.cpu().numpy(), valid, output.cpu().numpy(), title, path)
