"""The clusters of a task's images, as `extract_embeddings.py` saves them and later stages read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.table import TABLE_FILE
from utils.errors import UserError
from utils.files import locked, read_json, write_array, write_json
from utils.versions import ids_digest

_MADE_FROM = "participants_sha256"

if TYPE_CHECKING:
    from datasets.table import Table
    from datasets.task_data import TaskData


def save_assignments(
    folder: Path,
    data: TaskData,
    features: str,
    assignments: np.ndarray,
    centres: np.ndarray,
    n_clusters: int,
    reduced: Path,
    made_from: str | None = None,
) -> list[Path]:
    """Write a task's clusters for `read_assignments`; returns the arrays' files.

    Args:
        folder: where to write `assignments_<task>.npy`, `centers_<task>.npy` and a `.json` that says what they are of.
        data: the task's images.
        features: what was clustered, see `models/embedding/features.py`.
        assignments: (N,) the cluster of every image, -1 for none.
        centres: (K, D) the centres of the clusters.
        n_clusters: the K that was asked for.
        reduced: the file of the projection that was clustered.
        made_from: the `non_participating.digest` of the partition whose participants' images they were made from; None
            for all.
    """
    task = data.task.name
    origin = {
        "data_path": str(data.table.data_path),
        TABLE_FILE: data.table.fingerprint,
        "features": features,
        "n_clusters": n_clusters,
        "test_mode": data.shortened,
        "assignments_sha256": ids_digest(assignments),
        # Relative, so that the folders can be moved together.
        "reduced": os.path.relpath(reduced, folder),
    }
    if made_from is not None:
        origin[_MADE_FROM] = made_from
    files = {folder / f"assignments_{task}.npy": assignments, folder / f"centers_{task}.npy": centres}
    with locked(folder / f".assignments_{task}.lock"):  # two runs at once must not mix their files
        for path, array in files.items():
            write_array(path, array)
        write_json(folder / f"assignments_{task}.json", origin)
    return list(files)


def read_assignments(
    task: str,
    table: Table,
    folder: Path,
    n_clusters: int | None = None,
    for_test: bool = False,
    features: str | None = None,
) -> np.ndarray:
    """The cluster of every image, (N,) int64 with -1 for those without, from `assignments_<task>.npy`.

    Raises `UserError` if it is missing or broken, or was made from another table of images. So it does if its clusters
    are of other `features` or not `n_clusters` in number, or if `--test_mode True` made it and it is not `for_test`.
    """
    made_by = f"extract_embeddings.py --task {task}"
    path = folder / f"assignments_{task}.npy"
    origin = _read_origin(task, folder)
    try:
        assignments = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run {made_by} again") from error
    if origin.get(TABLE_FILE) != table.fingerprint:
        raise UserError(f"{path} was made from another table of images; run {made_by} again")
    recorded = origin.get("n_clusters")
    if not isinstance(recorded, int) or assignments.dtype.kind != "i":
        raise UserError(f"{path} and the .json beside it are not assignments; run {made_by} again")
    if origin.get("assignments_sha256", ids_digest(assignments)) != ids_digest(assignments):
        raise UserError(f"{path} and the .json beside it do not belong together; run {made_by} again")
    if origin.get("test_mode") and not for_test:
        raise UserError(f"{path} was made with --test_mode True from a few images; run {made_by} again without")
    if n_clusters is not None and recorded != n_clusters:
        raise UserError(
            f"{path} has {recorded} clusters, not {n_clusters}; "
            f"give --n_clusters {recorded}, or run {made_by} --n_clusters {n_clusters}"
        )
    if features is not None and origin.get("features", "model") != features:
        raise UserError(
            f"{path} has clusters of the features {origin.get('features', 'model')}, not {features}; "
            f"run {made_by} --features {features}"
        )
    if assignments.shape != (len(table),) or not np.isin(assignments, np.arange(-1, recorded)).all():
        raise UserError(f"{path}: needs {len(table)} ids in -1..{recorded - 1}; run {made_by} again")
    return assignments.astype(np.int64)


def are_of(task: str, table: Table, folder: Path) -> bool:
    """Whether a task's clusters in a folder were made from this table of images."""
    return _read_origin(task, folder).get(TABLE_FILE) == table.fingerprint


def features_of_assignments(task: str, folder: Path) -> str:
    """The features that a task's clusters in a folder were made from, see `models/embedding/features.py`."""
    return str(_read_origin(task, folder).get("features", "model"))


def include_non_participating(task: str, folder: Path, digest: str) -> bool:
    """Whether a task's clusters in a folder were made with the images of a partition's non-participating clients, too.

    `digest` is the partition's `non_participating.digest`. False where the folder has no clusters of the task.
    """
    if not (folder / f"assignments_{task}.json").is_file():
        return False
    return _read_origin(task, folder).get(_MADE_FROM) != digest


def read_projection(task: str, table: Table, folder: Path) -> np.ndarray | None:
    """The principal components of embeddings (N, D) float32 that the task's clusters were made from.

    `assignments_<task>.json` says where they are. None if there are none, or if they are of other images.
    """
    if not (folder / f"assignments_{task}.json").is_file():
        return None
    origin = _read_origin(task, folder)
    path = folder / str(origin.get("reduced", ""))
    if path.name != "reduced.npy" or origin.get(TABLE_FILE) != table.fingerprint or not path.is_file():
        return None
    try:
        projection = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return projection if projection.ndim == 2 and len(projection) == len(table) else None


def _read_origin(task: str, folder: Path) -> dict[str, Any]:
    """What `extract_embeddings.py` recorded about a task's clusters."""
    made_by = f"extract_embeddings.py --task {task}"
    origin = read_json(folder / f"assignments_{task}.json", made_by)
    if not isinstance(origin, dict):
        raise UserError(f"{folder / f'assignments_{task}.json'}: not a JSON object; run {made_by} again")
    return origin
