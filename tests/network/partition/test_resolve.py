"""Which partition a federated run asks for, and which settings it then has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets.task_data import TaskData
from network.partition.assigning import Partition
from network.partition.assignments import save_assignments
from network.partition.resolve import resolve_partition
from network.partition.settings import PartitionSettings
from utils.errors import UserError

KINDS = ("embedding_based", "class_based", "building_based", "point_based", "iid")


def asked(assignments: Path, **changes: object) -> PartitionSettings:
    """Those of `test_fed.py`'s arguments that bear on the partition."""
    given = {
        "type": "embedding_based", "partition": "equal_size", "alpha": 0.5, "n_clients": 4, "n_clusters": 5,
        "min_client_ds_len": None, "rand_seed": 1, "partition_file": None, "features": None,
        "assignment_files_path": assignments,
    }  # fmt: skip
    return PartitionSettings.from_config(given | changes)


def assigned(split: PartitionSettings, data: TaskData) -> Partition:
    return resolve_partition(split, data)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_says_where_it_comes_from(data: TaskData, assignments: Path, kind: str) -> None:
    partition = assigned(asked(assignments, type=kind), data)
    assert partition.origin["rule"] == ("iid" if kind == "iid" else "equal_size")
    assert (partition.origin["type"], partition.origin["partition"]) == (kind, "equal_size")
    assert partition.origin["table_sha256"] == data.table.fingerprint
    assert (partition.client_of[data.test] == -1).all()
    assert (partition.groups >= 0).all()  # those of held-out images, too


def test_whole_buildings(data: TaskData, assignments: Path) -> None:
    partition = assigned(asked(assignments, type="building_based", partition="natural", n_clients=2), data)
    for images in partition.clients:
        assert len(set(data.table.groups["building"][images])) == 1
    with pytest.raises(UserError, match="--n_clients 2"):
        assigned(asked(assignments, type="building_based", partition="natural"), data)


def test_a_saved_partition_takes_the_place_of_the_arguments(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    first = asked(assignments, alpha=3.0, n_clients=5)
    made, settings = resolve_partition(first, data)
    made.save(tmp_path / "run")
    # Without the assignments, with another seed and other arguments.
    other = asked(tmp_path, partition_file=tmp_path / "run", rand_seed=9, type="class_based", partition="paper")
    again, taken = resolve_partition(other, data)
    assert (again.client_of == made.client_of).all() and (again.groups == made.groups).all()
    assert taken.record() == settings.record()
    assert (taken.assign.rand_seed, taken.title) == (9, "embedding-based partition, equal_size, α = 3, seed 9")
    assert again.origin == {**made.origin, "partition_file": str(tmp_path / "run")}
    own = "--type embedding_based, --partition equal_size, --alpha 3.0, --n_clients 5"
    assert taken.instead_of(other) == [
        f"{tmp_path / 'run'} was assigned with {own}: these are taken, whatever the arguments are"
    ]
    assert taken.instead_of(replace(first, partition_file=tmp_path / "run")) == settings.instead_of(first) == []


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
    made = assigned(asked(assignments, partition=rule, **given), data)
    made.save(tmp_path / "run")
    _, taken = resolve_partition(asked(assignments, partition_file=tmp_path / "run"), data)
    assert taken.assign.partition == rule and given.items() <= taken.record().items()
    [name] = broken
    replace(made, origin={**made.origin, **broken}).save(tmp_path / "broken")
    with pytest.raises(UserError, match=f"{name} .* is not valid; make the partition again"):
        assigned(asked(assignments, partition_file=tmp_path / "broken"), data)


def test_a_partition_of_other_images_is_refused(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    made = assigned(asked(assignments), data)
    replace(made, origin={**made.origin, "table_sha256": "0"}).save(tmp_path / "other")
    with pytest.raises(UserError, match="another table"):
        assigned(asked(assignments, partition_file=tmp_path / "other"), data)
    held_out = made.client_of.copy()
    held_out[data.test[:3]] = 0
    replace(made, client_of=held_out).save(tmp_path / "held_out")
    with pytest.raises(UserError, match="assigns 3 images"):
        assigned(asked(assignments, partition_file=tmp_path / "held_out"), data)


def test_clusters_must_be_of_the_features_that_were_asked_for(data: TaskData, tmp_path: Path) -> None:
    clusters, projection = np.arange(len(data)) % 5, tmp_path / "reduced.npy"
    save_assignments(tmp_path, data, "target", clusters, np.zeros((5, 2)), 5, projection)
    with pytest.raises(UserError, match=r"clusters of the features target, not model; run .*--features model"):
        assigned(asked(tmp_path, features="model"), data)
    partition, made = resolve_partition(asked(tmp_path), data)
    assert partition.origin["features"] == "target" == made.features
    _, made = resolve_partition(asked(tmp_path, features="target", type="class_based"), data)
    assert made.features is None  # by which it was not assigned
