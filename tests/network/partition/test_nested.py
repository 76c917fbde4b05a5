"""Splits within natural groups: every client is of one group, whose clusters and draws are its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from datasets.table import TABLE_FILE, Table
from datasets.task_data import TaskData
from network.partition.assigning import assign, assign_by_settings
from network.partition.description import described_by, shown_by
from network.partition.nested import (
    Natural,
    clients_of_groups,
    clusters_within,
    joined,
    lines_within,
    names_within,
    owners_within,
    within_of,
)
from network.partition.resolve import resolve_partition
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings, PartitionSettings
from utils.errors import UserError
from utils.files import write_json

CITIES = np.repeat(["ulm", "bern", ""], [200, 90, 10])
KINDS = np.tile(np.arange(4), 75)
NATURAL = Natural.of("city", CITIES)
# Rules that need as many clients as groups, or fewer.
WHOLE = {"natural": 5, "commonest_object": 5}


def assigned(rule: str, n_clients: int | None = 6, seed: int = 0, natural: Natural = NATURAL, **options: object):
    """The kinds of all images, assigned within the cities."""
    asked = AssignSettings(seed, rule, 0.5, n_clients, options=options)
    return assign_by_settings(asked, joined(natural, KINDS), natural)


@pytest.mark.parametrize("rule", PARTITIONERS)
def test_clients_of_every_rule_are_of_one_natural_group(rule: str) -> None:
    partition = assigned(rule, WHOLE.get(rule, 6))
    owners = [set(CITIES[images].tolist()) for images in partition.clients]
    assert all(len(cities) == 1 and "" not in cities for cities in owners)
    # In the order of the names, and in proportion to 90 and 200 images.
    assert [cities.pop() for cities in owners] == ["bern"] * (partition.n_clients - 4) + ["ulm"] * 4
    assert (partition.sizes > 0).all() and (partition.client_of[CITIES == ""] == -1).all()
    assert partition.origin["within"] == "city"
    assert (assigned(rule, WHOLE.get(rule, 6)).client_of == partition.client_of).all()


@pytest.mark.parametrize("rule", ["paper", "equal_size", "iid"])
def test_the_draws_of_a_group_do_not_depend_on_the_others(rule: str) -> None:
    alone = Natural.of("city", np.where(CITIES == "ulm", "ulm", ""))
    both, one = assigned(rule, 6).client_of, assigned(rule, 4, natural=alone).client_of
    ulm = CITIES == "ulm"
    assert (both[ulm] == np.where(one[ulm] < 0, -1, one[ulm] + 2)).all()


def test_what_a_rule_cannot_assign_is_said_with_the_group() -> None:
    with pytest.raises(UserError, match=r"--within city, ulm: 4 groups cannot be assigned whole to 8 clients; give"):
        assigned("natural", 12)
    with pytest.raises(UserError, match=r"--within city, bern: --clients_per_group 1,2,2,1 is not for 2 clients in 4"):
        assigned("split_groups", clients_per_group=[1, 2, 2, 1])
    with pytest.raises(
        UserError, match=r"2 groups of 290 images cannot be assigned to 1 clients.*--n_clients 2 to 290"
    ):
        assigned("paper", 1)
    with pytest.raises(UserError, match="--n_clients auto is for --partition natural, not paper"):
        assigned("paper", None)


def test_auto_gives_each_pair_a_client() -> None:
    partition = assigned("natural", None)
    assert partition.n_clients == 8
    pairs = [set(zip(CITIES[i].tolist(), KINDS[i].tolist(), strict=True)) for i in partition.clients]
    assert all(map(len, pairs)) and max(map(len, pairs)) == 1


def test_clients_go_where_they_have_the_most_images_each() -> None:
    assert clients_of_groups(np.array([10, 10, 10]), 6).tolist() == [2, 2, 2]
    assert clients_of_groups(np.array([1, 1000]), 9).tolist() == [1, 8]
    # D'Hondt by hand: quotients of 60, 30, 9 over 1, 2, 3 …; after one each, 30, 20, 15 and 15 are the largest.
    assert clients_of_groups(np.array([60, 30, 9]), 7).tolist() == [4, 2, 1]
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.integers(1, 9, 5)
        clients = clients_of_groups(sizes, int(rng.integers(5, sizes.sum() + 1)))
        assert (clients >= 1).all() and (clients <= sizes).all()


def test_clusters_are_those_of_each_group_alone() -> None:
    rng = np.random.default_rng(0)
    blobs = rng.integers(0, 3, 300)
    points = np.array([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]])[blobs] + rng.normal(0, 0.3, (300, 2))
    points[CITIES == "bern"] += 100.0
    fit_on = np.flatnonzero(np.arange(300) % 3 > 0)
    clusters = clusters_within(points, fit_on, NATURAL, 3, seed=1)
    for city in ("ulm", "bern"):
        of = city == CITIES
        assert adjusted_rand_score(blobs[of], clusters[of]) == 1  # of the images that were not fitted to, too
    assert (clusters[CITIES == ""] == -1).all()
    alone = clusters_within(points, fit_on, Natural.of("city", np.where(CITIES == "ulm", "ulm", "")), 3, seed=1)
    assert (alone[CITIES == "ulm"] == clusters[CITIES == "ulm"]).all()
    moved = points.copy()
    held_out = np.setdiff1d(np.arange(300), fit_on)
    moved[held_out] += rng.normal(0, 50, (len(held_out), 2))
    assert (clusters_within(moved, fit_on, NATURAL, 3, 1)[fit_on] == clusters[fit_on]).all()


def test_groups_with_the_same_images_have_draws_of_their_own_by_their_names() -> None:
    """Twelve clusters of points that have none: where K-means ends depends on where it starts."""
    points = np.random.default_rng(0).uniform(size=(80, 2))
    natural = Natural.of("city", np.repeat(["ulm", "bern"], 80))
    bern, ulm = clusters_within(np.tile(points, (2, 1)), np.arange(160), natural, 12, seed=0).reshape(2, 80)
    assert adjusted_rand_score(bern, ulm) < 1


def test_a_group_with_too_few_different_images_has_fewer_clusters() -> None:
    texts = np.repeat(["a", "b", "c"], [20, 3, 4])
    points = np.concatenate([np.random.default_rng(0).normal(size=(23, 2)), np.zeros((4, 2))])
    natural = Natural.of("city", texts)
    pairs = joined(natural, clusters_within(points, np.arange(27), natural, 5, 0))
    assert [len(set(pairs[texts == city])) for city in "abc"] == [5, 3, 1]
    client_of = np.where(texts == "a", np.arange(27) % 2, np.where(texts == "b", 2, 3))
    assert list(lines_within(client_of, pairs, natural, 5)) == [
        "within city: 3 groups with 1 to 2 clients each",
        "fewer than 5 clusters in 2 groups, 1 at least: too few images",
    ]
    assert list(lines_within(client_of, pairs, natural, None)) == ["within city: 3 groups with 1 to 2 clients each"]


def test_clusters_that_were_found_count_whether_or_not_their_images_are_assigned() -> None:
    pairs = joined(NATURAL, KINDS)
    without_client = np.where(np.isin(pairs, [0, 4]), -1, 0)  # none of one cluster's images in each city
    assert list(lines_within(without_client, pairs, NATURAL, 4))[-1] == "10 images of no city: not assigned"


def test_a_group_without_images_to_fit_to_has_no_clusters() -> None:
    clusters = clusters_within(np.arange(300.0)[:, None], np.flatnonzero(CITIES == "ulm"), NATURAL, 2, 0)
    assert (clusters[CITIES == "bern"] == -1).all() and (clusters[CITIES == "ulm"] >= 0).all()


def test_pairs_have_the_names_of_their_groups() -> None:
    pairs = joined(NATURAL, KINDS)
    names = names_within(NATURAL, pairs)
    assert names == [*(f"bern {kind}" for kind in range(4)), *(f"ulm {kind}" for kind in range(4))]
    assert owners_within(NATURAL, pairs) == ["bern"] * 4 + ["ulm"] * 4
    assert all(names[pair].startswith(city) for pair, city in zip(pairs, CITIES, strict=True) if pair >= 0)
    said = list(lines_within(np.where(pairs < 0, -1, pairs), pairs, NATURAL, None))
    assert said == ["within city: 2 groups with 4 clients each", "10 images of no city: not assigned"]


# As test_fed.py asks for it


def asked(folder: Path, **changes: object) -> PartitionSettings:
    assign_settings = AssignSettings(1, "equal_size", 0.5, 4)
    return replace(PartitionSettings("embedding_based", assign_settings, 3, folder, within="building"), **changes)


@pytest.fixture
def embedded(data: TaskData, assignments: Path) -> Path:
    """Clusters of all images, with a projection that says each image's view."""
    points = np.random.default_rng(0).normal(size=(len(data.table), 3)).astype(np.float32)
    np.save(assignments.parent / "run" / "reduced.npy", points)
    return assignments


