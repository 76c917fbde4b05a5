"""Some views of the built-in rooms in all domains, on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from datasets.drawing import draw_target
from datasets.maps import read_map
from datasets.packed import class_numbers, read_image, surface
from datasets.sources.taskonomy import CLASS_NAMES, SEGMENTED, SEGMENTS, View, read_class_names, read_scene_class
from datasets.stored import photograph_frame, read_photograph
from datasets.tasks import COLOUR_WHEEL, RGB, TASKS, Encoding, Task
from utils.figures import save

PREVIEW_GRID = "preview_grid.png"


def draw_preview_grid(data_path: Path, n_rows: int = 8) -> None:
    """Draw one view of each of `n_rows` scene classes in all domains to `preview_grid.png`, from the files."""
    names = read_class_names(data_path / CLASS_NAMES)
    examples: dict[int, list[View]] = {}
    for path in sorted((data_path / "class_scene").rglob("*.npy")):
        examples.setdefault(read_scene_class(path), []).append(View.parse(path))
    commonest = sorted(examples.items(), key=lambda item: -len(item[1]))[:n_rows]
    rows = [(scene_class, most_typical(data_path, views)) for scene_class, views in commonest]
    bound = [task.with_classes(SEGMENTS) if task.labelled_by == SEGMENTED else task for task in TASKS.values()]
    maps = ((task, task.encoding) for task in bound if task.encoding is not None and not task.instances)
    tasks = [(task, encoding) for task, encoding in maps if (data_path / encoding.domain).is_dir()]
    figure = Figure((1.6 * (1 + len(tasks)), 1.6 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), 1 + len(tasks), squeeze=False)
    for axis, title in zip(axes[0], ["View", *(task.label for task, _ in tasks)], strict=True):
        axis.set_title(title, fontsize=9)
    for row, (scene_class, view) in zip(axes, rows, strict=True):
        row[0].set_ylabel(names[scene_class].replace("_", " "), fontsize=9)
        row[0].set(xticks=[], yticks=[])
        photograph = str(view.path(RGB.domain))
        row[0].imshow(read_photograph(data_path, photograph).transpose(1, 2, 0))
        for axis, (task, encoding) in zip(row[1:], tasks, strict=True):
            read = read_image if encoding.maps is None else read_map
            values = read(data_path, str(view.path(encoding.domain)), encoding)
            frame = photograph_frame(data_path, photograph)
            _draw_target(axis, task, encoding, frame.upright(values, encoding.domain))
    save(figure, data_path / PREVIEW_GRID)


def most_typical(data_path: Path, views: Sequence[View]) -> View:
    """The view that shows the kinds of objects most like all others do: the medoid of their shares of the pixels."""
    shown = np.zeros((len(views), len(SEGMENTS.names)))
    for row, view in zip(shown, views, strict=True):
        ids = np.asarray(Image.open(data_path / view.path("segment_semantic")))
        row += np.bincount(ids.ravel(), minlength=len(row)) / ids.size
    shown[:, SEGMENTS.names.index("background")] = 0.0  # walls and floors say little, and would outweigh all else
    distances = np.linalg.norm(shown[:, None] - shown, axis=2).sum(axis=1)
    return views[int(distances.argmin())]


def _draw_target(axis: Any, task: Task, encoding: Encoding, values: np.ndarray) -> None:
    """The values of a file as they are stored, without those that stand for no surface."""
    values = class_numbers(values, task.classes) if task.classes else values
    valid = surface(values, encoding)
    counted = values[:, valid] if len(values) < 3 and valid.any() else np.array([0, 255])
    if task.colormap == COLOUR_WHEEL and valid.any():
        counted = np.linalg.norm(counted, axis=0)
    if task.classes:
        values = np.where(valid, values[0], 0)
    draw_target(axis, task, values, valid if task.classes else valid[None], (counted.min(), counted.max()))
