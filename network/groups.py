"""What is dealt to clients: clusters of embeddings, scene classes, or single images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets.selection import SELECTION_FILE
from datasets.task_data import TaskData
from utils.errors import UserError
from utils.files import read_json

SPLIT_TYPES = ("embedding_based", "class_based", "iid")


def groups_of(
    split_type: str, data: TaskData, assignment_folder: Path, n_clusters: int, part: str = "train"
) -> np.ndarray:
    """The group of every image, (N,) int64; -1 for the images that are not dealt: held out, unreadable, left out.

    Args:
        split_type: "embedding_based" reads `assignments_<task>.npy`; "class_based" takes the scene classes, and so
            does "iid", to report how even the random split is.
        data: the task's images.
        assignment_folder: where the assignments are.
        n_clusters: how many clusters they must have been made with.
        part: "train", or "test" for the groups of the held-out images in place of the training images'.

    Raises:
        UserError: if the assignments are missing, or were made from another selection or with another K.
    """
    groups = data.selection.labels.copy()
    if split_type == "embedding_based":
        groups = _read_assignments(data, assignment_folder, n_clusters)
    dealt = np.zeros(len(data), bool)
    dealt[getattr(data, part)] = True
    return np.where(dealt, groups, -1)


def _read_assignments(data: TaskData, folder: Path, n_clusters: int) -> np.ndarray:
    name, made_by = data.task.name, f"extract_embeddings.py --task {data.task.name}"
    origin = read_json(folder / f"assignments_{name}.json", made_by)
    path = folder / f"assignments_{name}.npy"
    try:
        assignments = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run {made_by} again") from error
    if origin.get(SELECTION_FILE) != data.selection.fingerprint:
        raise UserError(f"{path} was made from another selection of images; run {made_by} again")
    if origin.get("n_clusters") != n_clusters:
        raise UserError(
            f"{path} has {origin.get('n_clusters')} clusters, not {n_clusters}; "
            f"give --n_clusters {origin.get('n_clusters')}, or run {made_by} --n_clusters {n_clusters}"
        )
    if assignments.shape != (len(data),) or not np.isin(assignments, np.arange(-1, n_clusters)).all():
        raise UserError(f"{path}: needs {len(data)} ids in -1..{n_clusters - 1}; run {made_by} again")
    return assignments.astype(np.int64)