@pytest.mark.parametrize("kind", ["embedding_based", "class_based", "point_based", "iid"])
def test_a_run_draws_within_a_column(data: TaskData, embedded: Path, tmp_path: Path, kind: str) -> None:
    partition, split = resolve_partition(asked(embedded, type=kind), data)
    buildings = data.table.groups["building"]
    assert all(len(set(buildings[images])) == 1 for images in partition.clients)
    for pair in range(partition.groups.max() + 1):
        assert len(set(buildings[partition.groups == pair])) == 1
    assert (partition.client_of[data.test] == -1).all() and (partition.groups[data.test] >= 0).any()
    assert split.record()["within"] == "building" and " within building, " in split.title
    assert split.name.startswith("within_building_") and within_of(partition.origin, data.table).column == "building"
    groups, name, names = described_by(partition, kind, data.table)
    by_pair = kind == "embedding_based"
    assert (name, groups is partition.groups) == (("cluster", True) if by_pair else ("class", False))
    assert len(names) == (partition.groups.max() + 1 if by_pair else len(data.table.class_names))
    assert shown_by(partition, kind, data.table)[0] is groups
    # A saved partition brings the column along; another one is refused.
    partition.save(tmp_path / "saved")
    saved = asked(embedded, partition_file=tmp_path / "saved", within=None)
    assert resolve_partition(saved, data)[1].record() == split.record()
    with pytest.raises(UserError, match=r"--within point: .* was not assigned within point; omit one"):
        resolve_partition(replace(saved, within="point"), data)


