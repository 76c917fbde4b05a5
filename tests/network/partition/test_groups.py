"""What is assigned: clusters, classes, natural groups, or single images."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.sources.taskonomy import View
from datasets.table import TABLE_FILE, Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.partition.groups import groups_of, partition_type, within
from network.partition.resolve import resolve_partition
from network.partition.settings import AssignSettings, PartitionSettings
from utils.errors import UserError

KINDS = ("embedding_based", "class_based", "building_based", "point_based", "iid")


def on(table: Table, **columns: object) -> TaskData:
    """The data on a table with other columns."""
    return TaskData(replace(table, **columns), table.bind(get_task("normal")), 16, torch.device("cpu"))


def test_groups_are_clusters_classes_or_natural(data: TaskData, assignments: Path) -> None:
    groups = {kind: groups_of(kind, data, assignments, 5) for kind in KINDS}
    assert (groups["embedding_based"] == np.arange(len(data)) % 5).all()
    assert (groups["class_based"] == data.table.labels).all()
    assert (groups["iid"] == groups["class_based"]).all()
    views = [View.parse(name) for name in data.table.image_ids]
    for kind, name in (("building_based", lambda v: v.building), ("point_based", lambda v: f"{v.building}/{v.point}")):
        names = sorted({name(view) for view in views})
        assert [names[group] for group in groups[kind]] == [name(view) for view in views]


def test_any_column_of_the_table_is_assigned(table: Table, tmp_path: Path) -> None:
    users = np.array(["zoe", "", "ann", "bob", "ann", "zoe"])[np.arange(len(table)) % 6]
    groups = groups_of("user_id_based", on(table, groups={"user_id": users}), tmp_path, 5)
    assert (groups < 0).tolist() == (users == "").tolist()  # who is nobody's is left out
    assert len(np.unique(groups[users != ""])) == 3
    for user in ("ann", "bob", "zoe"):
        assert len(np.unique(groups[users == user])) == 1
    numbered = groups_of(
        "user_id_based", on(table, groups={"user_id": np.char.mod("%d", np.arange(len(table)))}), tmp_path, 5
    )
    assert (np.diff(numbered) == 1).all()  # 2 before 10


def test_unknown_column_is_named_with_what_there_is(table: Table, data: TaskData, tmp_path: Path) -> None:
    known = "embedding_based, class_based, building_based, point_based, object_based, iid"
    with pytest.raises(UserError, match=f"{TABLE_FILE} has no groups for --type place_based; give one of {known}$"):
        groups_of("place_based", data, tmp_path, 5)
    bare = on(table, groups={}, info=replace(table.info, classes={}))
    for kind in ("class_based", "building_based"):
        with pytest.raises(UserError, match=f"no groups for --type {kind}; give one of embedding_based, iid$"):
            groups_of(kind, bare, tmp_path, 5)


def test_a_random_split_deals_images_of_no_class_too(table: Table, tmp_path: Path) -> None:
    labels = np.where(np.arange(len(table)) % 3 == 0, -1, table.labels)
    data = on(table, labels=labels)
    expected = np.where(labels < 0, len(table.class_names), labels)
    assert groups_of("iid", data, tmp_path, 5).tolist() == expected.tolist()
    assert groups_of("class_based", data, tmp_path, 5).tolist() == labels.tolist()
    partition, _ = resolve_partition(PartitionSettings("iid", AssignSettings(1, n_clients=4), 5, tmp_path), data)
    assert (partition.client_of[data.train] >= 0).all()


def test_a_random_split_needs_no_classes(table: Table, tmp_path: Path) -> None:
    bare = on(table, groups={}, info=replace(table.info, classes={}), labels=np.full(len(table), -1))
    assert (groups_of("iid", bare, tmp_path, 5) == 0).all()


@pytest.mark.parametrize("text", ["", "colour", "_based", "based", "IID", "../x_based", "a\\b_based", "/a_based"])
def test_type_is_a_column_or_iid(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not one of embedding_based, class_based, <column>_based and iid"):
        partition_type(text)
    assert [partition_type(kind) for kind in (*KINDS, "user_id_based")] == [*KINDS, "user_id_based"]


def test_unreadable_images_have_no_group(own_copy: Path, tmp_path: Path) -> None:
    chosen = read_table(own_copy)
    (own_copy / chosen.image_ids[3]).write_text("no picture")
    data = TaskData(chosen, get_task("normal"), 16, torch.device("cpu"))
    groups = groups_of("building_based", data, tmp_path, 5)
    assert np.flatnonzero(groups < 0).tolist() == [3]


def test_groups_within_a_part() -> None:
    assert within(np.array([4, 0, 2, -1]), np.array([2, 0, 3])).tolist() == [4, -1, 2, -1]
