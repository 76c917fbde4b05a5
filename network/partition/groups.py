"""What is assigned to clients: clusters of embeddings, classes, natural groups, or single images."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets.table import TABLE_FILE
from datasets.tasks import BOXES, CLASS
from network.partition.assignments import read_assignments, read_projection
from network.partition.nested import Natural, clusters_within, joined
from network.partition.objects import commonest_objects
from utils.errors import UserError
from utils.words import in_order

if TYPE_CHECKING:
    from datasets.table import Table
    from datasets.task_data import TaskData

EMBEDDING, CLASSES, OBJECTS, RANDOM = "embedding_based", "class_based", "object_based", "iid"
_BASED = "_based"
TYPE = re.compile(rf"{RANDOM}|[^/\\\0]+{_BASED}")  # also the name of a folder


def partition_type(text: str) -> str:
    """An argparse type: "embedding_based", "class_based", "object_based", "iid", or `<column>_based` of a table."""
    if TYPE.fullmatch(text) is None:
        raise ArgumentTypeError(f"{text!r} is not one of {EMBEDDING}, {CLASSES}, <column>{_BASED} and {RANDOM}")
    return text


def column_name(text: str) -> str:
    """An argparse type: the name of a column of natural groups, which also becomes part of the name of a folder."""
    if re.fullmatch(r"[^/\\\0]+", text) is None:
        raise ArgumentTypeError(f"{text!r} is no name of a column")
    return text


def assigned_as(split: str, table: Table) -> str:
    """What one of the groups is called that a `--type` assigns."""
    if split == RANDOM:
        return CLASS if table.class_names else "image"  # without classes, all images are one group
    return "cluster" if split == EMBEDDING else split.removesuffix(_BASED)


def partition_label(split: str) -> str:
    """A partition type's name in figures, such as "embedding-based partition"."""
    return "IID partition" if split == RANDOM else f"{split.replace('_', '-')} partition"


def groups_within(
    split: str,
    data: TaskData,
    assignment_folder: Path,
    n_clusters: int,
    features: str | None,
    natural: Natural,
    seed: int,
) -> np.ndarray:
    """What is assigned within natural groups: the number of every image's pair of natural group and group, see
    `joined`.

    Clusters are found within each natural group, `n_clusters` in each, from the projection that `extract_embeddings.py`
    made, with whatever number of clusters. Other arguments and errors as for `groups_of`; UserError where there is no
    such projection.
    """
    if split != EMBEDDING:
        return joined(natural, groups_of(split, data, assignment_folder, n_clusters, features))
    task = data.task.name
    assigned = read_assignments(task, data.table, assignment_folder, None, data.shortened, features)
    points = read_projection(task, data.table, assignment_folder)
    if points is None:
        raise UserError(
            f"--within {natural.column}: no projection of the embeddings beside "
            f"{assignment_folder / f'assignments_{task}.json'}; run extract_embeddings.py --task {task} again"
        )
    fit_on = data.train[assigned[data.train] >= 0]
    clusters = clusters_within(points, fit_on, natural, n_clusters, seed)
    return joined(natural, np.where(data.readable & (assigned >= 0), clusters, -1))


def groups_of(
    split: str, data: TaskData, assignment_folder: Path, n_clusters: int, features: str | None = None
) -> np.ndarray:
    """The group of every image, held out or not, (N,) int64; -1 for those that are unreadable or in none.

    Args:
        split: "embedding_based" reads `assignments_<task>.npy`; "class_based" takes the classes; so does "iid", to
            report how even the IID partition is, with images without a class as a group of their own; "object_based"
            is `commonest_objects`; `<column>_based` numbers the natural groups of a column in the order of their names.
        data: the task's images.
        assignment_folder: where the assignments are.
        n_clusters: the number of clusters that they must have.
        features: the features that they must be clusters of; None for any.

    Raises:
        UserError: if the assignments are missing, or were made from another table or with another K; or if the table
            has no such column, or no classes.
    """
    table = data.table
    if split == EMBEDDING:
        groups = read_assignments(data.task.name, table, assignment_folder, n_clusters, data.shortened, features)
    elif split == RANDOM:
        groups = np.where(table.labels < 0, len(table.class_names), table.labels)
    elif split == CLASSES and table.class_names:
        groups = table.labels
    elif split == OBJECTS and BOXES in table.info.classes:
        groups = commonest_objects(table, data.train)
    elif (column := split.removesuffix(_BASED)) in table.groups:
        names = table.groups[column]
        groups = np.where(names == "", -1, in_order(names)[1])
    else:
        columns = [*([CLASS] if table.class_names else []), *table.groups]
        objects = [OBJECTS] if BOXES in table.info.classes else []
        known = ", ".join([EMBEDDING, *(f"{name}{_BASED}" for name in columns), *objects, RANDOM])
        raise UserError(f"{table.data_path / TABLE_FILE} has no groups for --type {split}; give one of {known}")
    return np.where(data.readable, groups, -1)


def within(groups: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The groups (N,) of the images at `positions`, and -1 for all others."""
    chosen = np.full_like(groups, -1)
    chosen[positions] = groups[positions]
    return chosen