def test_without_classes_pairs_describe_a_split(data: TaskData) -> None:
    table = replace(data.table, info=replace(data.table.info, classes={}), labels=np.full(len(data.table), -1))
    natural = Natural.in_table("building", table)
    partition = assign_by_settings(
        AssignSettings(0, "iid", n_clients=3), joined(natural, np.zeros(len(table), int)), natural
    )
    groups, name, names = described_by(partition, "iid", table)
    assert (groups is partition.groups, name) == (True, "image")
    assert names == [f"{building} 0" for building in natural.names]


def test_each_group_has_as_many_clusters_as_asked_for_whatever_stage_3_made(data: TaskData, embedded: Path) -> None:
    partition, _ = resolve_partition(asked(embedded, n_clusters=2), data)  # the assignments have five
    for building in set(data.table.groups["building"]):
        assert len(set(partition.groups[data.table.groups["building"] == building])) == 2


def test_wrong_columns_and_missing_projections_are_one_line(data: TaskData, embedded: Path, table: Table) -> None:
    with pytest.raises(
        UserError, match=r"--within city: the table of images has no such column; give one of building, point"
    ):
        resolve_partition(asked(embedded, within="city"), data)
    with pytest.raises(UserError, match="--within city: no image has a value there"):
        Natural.of("city", np.array(["", ""]))
    bare = replace(table, groups={})
    with pytest.raises(UserError, match="it has no natural groups"):
        Natural.in_table("city", bare)
    (embedded.parent / "run" / "reduced.npy").unlink()
    with pytest.raises(UserError, match=r"no projection of the embeddings.*run extract_embeddings\.py --task normal"):
        resolve_partition(asked(embedded), data)
    write_json(embedded / "assignments_normal.json", {TABLE_FILE: "of other images", "n_clusters": 5})
    with pytest.raises(UserError, match="was made from another table of images"):
        resolve_partition(asked(embedded), data)


def test_a_split_within_one_group_of_all_is_the_rules_own() -> None:
    """With a single natural group the rule assigns as it does alone, but for its stream of random numbers."""
    one = Natural.of("city", np.repeat("ulm", 300))
    assert (joined(one, KINDS) == KINDS).all()
    sizes = assigned("shards", natural=one, shards_per_client=2).sizes
    assert sizes.tolist() == assign("shards", KINDS, 6, 0.5, 0, shards_per_client=2).sizes.tolist()


def test_groups_are_numbered_by_size_where_all_names_are_numbers() -> None:
    numbers = Natural.of("user", np.array(["10", "9", "", "2", "10"]))
    assert (numbers.names, numbers.numbers.tolist()) == (["2", "9", "10"], [2, 1, -1, 0, 2])
    assert Natural.of("user", np.array(["10", "9a", "2"])).names == ["10", "2", "9a"]
    assert Natural.of("user", np.array(["1.5", "-3", "01", "1"])).names == ["-3", "01", "1", "1.5"]
