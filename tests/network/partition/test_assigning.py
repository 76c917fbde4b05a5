"""Partitions as they are saved and read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network.partition.assigning import Partition, assign, assign_by_settings, read_partition
from network.partition.saved_partition import client_column, clients
from network.partition.settings import AssignSettings, add_partition, resolve_rule
from utils.args import Parser
from utils.errors import UserError

GROUPS = np.where(np.arange(90) % 9 == 0, -1, np.arange(90) % 4)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    assign("equal_size", GROUPS, 4, 1.0, seed=2).save(tmp_path / "out")
    return tmp_path / "out"


@settings(max_examples=30, deadline=None)
@given(owners=st.lists(st.integers(-1, 4), min_size=1, max_size=40))
def test_clients_are_the_images_that_are_theirs(owners: list[int]) -> None:
    partition = Partition(np.array(owners, np.int32), np.zeros(len(owners), np.int64), 5)
    assert [c.tolist() for c in partition.clients] == [[i for i, o in enumerate(owners) if o == k] for k in range(5)]
    assert partition.sizes.tolist() == [owners.count(client) for client in range(5)]


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    partition = assign("shards", GROUPS, 4, 1.0, 7, None, shards_per_client=3)
    partition.save(tmp_path)
    for path in (tmp_path, tmp_path / "partition.json"):
        again = read_partition(path)
        assert (again.client_of == partition.client_of).all() and again.client_of.dtype == np.int32
        assert (again.groups == GROUPS).all()
        assert again.n_clients == 4
        assert again.origin == {
            "rule": "shards", "alpha": 1.0, "min_client_ds_len": None, "rand_seed": 7, "shards_per_client": 3,
        }  # fmt: skip


def test_the_files_agree(tmp_path: Path) -> None:
    partition = assign("equal_size", GROUPS, 4, 1.0, seed=2)
    names, classes = [f"image {i}" for i in range(90)], np.arange(90) // 10
    partition.save(tmp_path, names, classes)
    table = pd.read_csv(tmp_path / "partition.csv")
    assert list(table) == ["user_id", "image_id", "class", "cluster"]
    for client, images in enumerate(partition.clients):
        part = table[table["user_id"] == client]
        assert part["image_id"].tolist() == [names[image] for image in images]
        assert part["class"].tolist() == classes[images].tolist()
        assert part["cluster"].tolist() == GROUPS[images].tolist()
    assert clients(tmp_path) == [images.tolist() for images in partition.clients]
    assert (client_column(tmp_path) == partition.client_of).all()
    assert json.loads((tmp_path / "partition.json").read_text())["client_sizes"] == [20, 20, 20, 20]


def test_images_without_names_are_numbered(saved: Path) -> None:
    table = pd.read_csv(saved / "partition.csv")
    assert list(table) == ["user_id", "image_id", "cluster"]
    assert (np.load(saved / "partition.npy")[table["image_id"]] == table["user_id"]).all()


def overwrite(path: Path, array: np.ndarray) -> None:
    np.save(path, array)


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda folder: (folder / "partition.json").unlink(), "is missing; run"),
        (lambda folder: (folder / "partition.npy").unlink(), "not a readable partition"),
        (lambda folder: (folder / "groups.npy").write_text("no array"), "not a readable partition"),
        (lambda folder: (folder / "partition.json").write_text("[]"), "not a readable partition"),
        (lambda folder: (folder / "partition.json").write_text("{"), "cannot be read"),
        (lambda folder: overwrite(folder / "groups.npy", GROUPS[::-1]), "do not belong together"),
        (lambda folder: overwrite(folder / "partition.npy", np.zeros(90, np.int32)), "do not belong together"),
        (lambda folder: overwrite(folder / "partition.npy", np.zeros(9, np.int32)), "do not belong together"),
        (lambda folder: overwrite(folder / "partition.npy", np.full(90, 4, np.int32)), "do not belong together"),
        (lambda folder: overwrite(folder / "partition.npy", np.full(90, "a")), "not a readable partition"),
    ],
)
def test_what_is_broken_gets_a_clear_line(saved: Path, harm: object, text: str) -> None:
    harm(saved)
    with pytest.raises(UserError, match=text):
        read_partition(saved)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        read_partition(tmp_path / "nowhere")


def test_arguments_reach_the_rule() -> None:
    parser = Parser("")
    add_partition(parser)
    args = parser.parse_args(["--partition", "shards", "--n_clients", "5", "--shards_per_client", "4"])
    asked = assign_by_settings(AssignSettings.from_config(vars(args) | {"rand_seed": 3}), GROUPS)
    assert (asked.client_of == assign("shards", GROUPS, 5, 0.1, 3, shards_per_client=4).client_of).all()
    args = parser.parse_args(["--partition", "equal_size", "--n_clients", "5", "--min_client_ds_len", "17"])
    with pytest.raises(UserError, match="fewer than 17"):
        assign_by_settings(AssignSettings.from_config(vars(args) | {"rand_seed": 3}), GROUPS)


def test_a_rules_defaults_are_among_the_arguments_and_those_of_others_are_refused() -> None:
    parser = Parser("")
    add_partition(parser)
    config = resolve_rule(vars(parser.parse_args(["--partition", "split_groups"])))
    assert (config["clients_per_group"], config["client_share"]) == (None, 1.0) and "shards_per_client" not in config
    args = parser.parse_args(["--partition", "split_groups", "--shards_per_client", "2"])
    with pytest.raises(UserError, match="--shards_per_client is not an argument of --partition split_groups but of"):
        resolve_rule(vars(args))


def test_the_same_seed_deals_the_same_and_another_does_not() -> None:
    one, same, other = (assign("equal_size", GROUPS, 5, 0.5, seed) for seed in (1, 1, 2))
    assert (one.client_of == same.client_of).all()
    assert (one.client_of != other.client_of).any()
