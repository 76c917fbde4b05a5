"""What is dealt, and which partition the arguments of a federated run ask for."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.sources.taskonomy import View
from datasets.table import TABLE_FILE, Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.partition.dealing import deal
from network.partition.groups import (
    described_by,
    groups_of,
    partition_of,
    read_assignments,
    read_projection,
    save_assignments,
    split_type,
    within,
)
from utils.errors import UserError
from utils.files import write_json

KINDS = ("embedding_based", "class_based", "building_based", "point_based", "iid")


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("normal")), 16, torch.device("cpu"))


@pytest.fixture
def assignments(table: Table, tmp_path: Path) -> Path:
    """Clusters of normals, and a projection in another folder."""
    folder = tmp_path / "assignments"
    (tmp_path / "run").mkdir()
    np.save(tmp_path / "run" / "reduced.npy", np.ones((len(table), 3), np.float32))
    origin = {TABLE_FILE: table.fingerprint, "n_clusters": 5, "reduced": "../run/reduced.npy"}
    write_json(folder / "assignments_normal.json", origin)
    np.save(folder / "assignments_normal.npy", np.arange(len(table)) % 5)
    return folder


def test_saved_assignments_are_read_back(data: TaskData, tmp_path: Path) -> None:
    clusters, centres = np.arange(len(data), dtype=np.int32) % 3 - 1, np.eye(3, dtype=np.float32)
    reduced = tmp_path / "run" / "reduced.npy"
    reduced.parent.mkdir()
    np.save(reduced, np.ones((len(data), 2), np.float32))
    files = save_assignments(tmp_path / "clusters", data, "model", clusters, centres, 3, reduced)
    (tmp_path / "clusters").rename(tmp_path / "moved")  # beside the run, as before
    assert (read_assignments("normal", data.table, tmp_path / "moved", 3) == clusters).all()
    projection = read_projection("normal", data.table, tmp_path / "moved")
    assert projection is not None and projection.shape == (len(data), 2)
    assert [path.name for path in files] == ["assignments_normal.npy", "centers_normal.npy"]
    assert (np.load(tmp_path / "moved" / "centers_normal.npy") == centres).all()


def arguments(assignments: Path, **changes: object) -> Namespace:
    """Those of `test_fed.py` that bear on the partition."""
    given = {
        "type": "embedding_based", "task": "normal", "partition": "equal_size", "alpha": 0.5, "n_clients": 4,
        "n_clusters": 5, "min_client_ds_len": None, "rand_seed": 1, "partition_file": None, "features": None,
        "assignment_files_path": assignments,
    }  # fmt: skip
    return Namespace(**given | changes)


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


def test_any_column_of_the_table_is_dealt(table: Table, tmp_path: Path) -> None:
    users = np.array(["zoe", "", "ann", "bob", "ann", "zoe"])[np.arange(len(table)) % 6]
    groups = groups_of("user_id_based", on(table, groups={"user_id": users}), tmp_path, 5)
    assert (groups < 0).tolist() == (users == "").tolist()  # who is nobody's is left out
    assert len(np.unique(groups[users != ""])) == 3
    for user in ("ann", "bob", "zoe"):
        assert len(np.unique(groups[users == user])) == 1


def test_unknown_column_is_named_with_what_there_is(table: Table, data: TaskData, tmp_path: Path) -> None:
    known = "embedding_based, class_based, building_based, point_based, object_based, iid"
    with pytest.raises(UserError, match=f"{TABLE_FILE} has no groups for --type place_based; give one of {known}$"):
        groups_of("place_based", data, tmp_path, 5)
    bare = on(table, groups={}, about=replace(table.about, classes={}))
    for kind in ("class_based", "building_based"):
        with pytest.raises(UserError, match=f"no groups for --type {kind}; give one of embedding_based, iid$"):
            groups_of(kind, bare, tmp_path, 5)


def test_a_random_split_deals_images_of_no_class_too(table: Table, tmp_path: Path) -> None:
    labels = np.where(np.arange(len(table)) % 3 == 0, -1, table.labels)
    data = on(table, labels=labels)
    expected = np.where(labels < 0, len(table.class_names), labels)
    assert groups_of("iid", data, tmp_path, 5).tolist() == expected.tolist()
    assert groups_of("class_based", data, tmp_path, 5).tolist() == labels.tolist()
    partition = partition_of(arguments(tmp_path, type="iid"), data)
    assert (partition.client_of[data.train] >= 0).all()


def test_a_random_split_needs_no_classes(table: Table, tmp_path: Path) -> None:
    bare = on(table, groups={}, about=replace(table.about, classes={}), labels=np.full(len(table), -1))
    assert (groups_of("iid", bare, tmp_path, 5) == 0).all()
    partition = deal("iid", np.zeros(len(table), int), 3, 1.0, 0)
    for kind, name in {"iid": "image", "building_based": "building"}.items():
        groups, found, _ = described_by(partition, kind, bare.table)
        assert groups is partition.groups and found == name


def test_a_split_is_described_by_what_says_something_of_its_images(table: Table) -> None:
    clusters = np.arange(len(table)) % 4
    partition = deal("iid", clusters, 3, 1.0, 0)
    for kind, name in {"embedding_based": "cluster", "iid": "class"}.items():
        groups, found, _ = described_by(partition, kind, table)
        assert groups is partition.groups and found == name
    for kind in ("class_based", "building_based", "point_based"):  # of users, buildings … the classes
        groups, found, _ = described_by(partition, kind, table)
        assert groups is table.labels and found == "class"


def test_classes_objects_and_natural_groups_have_names_and_clusters_have_none(table: Table) -> None:
    partition = deal("iid", np.arange(len(table)) % 4, 3, 1.0, 0)
    assert described_by(partition, "class_based", table)[2] == table.class_names
    bare = replace(table, about=replace(table.about, classes={}), labels=np.full(len(table), -1))
    _, _, buildings = described_by(partition, "building_based", bare)
    numbers = groups_of("building_based", on(table), Path(), 5)
    assert [buildings[number] for number in numbers] == table.groups["building"].tolist()
    for kind in ("embedding_based", "iid"):
        assert not described_by(partition, kind, bare)[2]


def test_columns_may_be_called_as_groups_are(table: Table) -> None:
    partition = deal("iid", np.arange(len(table)) % 4, 3, 1.0, 0)
    columns = dict.fromkeys(("cluster", "image", "object"), np.array(["ann"] * len(table)))
    bare = replace(table, groups=columns, about=replace(table.about, classes={}), labels=np.full(len(table), -1))
    assert described_by(partition, "embedding_based", bare)[1:] == ("cluster", ())
    assert described_by(partition, "iid", bare)[1:] == ("image", ())
    assert described_by(partition, "object_based", bare)[1:] == ("object", ["ann"])


@pytest.mark.parametrize("text", ["", "colour", "_based", "based", "IID", "../x_based", "a\\b_based", "/a_based"])
def test_type_is_a_column_or_iid(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not one of embedding_based, class_based, <column>_based and iid"):
        split_type(text)
    assert [split_type(kind) for kind in (*KINDS, "user_id_based")] == [*KINDS, "user_id_based"]


def test_unreadable_images_have_no_group(own_copy: Path, tmp_path: Path) -> None:
    chosen = read_table(own_copy)
    (own_copy / chosen.image_ids[3]).write_text("no picture")
    data = TaskData(chosen, get_task("normal"), 16, torch.device("cpu"))
    groups = groups_of("building_based", data, tmp_path, 5)
    assert np.flatnonzero(groups < 0).tolist() == [3]


def test_groups_within_a_part() -> None:
    assert within(np.array([4, 0, 2, -1]), np.array([2, 0, 3])).tolist() == [4, -1, 2, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_says_where_it_comes_from(data: TaskData, assignments: Path, kind: str) -> None:
    partition = partition_of(arguments(assignments, type=kind), data)
    assert partition.origin["rule"] == ("iid" if kind == "iid" else "equal_size")
    assert (partition.origin["type"], partition.origin["partition"]) == (kind, "equal_size")
    assert partition.origin["table_sha256"] == data.table.fingerprint
    assert (partition.client_of[data.test] == -1).all()
    assert (partition.groups >= 0).all()  # those of held-out images, too


def test_whole_buildings(data: TaskData, assignments: Path) -> None:
    partition = partition_of(arguments(assignments, type="building_based", partition="natural", n_clients=2), data)
    for images in partition.clients:
        assert len(set(data.table.groups["building"][images])) == 1
    with pytest.raises(UserError, match="--n_clients 2"):
        partition_of(arguments(assignments, type="building_based", partition="natural"), data)


def test_a_saved_partition_takes_the_place_of_the_arguments(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    first = arguments(assignments, alpha=3.0, n_clients=5)
    made = partition_of(first, data)
    made.save(tmp_path / "run")
    # Without the assignments, with another seed and other arguments.
    args = arguments(tmp_path, partition_file=tmp_path / "run", rand_seed=9, type="class_based", partition="paper")
    again = partition_of(args, data)
    assert (again.client_of == made.client_of).all() and (again.groups == made.groups).all()
    names = ("type", "partition", "alpha", "n_clients", "n_clusters", "min_client_ds_len")
    assert [getattr(args, name) for name in names] == [getattr(first, name) for name in names]
    assert args.rand_seed == 9
    assert again.origin == {**made.origin, "partition_file": str(tmp_path / "run")}


@pytest.mark.parametrize(
    "rule, given, broken",
    [
        ("shards", {"shards_per_client": 3}, {"shards_per_client": 0}),
        ("shards", {"shards_per_client": 3}, {"shards_per_client": "../3"}),
        ("split_groups", {"clients_per_group": [2, 2, 0, 0, 0], "client_share": 0.5}, {"clients_per_group": [2, -2]}),
        ("split_groups", {}, {"client_share": 2.0}),
    ],
)
def test_a_saved_partition_brings_its_rules_arguments_along(
    data: TaskData, assignments: Path, tmp_path: Path, rule: str, given: dict, broken: dict
) -> None:
    made = partition_of(arguments(assignments, partition=rule, **given), data)
    made.save(tmp_path / "run")
    args = arguments(assignments, partition_file=tmp_path / "run")
    partition_of(args, data)
    assert {name: getattr(args, name) for name in given} == given
    [name] = broken
    replace(made, origin={**made.origin, **broken}).save(tmp_path / "broken")
    with pytest.raises(UserError, match=f"{name} .* is not valid; make the partition again"):
        partition_of(arguments(assignments, partition_file=tmp_path / "broken"), data)


def test_a_partition_of_other_images_is_refused(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    made = partition_of(arguments(assignments), data)
    replace(made, origin={**made.origin, "table_sha256": "0"}).save(tmp_path / "other")
    with pytest.raises(UserError, match="another table"):
        partition_of(arguments(assignments, partition_file=tmp_path / "other"), data)
    held_out = made.client_of.copy()
    held_out[data.test[:3]] = 0
    replace(made, client_of=held_out).save(tmp_path / "held_out")
    with pytest.raises(UserError, match="deals 3 images"):
        partition_of(arguments(assignments, partition_file=tmp_path / "held_out"), data)


@pytest.mark.parametrize(
    ("origin", "array", "text"),
    [
        ({}, None, "another table"),
        ({"n_clusters": 6}, None, "--n_clusters 6"),
        ([], None, "not a JSON object"),
        ({"n_clusters": 5}, np.full(72, 5), "ids in -1..4"),
        ({"n_clusters": 5}, np.zeros(3, int), "needs 72 ids"),
    ],
)
def test_assignments_that_do_not_fit_are_refused(
    table: Table, assignments: Path, origin: object, array: np.ndarray | None, text: str
) -> None:
    if isinstance(origin, dict) and origin:
        origin = {TABLE_FILE: table.fingerprint, **origin}
    write_json(assignments / "assignments_normal.json", origin)
    if array is not None:
        np.save(assignments / "assignments_normal.npy", array)
    with pytest.raises(UserError, match=text):
        read_assignments("normal", table, assignments, 5)


def test_the_projection_is_found_where_it_was_noted_or_left_out(
    table: Table, assignments: Path, tmp_path: Path
) -> None:
    assert read_projection("normal", table, assignments).shape == (72, 3)
    assert read_projection("reshading", table, assignments) is None
    np.save(tmp_path / "run" / "reduced.npy", np.ones((5, 3)))
    assert read_projection("normal", table, assignments) is None
    (tmp_path / "run" / "reduced.npy").unlink()
    assert read_projection("normal", table, assignments) is None
    write_json(assignments / "assignments_normal.json", {TABLE_FILE: table.fingerprint, "n_clusters": 5})
    assert read_projection("normal", table, assignments) is None


def test_clusters_must_be_of_the_features_that_were_asked_for(table: Table, tmp_path: Path) -> None:
    data = on(table)
    clusters, projection = np.arange(len(data)) % 5, tmp_path / "reduced.npy"
    save_assignments(tmp_path, data, "target", clusters, np.zeros((5, 2)), 5, projection)
    with pytest.raises(UserError, match=r"clusters of the features target, not model; run .*--features model"):
        partition_of(arguments(tmp_path, features="model"), data)
    args = arguments(tmp_path)
    assert partition_of(args, data).origin["features"] == "target" == args.features
    args = arguments(tmp_path, features="target", type="class_based")
    partition_of(args, data)
    assert args.features is None  # by which it was not dealt
