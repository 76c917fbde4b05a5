"""A look at a teacher before anything is trained with it: whether its vectors know what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier

from datasets.task_data import evenly
from models.teacher.basis import Basis, Photographs
from models.teacher.teachers import Teacher
from utils import plots

_SHOWN = 6  # images in a figure
_JUDGED, _NEIGHBOURS = 2000, 5  # training and held-out images at most, and neighbours that decide


def report_guidance(
    features: np.ndarray, basis: Basis, teacher: Teacher, photographs: Photographs, folder: Path
) -> dict[str, float]:
    """Draw what the teacher sees, and how its vectors lie; returns and prints the values.

    Args:
        features: (N, P + 1, d), as `make_guidance` made them.
        basis: of these vectors.
        teacher: who made them.
        photographs: what it saw.
        folder: for the figures.
    """
    values: dict[str, float] = {}
    _draw_components(basis, teacher, photographs, folder / "layers.png")
    used = evenly(photographs.train, _JUDGED)
    if teacher.columns > 1:
        positive, negative = cosines(features, teacher.positive, used)
        if positive.size and negative.size:
            values |= {"cosine of own and right text": float(positive.mean())}
            values |= {"cosine of own and other text": float(negative.mean())}
            plots.cosines(positive, negative, "cosine with the image's own vector", folder / "cosines.png")
    if (photographs.table.labels >= 0).any():
        accuracy = neighbours(features, basis, teacher, photographs)
        plots.neighbours(accuracy, f"{_NEIGHBOURS} nearest neighbours, held-out images", folder / "neighbours.png")
        values |= {f"knn {kind}, {layer}": value for kind, row in accuracy.items() for layer, value in row.items()}
    for name, value in values.items():
        print(f"{name:40} {value:.3f}")
    return values


def cosines(features: np.ndarray, positive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of images' own vectors with that of their positive text, (n,), and with those of all others."""
    rows = rows[positive[rows] >= 0]
    vectors = features[rows].astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), 1e-12)
    found = np.einsum("npd,nd->np", vectors[:, :-1], vectors[:, -1])
    right = np.arange(found.shape[1]) == positive[rows, None]
    return found[right], found[~right]


def neighbours(
    features: np.ndarray, basis: Basis, teacher: Teacher, photographs: Photographs
) -> dict[str, dict[str, float]]:
    """How often the nearest training images name a held-out image's class, by kind of vector and layer.

    An image's own vector may have been made with the text of its class, and then contains the answer; the vector with
    the first text, where that is the same for all images, tells what the teacher sees in the image itself.
    """
    labels = photographs.table.labels
    train, test = (evenly(part[labels[part] >= 0], _JUDGED) for part in (photographs.train, photographs.test))
    if not len(train) or not len(test):
        return {}
    kinds = {"own": teacher.columns - 1}
    if teacher.columns > 1 and teacher.same_texts:
        kinds = {"one text for all": 0, **kinds}
    ends = np.cumsum(basis.sizes)
    parts = {name: slice(end - n, end) for name, end, n in zip(teacher.layers, ends, basis.sizes, strict=True)}
    if len(parts) > 1:
        parts["all"] = slice(None)
    found: dict[str, dict[str, float]] = {}
    for kind, column in kinds.items():
        fitted, asked = (np.asarray(features[rows, column], np.float32) for rows in (train, test))
        found[kind] = {}
        for layer, part in parts.items():
            model = KNeighborsClassifier(min(_NEIGHBOURS, len(train)), metric="cosine", algorithm="brute")
            model.fit(fitted[:, part], labels[train])
            found[kind][layer] = float(model.score(asked[:, part], labels[test]))
    return found


def _draw_components(basis: Basis, teacher: Teacher, photographs: Photographs, path: Path) -> None:
    """The three leading components of each layer as colours, next to the images; of teachers with maps only."""
    rows = evenly(photographs.train, _SHOWN)
    images = photographs.batch(rows)
    own = np.full((len(rows), 1), teacher.columns - 1)
    batches = list(teacher.maps(images, rows, own))
    maps = [torch.cat(layer) for layer in zip(*batches, strict=True)]
    if maps[0].dim() == 2 or min(basis.sizes) < 3:
        return
    colours = [basis.project(layer, each)[:, :3].cpu().numpy() for layer, each in enumerate(maps)]
    plots.coloured_maps(images.cpu().numpy(), dict(zip(teacher.layers, colours, strict=True)), path)
