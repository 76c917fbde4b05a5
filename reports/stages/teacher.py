"""A look at a teacher before anything is trained with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from datasets.task_data import evenly
from models.teacher.basis import Basis, Photographs
from models.teacher.measures import JUDGED, NEIGHBOURS, commonest_class, cosines, neighbours
from models.teacher.teachers import Teacher
from reports.figures import charts
from reports.figures.images import coloured_maps

_SHOWN = 6  # images in a figure


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
    used = evenly(photographs.train, JUDGED)
    if teacher.columns > 1:
        positive, negative = cosines(features, teacher.positive, used)
        if positive.size and negative.size:
            values |= {"cosine of own and right text": float(positive.mean())}
            values |= {"cosine of own and other text": float(negative.mean())}
            charts.cosines(positive, negative, "cosine with the image's own vector", folder / "cosines.png")
    if (photographs.table.labels >= 0).any():
        accuracy, commonest = neighbours(features, basis, teacher, photographs), commonest_class(photographs)
        title = f"{NEIGHBOURS} nearest neighbours, global test"
        charts.neighbours(accuracy, commonest, title, folder / "neighbours.png")
        values |= {"commonest class": commonest}
        values |= {f"knn {vector}, {layer}": value for vector, row in accuracy.items() for layer, value in row.items()}
    for name, value in values.items():
        print(f"{name:40} {value:.3f}")
    return values


def _draw_components(basis: Basis, teacher: Teacher, photographs: Photographs, path: Path) -> None:
    """The three leading components of each layer as colours, next to the images; of teachers with maps only."""
    rows = evenly(photographs.train, _SHOWN)
    images = photographs.batch(rows)
    own = np.full((len(rows), 1), teacher.columns - 1)
    batches = list(teacher.maps(images, rows, own))
    maps = [torch.cat(layer) for layer in zip(*batches, strict=True)]
    if maps[0].dim() == 2 or min(basis.sizes) < 3:
        return
    colours = [basis.project(layer, feature_map)[:, :3].cpu().numpy() for layer, feature_map in enumerate(maps)]
    coloured_maps(images.cpu().numpy(), dict(zip(teacher.layers, colours, strict=True)), path)
