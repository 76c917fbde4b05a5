"""What a stage shows when it is done: values on the console, and the figures of a model or of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from datasets.task_data import TaskData
from datasets.taskonomy import read_class_names
from models.embeddings import tsne
from models.evaluation import evaluate, evaluate_trivial, mean_values
from models.task_model import TaskModel
from utils import plots

_SHOWN = 8


def print_values(title: str, values: Mapping[str, Mapping[str, float]]) -> None:
    """A small table, a row of metrics for each name."""
    columns = list(next(iter(values.values())))
    width = max(len(name) for name in values)
    print(f"{title}\n{'':{width}} " + " ".join(f"{column:>12}" for column in columns))
    for name, row in values.items():
        print(f"{name:{width}} " + " ".join(f"{row[column]:12.4f}" for column in columns))


def report_held_out(
    model: TaskModel, data: TaskData, accelerator: Accelerator, folder: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure a model on the held-out images next to the trivial predictor, print both, and draw its predictions.

    Returns the loss and metrics of the model and of the trivial predictor.
    """
    values = mean_values(data, evaluate(model, data, data.test, accelerator))
    [trivial] = evaluate_trivial(data, data.test, accelerator=accelerator)
    print_values(f"{data.task.name}, {len(data.test)} held-out images", {"model": values, "trivial predictor": trivial})
    draw_predictions(model, data, folder)
    return values, trivial


@torch.no_grad()
def draw_predictions(model: TaskModel, data: TaskData, folder: Path) -> None:
    """Predictions on held-out images: side by side with the targets, or a confusion matrix for classes."""
    model.eval()
    title = f"{data.task.name}, held-out images"
    if data.task.dense:
        shown = data.test[np.linspace(0, len(data.test) - 1, min(_SHOWN, len(data.test))).astype(int)]
        positions = torch.from_numpy(shown)
        batch = data.batch(positions)
        output = model(batch.images)[1]
        output = output.argmax(1) if data.task.categorical else output
        target, output = data.in_physical_units(positions, batch.target, output)
        images, targets, valid, outputs = (x.cpu().numpy() for x in (batch.images, target, batch.valid, output))
        plots.predictions(data.task, images, targets, valid, outputs, title, folder / "predictions.png")
        return
    chunks = torch.from_numpy(data.test).split(64)
    predicted = torch.cat([model(data.batch(at).images)[1].argmax(1) for at in chunks]).cpu().numpy()
    names = class_names(data)
    matrix = np.zeros((len(names), len(names)), np.int64)
    # A class that the data set does not have can still be predicted; such errors have no column.
    known = predicted < len(names)
    np.add.at(matrix, (data.selection.labels[data.test][known], predicted[known]), 1)
    plots.confusion_matrix(matrix, names, title, folder / "confusion_matrix.png")


def draw_clusters(data: TaskData, reduced: np.ndarray, assignments: np.ndarray, seed: int, folder: Path) -> None:
    """t-SNE of the training images by cluster and by scene class, and sample images of each cluster."""
    used = data.train[assignments[data.train] >= 0]
    clusters = np.unique(assignments[used])
    points = tsne(reduced[used], seed)
    by_cluster = np.searchsorted(clusters, assignments[used])
    title = f"Embeddings of {data.task.name}"
    labels = [f"cluster {k}" for k in clusters]
    plots.tsne(points, by_cluster, labels, f"{title} by cluster", folder / "tsne_clusters.png")
    plots.tsne(
        points, data.selection.labels[used], class_names(data), f"{title} by scene class", folder / "tsne_classes.png"
    )
    samples = []
    for k in clusters:
        members = torch.from_numpy(used[assignments[used] == k][:12])
        samples.append(data.batch(members).images.cpu().numpy())
    plots.cluster_samples(samples, f"{title}: images a cluster", folder / "cluster_samples.png")


def class_names(data: TaskData) -> list[str]:
    """The names of the scene classes 0, 1, … of the data, from the list in its folder, or their Places ids."""
    listing = data.selection.data_path / "places_class_names.txt"
    places = dict(sorted(zip(data.selection.labels.tolist(), data.selection.places.tolist(), strict=True)))
    if not listing.is_file():
        return [f"class {place}" for place in places.values()]
    names = read_class_names(listing)
    return [names[place] for place in places.values()]
