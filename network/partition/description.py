"""By which groups a partition is described, and what they are called, in reports and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from datasets.tasks import BOXES, CLASS
from network.partition.assigning import Partition
from network.partition.groups import EMBEDDING, OBJECTS, RANDOM, assigned_as
from network.partition.nested import names_within, within_of
from network.partition.objects import names_of_groups
from utils.words import in_order

if TYPE_CHECKING:
    from datasets.table import Table


def described_by(partition: Partition, split: str, table: Table) -> tuple[np.ndarray, str, Sequence[str]]:
    """The groups (N,) by which a partition is described, what one of them is called, and their names, if they have any.

    They are the groups that are assigned. Partitions of natural groups are described by the classes, if the clients'
    images have some: that each user has the images of one user is no information. So are IID partitions.
    """
    column, names = assigned_as(split, table), assigned_names(partition, split, table)
    if split != EMBEDDING and table.class_names:
        if split == RANDOM:
            return (table.labels if within_of(partition.origin, table) else partition.groups), CLASS, table.class_names
        if (table.labels[partition.client_of >= 0] >= 0).all():
            return table.labels, CLASS, table.class_names
    return partition.groups, column, names


def assigned_names(partition: Partition, split: str, table: Table) -> Sequence[str]:
    """The names of the groups that are assigned, by number; none of clusters."""
    if natural := within_of(partition.origin, table):
        return names_within(natural, partition.groups)
    column = assigned_as(split, table)
    if split == OBJECTS and BOXES in table.info.classes:
        return names_of_groups(table, partition.groups)
    if column == CLASS:
        return table.class_names
    if split in (EMBEDDING, RANDOM) or column not in table.groups:
        return ()
    return in_order(table.groups[column])[0].tolist()  # in the order of their numbers, see `groups_of`


def client_names(partition: Partition, split: str, table: Table) -> Sequence[str]:
    """The clients' names, those of natural groups where each client has one of its own; else none."""
    column = assigned_as(split, table)
    if split in (EMBEDDING, RANDOM) or column == CLASS or column not in table.groups or partition.origin.get("within"):
        return ()
    assigned = partition.client_of >= 0
    pairs = np.unique(np.stack([partition.client_of[assigned], partition.groups[assigned]]), axis=1)
    names = assigned_names(partition, split, table)
    alone = len(np.unique(pairs[1])) == pairs.shape[1] == partition.n_clients
    return [str(names[group]) for group in pairs[1]] if alone else ()


def shown_by(partition: Partition, split: str, table: Table) -> tuple[np.ndarray, str, Sequence[str]]:
    """The same for a figure of what clients have, which shows objects where objects are assigned, and not the
    classes."""
    if split == OBJECTS and BOXES in table.info.classes and not partition.origin.get("within"):
        return partition.groups, "images with", assigned_names(partition, split, table)
    return described_by(partition, split, table)
