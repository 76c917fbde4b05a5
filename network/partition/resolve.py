"""The partition that a federated run asks for: assigned from its groups, or read from another run."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from network.partition.assigning import Partition, assign_by_settings, read_partition
from network.partition.assignments import features_of_assignments
from network.partition.groups import EMBEDDING, TYPE, groups_of, groups_within, within
from network.partition.nested import Natural
from network.partition.non_participating import set_aside
from network.partition.rules import PARTITIONERS
from network.partition.settings import PartitionSettings
from utils.args import count_of
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

if TYPE_CHECKING:
    from datasets.task_data import TaskData

# The settings that a saved partition brings along, with checks of their values. No others are taken from its file, in
# particular none that say where a run reads or writes.
_OF_TYPE: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) and TYPE.fullmatch(value) is not None,
    "n_clusters": lambda value: isinstance(value, int) and value > 0,
    "features": lambda value: value is None or isinstance(value, str),
    "within": lambda value: isinstance(value, str) and bool(value),
}
_OF_RULE: dict[str, Callable[[Any], bool]] = {
    "partition": lambda value: isinstance(value, str) and value in PARTITIONERS,
    "alpha": lambda value: isinstance(value, float | int) and 0 <= value < math.inf,
    "min_client_ds_len": lambda value: value is None or isinstance(value, int),
    "n_images": lambda value: isinstance(value, int) and value > 0,
}


def resolve_partition(requested: PartitionSettings, data: TaskData) -> tuple[Partition, PartitionSettings]:
    """The partition of the training images that is asked for, and the settings that it was made by.

    Its groups are of all images. The settings are those requested, with the features that clusters are of or, of a
    saved partition, its own. Non-participating clients are set aside; a saved partition that has some keeps them.
    UserError if it is of other images, assigns some that are held out or cannot be read, or has another number of
    non-participating clients.
    """
    partition, settings = _assigned(requested, data) if requested.partition_file is None else _saved(requested, data)
    number = requested.non_participating_clients
    if number and not partition.n_non_participating:
        partition = set_aside(partition, number, requested.assign.rand_seed)
    elif number and count_of(number, partition.n_clients) != partition.n_non_participating:
        has = counted(partition.n_non_participating, "non-participating client")
        raise UserError(
            f"{requested.partition_file} has {has}, which stay as they are; omit "
            f"--non_participating_clients {number:g}, or give a partition that has none"
        )
    return partition, replace(settings, non_participating_clients=partition.n_non_participating or None)


def _assigned(requested: PartitionSettings, data: TaskData) -> tuple[Partition, PartitionSettings]:
    folder = requested.assignment_files_path
    grouping = requested.type, data, folder, requested.n_clusters, requested.features
    natural = Natural.in_table(requested.within, data.table) if requested.within else None
    groups = groups_within(*grouping, natural, requested.assign.rand_seed) if natural else groups_of(*grouping)
    # Recorded, so that runs with clusters of different features are never compared as equals.
    features = features_of_assignments(data.task.name, folder) if requested.type == EMBEDDING else None
    settings = replace(requested, features=features)
    partition = assign_by_settings(settings.assigned_by, within(groups, data.train), natural)
    origin: dict[str, Any] = {"type": requested.type, "partition": requested.assign.partition, "task": data.task.name}
    origin |= {"n_clusters": requested.n_clusters, "features": features, "table_sha256": data.table.fingerprint}
    return replace(partition, groups=groups.astype(np.int64), origin={**partition.origin, **origin}), settings


def _saved(requested: PartitionSettings, data: TaskData) -> tuple[Partition, PartitionSettings]:
    file = requested.partition_file
    assert file is not None
    partition = read_partition(file)
    if requested.within not in (None, partition.origin.get("within")):
        raise UserError(
            f"--within {requested.within}: {file} was not assigned within {requested.within}; omit one of the two"
        )
    if partition.origin.get("table_sha256") != data.table.fingerprint:
        raise UserError(f"{file} was made from another table of images; make the partition again")
    unknown = np.setdiff1d(np.flatnonzero(partition.client_of >= 0), data.train)
    if len(unknown):
        raise UserError(
            f"{file} assigns {len(unknown)} images that are in the test split or that {data.task.name} cannot "
            "read; make the partition again"
        )

    assign = replace(requested.assign, n_clients=partition.n_clients, **_recorded(partition, _OF_RULE, file))
    of_rule = PARTITIONERS[assign.partition].arguments
    checks = {name: partial(_fits, argument) for name, argument in of_rule.items()}
    assign = replace(assign, options=_recorded(partition, checks, file))
    settings = replace(requested, assign=assign, **_recorded(partition, _OF_TYPE, file))
    return replace(partition, origin={**partition.origin, "partition_file": str(file)}), settings


def _recorded(partition: Partition, checks: Mapping[str, Callable[[Any], bool]], file: Path) -> dict[str, Any]:
    """Those of these arguments that the partition's file says; UserError for a value that fails its check."""
    valid = {name: partition.origin[name] for name in checks if name in partition.origin}
    for name, value in valid.items():
        if not checks[name](value):
            raise UserError(f"{file}: {name} {value!r} is not valid; make the partition again")
    return valid


def _fits(argument: Argument, value: Any) -> bool:
    """Whether an argument can have this value on the command line."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        return value == argument.default or argument.type(text) == value
    except (ArgumentTypeError, ValueError):
        return False
