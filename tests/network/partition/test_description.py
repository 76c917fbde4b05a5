"""What a partition is described by, and what that is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from datasets.table import Table
from network.partition.assigning import assign
from network.partition.description import assigned_names, client_names, described_by
from network.partition.groups import groups_of
from tests.network.partition.test_groups import on


def test_a_random_split_without_classes_is_of_images(table: Table) -> None:
    bare = replace(table, groups={}, info=replace(table.info, classes={}), labels=np.full(len(table), -1))
    partition = assign("iid", np.zeros(len(table), int), 3, 1.0, 0)
    for kind, name in {"iid": "image", "building_based": "building"}.items():
        groups, found, _ = described_by(partition, kind, bare)
        assert groups is partition.groups and found == name


def test_a_split_is_described_by_what_says_something_of_its_images(table: Table) -> None:
    clusters = np.arange(len(table)) % 4
    partition = assign("iid", clusters, 3, 1.0, 0)
    for kind, name in {"embedding_based": "cluster", "iid": "class"}.items():
        groups, found, _ = described_by(partition, kind, table)
        assert groups is partition.groups and found == name
    for kind in ("class_based", "building_based", "point_based"):  # of users, buildings … the classes
        groups, found, _ = described_by(partition, kind, table)
        assert groups is table.labels and found == "class"


def test_classes_objects_and_natural_groups_have_names_and_clusters_have_none(table: Table) -> None:
    partition = assign("iid", np.arange(len(table)) % 4, 3, 1.0, 0)
    assert described_by(partition, "class_based", table)[2] == table.class_names
    bare = replace(table, info=replace(table.info, classes={}), labels=np.full(len(table), -1))
    _, _, buildings = described_by(partition, "building_based", bare)
    numbers = groups_of("building_based", on(table), Path(), 5)
    assert [buildings[number] for number in numbers] == table.groups["building"].tolist()
    for kind in ("embedding_based", "iid"):
        assert not described_by(partition, kind, bare)[2]


def test_what_is_assigned_has_its_own_names_whatever_describes_it(table: Table) -> None:
    for kind, column in {"building_based": table.groups["building"], "class_based": None}.items():
        groups = groups_of(kind, on(table), Path(), 5)
        partition = assign("iid", groups, 3, 1.0, 0)
        assert described_by(partition, kind, table)[2] == table.class_names
        names = assigned_names(partition, kind, table)
        called = [table.class_names[label] for label in table.labels] if column is None else column.tolist()
        assert [names[number] for number in groups] == called
    assert not assigned_names(partition, "embedding_based", table)


def test_clients_that_are_natural_groups_have_their_names(table: Table) -> None:
    groups = groups_of("building_based", on(table), Path(), 5)
    n = len(np.unique(groups))
    natural = assign("natural", groups, n, 1.0, 0)
    names = client_names(natural, "building_based", table)
    assert [names[client] for client in natural.client_of] == table.groups["building"].tolist()
    mixed = assign("iid", groups, n, 1.0, 0)
    assert not client_names(mixed, "building_based", table)
    for kind in ("class_based", "embedding_based", "iid"):
        assert not client_names(natural, kind, table)


def test_columns_may_be_called_as_groups_are(table: Table) -> None:
    partition = assign("iid", np.arange(len(table)) % 4, 3, 1.0, 0)
    columns = dict.fromkeys(("cluster", "image", "object"), np.array(["ann"] * len(table)))
    bare = replace(table, groups=columns, info=replace(table.info, classes={}), labels=np.full(len(table), -1))
    assert described_by(partition, "embedding_based", bare)[1:] == ("cluster", ())
    assert described_by(partition, "iid", bare)[1:] == ("image", ())
    assert described_by(partition, "object_based", bare)[1:] == ("object", ["ann"])
