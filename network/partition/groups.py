"""What is dealt to clients: clusters of embeddings, classes, natural groups, or single images."""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.table import TABLE_FILE
from datasets.tasks import BOXES, CLASS
from network.partition.dealing import Partition, deal_as_asked, digest, read_partition
from network.partition.objects import commonest_objects, names_of_groups
from network.partition.rules import PARTITIONERS
from utils.arguments import Argument
from utils.errors import UserError
from utils.files import locked, read_json, write_array, write_json

if TYPE_CHECKING:
    from datasets.table import Table
    from datasets.task_data import TaskData

EMBEDDING, CLASSES, OBJECTS, RANDOM = "embedding_based", "class_based", "object_based", "iid"
_BASED = "_based"
_TYPE = re.compile(rf"{RANDOM}|[^/\\\0]+{_BASED}")  # also the name of a folder

# The arguments that a saved partition sets, with checks of their values. No others are taken from its file, in
# particular none that say where a run reads or writes.
_SAVED: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) and _TYPE.fullmatch(value) is not None,
    "partition": lambda value: isinstance(value, str) and value in PARTITIONERS,
    "alpha": lambda value: isinstance(value, float | int) and 0 <= value < math.inf,
    "n_clusters": lambda value: isinstance(value, int) and value > 0,
    "features": lambda value: value is None or isinstance(value, str),
    "min_client_ds_len": lambda value: value is None or isinstance(value, int),
}


def split_type(text: str) -> str:
    """An argparse type: "embedding_based", "class_based", "object_based", "iid", or `<column>_based` of a table."""
    if _TYPE.fullmatch(text) is None:
        raise ArgumentTypeError(f"{text!r} is not one of {EMBEDDING}, {CLASSES}, <column>{_BASED} and {RANDOM}")
    return text


def described_by(partition: Partition, kind: str, table: Table) -> tuple[np.ndarray, str, Sequence[str]]:
    """The groups (N,) by which a partition is described, what one of them is called, and their names, if they have any.

    They are the groups that are dealt. Partitions of natural groups are described by the classes, if the clients'
    images have some: that each user has the images of one user says nothing. So are random splits.
    """
    if kind == EMBEDDING:
        return partition.groups, "cluster", ()
    if table.class_names and (kind == RANDOM or (table.labels[partition.client_of >= 0] >= 0).all()):
        return (partition.groups if kind == RANDOM else table.labels), CLASS, table.class_names
    if kind == RANDOM:  # without classes, all images are one group
        return partition.groups, "image", ()
    column = kind.removesuffix(_BASED)
    names: Sequence[str] = ()
    if column in table.groups:
        names = np.unique(table.groups[column]).tolist()  # in the order of their numbers, see `groups_of`
    return partition.groups, column, names


def shown_by(partition: Partition, kind: str, table: Table) -> tuple[np.ndarray, str, Sequence[str]]:
    """The same for a figure of what clients have, which shows objects where objects are dealt, and not the classes."""
    if kind == OBJECTS and BOXES in table.about.classes:
        return partition.groups, "images with", names_of_groups(table, partition.groups)
    return described_by(partition, kind, table)


def split_label(kind: str) -> str:
    """A split's name in figures, such as "embedding-based split"."""
    return "IID split" if kind == RANDOM else f"{kind.replace('_', '-')} split"


def groups_of(
    kind: str, data: TaskData, assignment_folder: Path, n_clusters: int, features: str | None = None
) -> np.ndarray:
    """The group of every image, held out or not, (N,) int64; -1 for those that are unreadable or in none.

    Args:
        kind: "embedding_based" reads `assignments_<task>.npy`; "class_based" takes the classes; so does "iid", to
            report how even the random split is, with images without a class as a group of their own; "object_based"
            is `commonest_objects`; `<column>_based` numbers the natural groups of a column by name.
        data: the task's images.
        assignment_folder: where the assignments are.
        n_clusters: the number of clusters that they must have.
        features: the features that they must be clusters of; None for any.

    Raises:
        UserError: if the assignments are missing, or were made from another table or with another K; or if the table
            has no such column, or no classes.
    """
    table = data.table
    if kind == EMBEDDING:
        groups = read_assignments(data.task.name, table, assignment_folder, n_clusters, data.shortened, features)
    elif kind == RANDOM:
        groups = np.where(table.labels < 0, len(table.class_names), table.labels)
    elif kind == CLASSES and table.class_names:
        groups = table.labels
    elif kind == OBJECTS and BOXES in table.about.classes:
        groups = commonest_objects(table, data.train)
    elif (column := kind.removesuffix(_BASED)) in table.groups:
        names = table.groups[column]
        groups = np.where(names == "", -1, np.unique(names, return_inverse=True)[1])
    else:
        columns = [*([CLASS] if table.class_names else []), *table.groups]
        objects = [OBJECTS] if BOXES in table.about.classes else []
        known = ", ".join([EMBEDDING, *(f"{name}{_BASED}" for name in columns), *objects, RANDOM])
        raise UserError(f"{table.data_path / TABLE_FILE} has no groups for --type {kind}; give one of {known}")
    return np.where(data.readable, groups, -1)


