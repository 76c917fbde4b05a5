"""What a stage shows when it is done: values on the console, and the figures of a model or of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from datasets.task_data import TaskData, evenly
from models.central.evaluation import evaluate, evaluate_trivial, mean_values
from models.detection.output import detect
from models.embedding.embeddings import tsne
from models.networks.task_model import TaskModel
from utils import plots
from utils.errors import UserError
from utils.partition_plots import cluster_numbers

_SHOWN, _OF_A_CLUSTER = 8, 12  # images in a figure
_POINTS = 5000  # of t-SNE, which takes many minutes for tens of thousands


def print_values(title: str, values: Mapping[str, Mapping[str, float]]) -> None:
    """A small table, a row of metrics for each name."""
    columns = list(next(iter(values.values())))
    width = max(len(name) for name in values)
    print(f"{title}\n{'':{width}} " + " ".join(f"{column:>12}" for column in columns))
    for name, row in values.items():
        print(f"{name:{width}} " + " ".join(f"{row[column]:12.4f}" for column in columns))


def measure_trivial(
    data: TaskData, parts: Mapping[str, np.ndarray], accelerator: Accelerator
) -> list[dict[str, float]]:
    """Loss and metrics of the trivial predictor on parts of the images; UserError where nothing counts in one of them.

    Every loss would be nan there, and no model better than another.
    """
    values = evaluate_trivial(data, *parts.values(), accelerator=accelerator)
    for (name, positions), of_part in zip(parts.items(), values, strict=True):
        if np.isnan(of_part["loss"]):
            raise UserError(
                f"{data.task.name}: its trivial loss is nan, because nothing counts in the {len(positions)} {name} "
                f"images; look into the files of {data.task.labelled_by}, or select other images"
            )
    return values


def report_held_out(
    model: TaskModel, data: TaskData, trivial: Mapping[str, float], accelerator: Accelerator, folder: Path
) -> dict[str, float]:
    """Measure a model on the held-out images, print its values next to the trivial ones, and draw its predictions.

    Returns the loss and metrics of the model.
    """
    values = mean_values(data, evaluate(model, data, data.test, accelerator))
    print_values(f"{data.task.name}, {len(data.test)} held-out images", {"model": values, "trivial predictor": trivial})
    draw_predictions(model, data, folder)
    return values


@torch.no_grad()
def draw_predictions(model: TaskModel, data: TaskData, folder: Path) -> None:
    """Predictions on held-out images: beside the targets, boxes over them, or a confusion matrix for classes."""
    model.eval()
    title = f"{data.task.label}, held-out images"
    if data.task.boxes:
        batch = data.batch(torch.from_numpy(evenly(data.test, _SHOWN)))
        boxes = [each[there].cpu().numpy() for each, there in zip(batch.target, batch.valid, strict=True)]
        found = [each.rows.cpu().numpy() for each in detect(model(batch.images).output)]
        plots.detections(data.task, batch.images.cpu().numpy(), boxes, found, title, folder / "predictions.png")
        return
    if data.task.dense:
        positions = torch.from_numpy(evenly(data.test, _SHOWN))
        batch = data.batch(positions)
        output = model(batch.images).output
        output = output.argmax(1) if data.task.categorical else output
        target, output = data.in_physical_units(positions, batch.target, output)
        images, targets, valid, outputs = (x.cpu().numpy() for x in (batch.images, target, batch.valid, output))
        plots.predictions(data.task, images, targets, valid, outputs, title, folder / "predictions.png")
        return
    chunks = torch.from_numpy(data.test).split(64)
    predicted = torch.cat([model(data.batch(at).images).output.argmax(1) for at in chunks]).cpu().numpy()
    names = data.table.class_names
    matrix = np.zeros((len(names), len(names)), np.int64)
    np.add.at(matrix, (data.table.labels[data.test], predicted), 1)
    plots.confusion_matrix(matrix, names, title, folder / "confusion_matrix.png")


def draw_clusters(data: TaskData, reduced: np.ndarray, assignments: np.ndarray, seed: int, folder: Path) -> None:
    """t-SNE of the training images by cluster and, where they have classes, by class; sample images of each cluster.

    Of many images t-SNE is of 5000, evenly spaced.
    """
    used = data.train[assignments[data.train] >= 0]
    drawn, clusters = evenly(used, _POINTS), np.unique(assignments[used])
    points = tsne(reduced[drawn], seed)
    by_cluster = np.searchsorted(clusters, assignments[drawn])
    title = f"{data.task.label}: embeddings of the training images"
    plots.tsne(points, by_cluster, [str(k) for k in clusters], "cluster", title, folder / "tsne_clusters.png")
    classes = data.table.labels[drawn]
    if (classes >= 0).all():
        plots.tsne(points, classes, data.table.class_names, "class", title, folder / "tsne_classes.png")
    samples = []
    for k in clusters:
        # The table may have its images in the order of their classes.
        members = torch.from_numpy(evenly(used[assignments[used] == k], _OF_A_CLUSTER))
        samples.append(data.batch(members).images.cpu().numpy())
    plots.cluster_samples(
        samples, f"{data.task.label}: training images of each cluster", folder / "cluster_samples.png"
    )


def report_n_clusters(rows: Sequence[Mapping[str, float]], title: str, folder: Path) -> None:
    """Print the rows of `compare_n_clusters`, and save them as `n_clusters.csv` and as a figure."""
    table = pd.DataFrame(rows)
    table.to_csv(folder / "n_clusters.csv", index=False)
    print(table.to_string(index=False, float_format="%.3f"))
    cluster_numbers(rows, title, folder / "figures" / "n_clusters.png")
