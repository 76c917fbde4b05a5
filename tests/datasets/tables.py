"""Tables that tests make, and tasks that have their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.classes import ClassSet
from datasets.sources import select_images
from datasets.sources.taskonomy import SEGMENTED, SEGMENTS, View
from datasets.table import DatasetInfo, Table, read_table
from datasets.tasks import CLASS, MASK, Task, get_task

CLASS_NAMES = Path(__file__).parents[2] / "datasets" / "places_class_names.txt"
SCENES = ClassSet(tuple(f"scene {i}" for i in range(16)))


def select_views(
    data_path: Path,
    buildings: Sequence[str],
    tasks: Sequence[str],
    test_fraction: float = 0.2,
    seed: int = 0,
    **more: object,
) -> Table:
    """The table that stage 1 makes of some buildings' views, with `more` of its arguments; it lies in `data_path`."""
    (data_path / "chosen.csv").write_text("\n".join(["id", *buildings]), encoding="utf-8")
    args = {
        "source": "taskonomy", "data_path": data_path, "fit": "crop", "resize": "mean", "levels": None,
        "client_file_name": "chosen.csv", "tasks": tasks,
        "taskonomy_clients_to_include": max(1, len(buildings)), "scene_class_file_name": CLASS_NAMES,
        "test_fraction": test_fraction, "rand_seed": seed,
    }  # fmt: skip
    select_images(**args | more)
    return read_table(data_path)


def rows_with(**columns: object) -> pd.DataFrame:
    """So many rows as the columns have, without a part unless it is given."""
    n = len(next(iter(columns.values())))
    plain = {"rgb": [f"{i}.png" for i in range(n)], CLASS: [-1] * n}
    return pd.DataFrame({**plain, **columns})


def table_of(data_path: Path, n: int = 4, domains: Sequence[str] = ("rgb",), **about: object) -> Table:
    """A table of `n` views of one building, whose files need not be there; the last one is held out.

    `about` are entries of `DatasetInfo` that are not Taskonomy's.
    """
    views = [View("hanson", point, 0) for point in range(n)]
    classes = {CLASS: SCENES, SEGMENTED: SEGMENTS, MASK: SEGMENTS}
    said = DatasetInfo("taskonomy", tuple(domains), ("building", "point"), classes, "point")
    return Table(
        data_path,
        replace(said, **about),
        {name: tuple(v.path(name).as_posix() for v in views) for name in domains},
        np.zeros(n, np.int64),
        {"building": np.full(n, "hanson"), "point": np.array([f"hanson/{point}" for point in range(n)])},
        np.arange(n - 1),
        np.arange(0),
        np.array([n - 1]),
        "",
    )


def bound(name: str, *variant: object) -> Task:
    """A task of the registry with the classes of `table_of`, where it has classes."""
    task = get_task(name, *variant)
    return task.with_classes(classes_of(name)) if task.categorical else task


def classes_of(name: str) -> ClassSet | None:
    """The classes that a model of the task has in tests; None where it has none."""
    task = get_task(name)
    return (SEGMENTS if task.dense else SCENES) if task.categorical else None
