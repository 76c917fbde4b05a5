"""What is dealt to clients: clusters of embeddings, scene classes, buildings, or single images."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets.selection import SELECTION_FILE, Selection
from datasets.task_data import TaskData
from network.dealing import Dealing, deal_as_asked, digest, read_dealing
from network.partition import PARTITIONERS
from utils.errors import UserError
from utils.files import read_json

# What `--type` takes, and what the groups are that it deals; a random split is reported over scene classes.
GROUP_NAMES = {
    "embedding_based": "cluster", "class_based": "scene class", "building_based": "building", "iid": "scene class",
}  # fmt: skip

# The arguments that a saved partition brings along, and what they can be. Whatever else its file says, it says nothing
# about where a run reads or writes.
_SAVED: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) and value in GROUP_NAMES,
    "partition": lambda value: isinstance(value, str) and value in PARTITIONERS,
    "alpha": lambda value: isinstance(value, float | int) and 0 < value < math.inf,
    "n_clusters": lambda value: isinstance(value, int) and value > 0,
    "min_client_ds_len": lambda value: value is None or isinstance(value, int),
    "shards_per_client": lambda value: isinstance(value, int) and value > 0,
}


def groups_of(split_type: str, data: TaskData, assignment_folder: Path, n_clusters: int) -> np.ndarray:
    """The group of every image, held out or not, (N,) int64; -1 for those that are unreadable or in no cluster.

    Args:
        split_type: "embedding_based" reads `assignments_<task>.npy`; "class_based" takes the scene classes, and so
            does "iid", to report how even the random split is; "building_based" numbers the buildings by name.
        data: the task's images.
        assignment_folder: where the assignments are.
        n_clusters: how many clusters they must have been made with.

    Raises:
        UserError: if the assignments are missing, or were made from another selection or with another K.
    """
    if split_type == "embedding_based":
        groups = read_assignments(data.task.name, data.selection, assignment_folder, n_clusters, data.shortened)
    elif split_type == "building_based":
        groups = np.unique([view.building for view in data.selection.views], return_inverse=True)[1]
    else:
        groups = data.selection.labels
    return np.where(data.readable, groups, -1)


def within(groups: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The groups (N,) of the images at `positions`, and -1 for all others."""
    chosen = np.full_like(groups, -1)
    chosen[positions] = groups[positions]
    return chosen


def read_assignments(
    task: str, selection: Selection, folder: Path, n_clusters: int | None = None, for_test: bool = False
) -> np.ndarray:  # fmt: skip
    """The cluster of every image, (N,) int64 with -1 for those without, from `assignments_<task>.npy`.

    Raises `UserError` if it is missing or broken, was made from another selection, has not `n_clusters` clusters, or
    was made with `--test_mode True` and is not `for_test` alone.
    """
    made_by = f"extract_embeddings.py --task {task}"
    path = folder / f"assignments_{task}.npy"
    origin = _read_origin(task, folder)
    try:
        assignments = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run {made_by} again") from error
    if origin.get(SELECTION_FILE) != selection.fingerprint:
        raise UserError(f"{path} was made from another selection of images; run {made_by} again")
    found = origin.get("n_clusters")
    if not isinstance(found, int) or assignments.dtype.kind != "i":
        raise UserError(f"{path} and the .json beside it are no assignments; run {made_by} again")
    if origin.get("assignments_sha256", digest(assignments)) != digest(assignments):
        raise UserError(f"{path} and the .json beside it do not belong together; run {made_by} again")
    if origin.get("test_mode") and not for_test:
        raise UserError(f"{path} was made with --test_mode True from a few images; run {made_by} again without")
    if n_clusters is not None and found != n_clusters:
        raise UserError(
            f"{path} has {found} clusters, not {n_clusters}; "
            f"give --n_clusters {found}, or run {made_by} --n_clusters {n_clusters}"
        )
    if assignments.shape != (len(selection),) or not np.isin(assignments, np.arange(-1, found)).all():
        raise UserError(f"{path}: needs {len(selection)} ids in -1..{found - 1}; run {made_by} again")
    return assignments.astype(np.int64)


def read_projection(task: str, selection: Selection, folder: Path) -> np.ndarray | None:
    """The embeddings' principal components (N, D) float32 that the task's clusters were made from.

    They lie where `assignments_<task>.json` says; None where there are none, or they are of other images.
    """
    if not (folder / f"assignments_{task}.json").is_file():
        return None
    origin = _read_origin(task, folder)
    path = folder / str(origin.get("reduced", ""))
    if path.name != "reduced.npy" or origin.get(SELECTION_FILE) != selection.fingerprint or not path.is_file():
        return None
    try:
        projection = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return projection if projection.ndim == 2 and len(projection) == len(selection) else None


def dealing_of(args: Namespace, data: TaskData) -> Dealing:
    """The partition of the training images that the arguments of `test_fed.py` ask for; its groups are of all images.

    With `--partition_file` it is the saved one, whose own arguments (type, alpha, number of clients …) take the place
    of those in `args`: what a run reports is what it ran on. UserError if it is of other images, or deals some that
    are held out or cannot be read.
    """
    if args.partition_file is None:
        groups = groups_of(args.type, data, args.assignment_files_path, args.n_clusters)
        rule = "iid" if args.type == "iid" else args.partition
        dealing = deal_as_asked(args, within(groups, data.train), rule)
        more = {name: getattr(args, name) for name in ("type", "partition", "task", "n_clusters")}
        origin = {**dealing.origin, **more, "selection_sha256": data.selection.fingerprint}
        return replace(dealing, groups=groups.astype(np.int64), origin=origin)
    dealing = read_dealing(args.partition_file)
    if dealing.origin.get("selection_sha256") != data.selection.fingerprint:
        raise UserError(f"{args.partition_file} was made from another selection of images; partition anew")
    strangers = np.setdiff1d(np.flatnonzero(dealing.client_of >= 0), data.train)
    if len(strangers):
        raise UserError(
            f"{args.partition_file} deals {len(strangers)} images that are held out or that {data.task.name} cannot "
            "read; partition anew"
        )
    args.n_clients = dealing.n_clients
    for name, fits in _SAVED.items():
        if name in dealing.origin:
            if not fits(dealing.origin[name]):
                raise UserError(f"{args.partition_file}: {name} {dealing.origin[name]!r} is none; partition anew")
            setattr(args, name, dealing.origin[name])
    return replace(dealing, origin={**dealing.origin, "partition_file": str(args.partition_file)})


def _read_origin(task: str, folder: Path) -> dict[str, Any]:
    """What `extract_embeddings.py` noted about a task's clusters."""
    made_by = f"extract_embeddings.py --task {task}"
    origin = read_json(folder / f"assignments_{task}.json", made_by)
    if not isinstance(origin, dict):
        raise UserError(f"{folder / f'assignments_{task}.json'}: no object; run {made_by} again")
    return origin
