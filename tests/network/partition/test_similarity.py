"""How alike clusterings are, by hand, by a matching, and by what a metric promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from datasets.table import TABLE_FILE, Table
from network.partition.similarity import read_clusterings, similarity_tables, transport_distance
from utils.errors import UserError
from utils.files import write_json

IDS = st.lists(st.integers(0, 3), min_size=12, max_size=12).map(np.array)


def test_transport_distance_by_hand() -> None:
    # {0, 1}, {2, 3} against {0, 1, 2}, {3}: costs 1 - 2/3, 1 - 0, 1 - 1/3, 1 - 1/2; weights 1/2, 1/2 to 3/4, 1/4.
    # 1/2 at cost 1/3 and 1/4 each at 2/3 and 1/2: 1/6 + 1/6 + 1/8.
    assert transport_distance(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 2])) == pytest.approx(1 / 6 + 1 / 6 + 1 / 8)


def test_transport_between_clusters_of_equal_size_is_a_matching() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.permutation(np.repeat(np.arange(6), 10)) for _ in range(2))
    overlap = np.array([[np.sum((first == a) & (second == b)) for b in range(6)] for a in range(6)])
    rows, columns = linear_sum_assignment(-overlap)  # by Birkhoff, no fractional plan is better
    assert transport_distance(first, second) == pytest.approx(1 - overlap[rows, columns].sum() / 60)


@settings(max_examples=40, deadline=None)
@given(first=IDS, second=IDS, third=IDS, names=st.permutations(range(4)))
def test_transport_distance_is_a_metric_on_partitions(
    first: np.ndarray, second: np.ndarray, third: np.ndarray, names: list[int]
) -> None:
    distance = transport_distance(first, second)
    assert distance == pytest.approx(transport_distance(second, first))
    assert 0 <= distance < 1
    assert distance <= transport_distance(first, third) + transport_distance(third, second) + 1e-9
    assert transport_distance(first, np.array(names)[first]) == pytest.approx(0)
    same = len(set(zip(first, second, strict=True))) == len(set(first)) == len(set(second))
    assert (distance < 1e-9) == same


def test_unrelated_partitions_are_far_apart() -> None:
    ids = np.arange(256)
    information, transport = similarity_tables({"a": ids % 16, "b": ids // 16})
    # Each cluster of the one has one image, 1/16, of each of the other.
    assert transport.loc["a", "b"] == pytest.approx(1 - 1 / 16)
    assert information.loc["a", "b"] < 0
    assert information.loc["a", "a"] == pytest.approx(1) and transport.loc["a", "a"] == 0


def test_tables_leave_out_images_without_a_cluster() -> None:
    first, second = np.array([0, 0, 1, 1, -1, 0]), np.array([1, 1, 0, 0, 0, -1])
    information, transport = similarity_tables({"a": first, "b": second})
    assert information.to_numpy() == pytest.approx(np.ones((2, 2)))
    assert transport.to_numpy() == pytest.approx(np.zeros((2, 2)))


def test_all_tasks_of_a_folder_stand_beside_the_classes(table: Table, tmp_path: Path) -> None:
    assert read_clusterings(tmp_path, table) == ({}, [])
    for task in ("normal", "depth_euclidean"):
        np.save(tmp_path / f"assignments_{task}.npy", np.arange(len(table)) % 3)
        origin = {TABLE_FILE: table.fingerprint, "n_clusters": 3}
        write_json(tmp_path / f"assignments_{task}.json", origin)
    found, of_others = read_clusterings(tmp_path, table)
    assert of_others == [] and list(found) == ["depth_euclidean", "normal", "classes"]
    assert (found["classes"] == table.labels).all()
    write_json(tmp_path / "assignments_normal.json", {TABLE_FILE: "other", "n_clusters": 3})
    found, of_others = read_clusterings(tmp_path, table)
    assert list(found) == ["depth_euclidean", "classes"] and of_others == ["normal"]
    write_json(tmp_path / "assignments_depth_euclidean.json", {TABLE_FILE: table.fingerprint, "n_clusters": 2})
    with pytest.raises(UserError, match=r"needs .* ids"):
        read_clusterings(tmp_path, table)