def within(groups: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The groups (N,) of the images at `positions`, and -1 for all others."""
    chosen = np.full_like(groups, -1)
    chosen[positions] = groups[positions]
    return chosen


def save_assignments(
    folder: Path,
    data: TaskData,
    features: str,
    assignments: np.ndarray,
    centres: np.ndarray,
    n_clusters: int,
    reduced: Path,
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
    """
    task = data.task.name
    origin = {
        "data_path": str(data.table.data_path),
        TABLE_FILE: data.table.fingerprint,
        "features": features,
        "n_clusters": n_clusters,
        "test_mode": data.shortened,
        "assignments_sha256": digest(assignments),
        # Relative, so that the folders can be moved together.
        "reduced": os.path.relpath(reduced, folder),
    }
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

    Raises `UserError` if it is missing or broken; if it was made from another table of images; if its clusters are of
    other `features`, or not `n_clusters` in number; or if it was made with `--test_mode True` and is not `for_test`.
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
    found = origin.get("n_clusters")
    if not isinstance(found, int) or assignments.dtype.kind != "i":
        raise UserError(f"{path} and the .json beside it are not assignments; run {made_by} again")
    if origin.get("assignments_sha256", digest(assignments)) != digest(assignments):
        raise UserError(f"{path} and the .json beside it do not belong together; run {made_by} again")
    if origin.get("test_mode") and not for_test:
        raise UserError(f"{path} was made with --test_mode True from a few images; run {made_by} again without")
    if n_clusters is not None and found != n_clusters:
        raise UserError(
            f"{path} has {found} clusters, not {n_clusters}; "
            f"give --n_clusters {found}, or run {made_by} --n_clusters {n_clusters}"
        )
    if features is not None and origin.get("features", "model") != features:
        raise UserError(
            f"{path} has clusters of the features {origin.get('features', 'model')}, not {features}; "
            f"run {made_by} --features {features}"
        )
    if assignments.shape != (len(table),) or not np.isin(assignments, np.arange(-1, found)).all():
        raise UserError(f"{path}: needs {len(table)} ids in -1..{found - 1}; run {made_by} again")
    return assignments.astype(np.int64)


def features_of_assignments(task: str, folder: Path) -> str:
    """The features that a task's clusters in a folder were made from, see `models/embedding/features.py`."""
    return str(_read_origin(task, folder).get("features", "model"))


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


def rule_of(split: str, partition: str) -> str:
    """The rule by which a `--type` is dealt that goes with this `--partition`: an IID split has its own."""
    return "iid" if split == RANDOM else partition


def partition_of(args: Namespace, data: TaskData) -> Partition:
    """The partition of the training images that the arguments of `test_fed.py` ask for; its groups are of all images.

    With `--partition_file`, it is the saved one, whose arguments (type, alpha, number of clients …) replace those in
    `args`, so that a run reports what it ran on. UserError if it is of other images, or deals some that are held out or
    cannot be read.
    """
    if args.partition_file is None:
        groups = groups_of(args.type, data, args.assignment_files_path, args.n_clusters, args.features)
        # Recorded, so that runs with clusters of different features are never compared as equals.
        is_embedding = args.type == EMBEDDING
        args.features = features_of_assignments(args.task, args.assignment_files_path) if is_embedding else None
        partition = deal_as_asked(args, within(groups, data.train), rule_of(args.type, args.partition))
        more = {name: getattr(args, name) for name in ("type", "partition", "task", "n_clusters", "features")}
        origin = {**partition.origin, **more, "table_sha256": data.table.fingerprint}
        return replace(partition, groups=groups.astype(np.int64), origin=origin)
    partition = read_partition(args.partition_file)
    if partition.origin.get("table_sha256") != data.table.fingerprint:
        raise UserError(f"{args.partition_file} was made from another table of images; make the partition again")
    strangers = np.setdiff1d(np.flatnonzero(partition.client_of >= 0), data.train)
    if len(strangers):
        raise UserError(
            f"{args.partition_file} deals {len(strangers)} images that are held out or that {data.task.name} cannot "
            "read; make the partition again"
        )
    args.n_clients = partition.n_clients
    _take_over(args, partition, _SAVED)
    of_rule = PARTITIONERS[args.partition].arguments
    _take_over(args, partition, {name: partial(_fits, argument) for name, argument in of_rule.items()})
    return replace(partition, origin={**partition.origin, "partition_file": str(args.partition_file)})


def _take_over(args: Namespace, partition: Partition, checks: Mapping[str, Callable[[Any], bool]]) -> None:
    """Set arguments to the values in a saved partition; UserError if a value does not pass its check."""
    for name, fits in checks.items():
        if name in partition.origin:
            value = partition.origin[name]
            if not fits(value):
                raise UserError(f"{args.partition_file}: {name} {value!r} is not valid; make the partition again")
            setattr(args, name, value)


def _fits(argument: Argument, value: Any) -> bool:
    """Whether an argument can have this value on the command line."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        return value == argument.default or argument.kind(text) == value
    except (ArgumentTypeError, ValueError):
        return False


def _read_origin(task: str, folder: Path) -> dict[str, Any]:
    """What `extract_embeddings.py` recorded about a task's clusters."""
    made_by = f"extract_embeddings.py --task {task}"
    origin = read_json(folder / f"assignments_{task}.json", made_by)
    if not isinstance(origin, dict):
        raise UserError(f"{folder / f'assignments_{task}.json'}: not a JSON object; run {made_by} again")
    return origin
