"""Clients that are there already: read from files, a table or a partition, and measured by each grouping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.table import Table
from network.partition.assigning import Partition
from network.partition.own_clients import OwnClients, measure, own_clients, target_shares
from tests.network.partition.test_equivalent_alpha import drawn
from tests.network.partition.test_flower_partitions import save as save_client
from utils.errors import UserError


def no_table() -> tuple[Table, Path]:
    """For clients that are not a table's."""
    raise AssertionError("no table is asked for")


def save(folder: Path, **arrays: list) -> None:
    """Each as `<name>.npy`."""
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", np.array(values))


def test_clients_and_groups_of_files_are_numbered(tmp_path: Path) -> None:
    save(tmp_path, who=["b", "a", "b", "c"], what=[7, 3, -1, 7])
    found = own_clients(f"{tmp_path}/who.npy", [("class", f"{tmp_path}/what.npy")], None, no_table)
    assert found.client_of.tolist() == [1, 0, 1, 2]
    assert {name: groups.tolist() for name, groups in found.groupings.items()} == {"class": [1, 0, -1, 1]}
    assert not found.of_table


def test_a_saved_partition_has_its_clients_and_its_groups(tmp_path: Path) -> None:
    client_of, groups = np.array([0, 1, -1, 1], np.int32), np.array([2, 0, 0, 1])
    Partition(client_of, groups, 2).save(tmp_path)
    save(tmp_path, what=[0, 1, 0, 1])
    found = own_clients(None, [("class", f"{tmp_path}/what.npy")], tmp_path, None)
    assert found.client_of.tolist() == client_of.tolist()
    assert [*found.groupings] == ["assigned groups", "class"]
    assert found.groupings["assigned groups"].tolist() == groups.tolist()


def test_a_column_of_a_table_has_its_classes_and_its_clusters(
    table: Table, assignments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(assignments / "assignments_reshading.npy", np.zeros(3, int))
    found = own_clients("building", [], None, lambda: (table, assignments))
    assert [*found.groupings] == [*found.of_table] == ["class", "clusters of normal"]
    assert (found.groupings["class"] == table.labels).all()
    assert (np.array(["aspen", "birch"])[found.client_of] == table.groups["building"]).all()
    assert "left out: " in capsys.readouterr().out
    with pytest.raises(UserError, match="no such column of natural groups, but building"):
        own_clients("hospital", [], None, lambda: (table, assignments))


@pytest.mark.parametrize(
    ("clients", "groups", "error"),
    [
        (None, [], "whose images"),
        ("who.npy", [], "clients differ by what"),
        ("who.npy", [("class", "short.npy")], "class: 3 groups but 4 images"),
        ("who.npy", [("class", "what.npy"), ("class", "what.npy")], "another grouping is called class"),
        ("nobody.npy", [("class", "what.npy")], "not a readable .npy"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: str | None, groups: list, error: str
) -> None:
    save(tmp_path, who=[0, 0, 1, 1], what=[0, 1, 0, 1], short=[0, 1, 0])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=error):
        own_clients(clients, groups, None, no_table)


def test_each_grouping_is_measured_of_the_images_that_have_a_client_and_a_group() -> None:
    counts = drawn(0.5, 12, 30, 5, seed=0)
    pairs = [(client, group) for (client, group), n in np.ndenumerate(counts) for _ in range(n)]
    client_of, groups = (np.array(column) for column in zip(*pairs, strict=True))
    alike = np.arange(len(groups)) % 5
    beside = np.append(client_of, -1), {"skewed": np.append(groups, 3), "even": np.append(alike, 0)}
    skewed, even = measure(OwnClients(*beside), seed=0)
    assert skewed.estimate.images == 360 and skewed.groups == 5
    assert skewed.estimate.low < 0.5 < skewed.estimate.high and skewed.per_class < 0.5
    shares, mixture = counts / 30, counts.sum(axis=0) / 360
    distances = np.abs(shares - mixture).sum(axis=1)
    assert (skewed.emd, skewed.largest_emd) == pytest.approx((distances.mean(), distances.max()))
    assert np.isinf(even.estimate.alpha) and set(even.by_groups) == {4}
    assert even.sentence().startswith("even: like IID clients, α at least ")
    assert skewed.row()["alpha_at_4_groups"] == skewed.by_groups[4] and skewed.row()["alpha_at_8_groups"] is None


def test_a_grouping_that_tells_nothing_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    groupings = {"class": np.zeros(4, int), "cluster": np.array([0, 0, 1, 1])}
    [cluster] = measure(OwnClients(np.array([0, 0, 1, 1]), groupings), seed=0)
    assert cluster.estimate.alpha == 0 and cluster.sentence().startswith("cluster: as different as clients can be")
    assert capsys.readouterr().out.startswith("left out: class: all images are of one group")
    with pytest.raises(UserError, match="by none of the groupings"):
        measure(OwnClients(np.array([0, 0, 0, 0]), groupings), seed=0)
    assert "cluster: 1 of the clients have images" in capsys.readouterr().out


def test_a_partition_has_the_groupings_of_its_table_beside(table: Table, assignments: Path, tmp_path: Path) -> None:
    client_of = np.arange(len(table)) % 2
    Partition(client_of.astype(np.int32), np.zeros(len(table), np.int64), 2).save(tmp_path)
    found = own_clients(None, [], tmp_path, lambda: (table, assignments))
    assert [*found.groupings] == ["assigned groups", "class", "clusters of normal"]
    Partition(client_of[:-1].astype(np.int32), np.zeros(len(table) - 1, np.int64), 2).save(tmp_path)
    with pytest.raises(UserError, match=f"class: {len(table)} groups but {len(table) - 1} images"):
        own_clients(None, [], tmp_path, lambda: (table, assignments))


def test_flowers_partitions_have_their_clients_and_classes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    save_client(tmp_path / "partition_0", label=[0, 1], writer=["a", "b"])
    save_client(tmp_path / "partition_1", label=[1], writer=["b"])
    found = own_clients(None, [("who", "writer")], tmp_path, None)
    assert found.client_of.tolist() == [0, 0, 1]
    assert {name: groups.tolist() for name, groups in found.groupings.items()} == {"label": [0, 1, 1], "who": [0, 1, 1]}


def test_clients_of_one_class_each_have_all_of_its_variance_between_them(table: Table) -> None:
    shares = target_shares(table, ["class_scene"], len(table))
    assert shares["class_scene"](table.labels, len(table.class_names)) == pytest.approx(1.0)
    with pytest.raises(UserError, match=f"the table has {len(table)} images, but clients are given of 3"):
        target_shares(table, ["class_scene"], 3)
