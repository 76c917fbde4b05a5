"""What partitions are called in titles and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from network.partition.settings import PartitionSettings, unread_by


def split(kind: str, partition: str, **changes: object) -> PartitionSettings:
    given = {"alpha": 0.1, "n_clients": 4, "min_client_ds_len": None, "rand_seed": 42, "n_clusters": 5}
    paths = {"features": None, "partition_file": None, "assignment_files_path": Path()}
    return PartitionSettings.from_config({"type": kind, "partition": partition, **given, **paths, **changes})


@pytest.mark.parametrize(
    ("kind", "partition", "changes", "title", "name"),
    [
        ("class_based", "paper", {}, "class-based partition, α = 0.1, seed 42", "alpha0.1_seed42"),
        ("class_based", "equal_size", {"alpha": 2}, "class-based partition, equal_size, α = 2, seed 42",
         "equal_size_alpha2_seed42"),
        ("domain_based", "natural", {}, "domain-based partition, natural, seed 42", "natural_seed42"),
        ("class_based", "shards", {}, "class-based partition, shards, seed 42", "shards_seed42"),
        ("class_based", "shards", {"shards_per_client": 3},
         "class-based partition, shards, shards_per_client = 3, seed 42", "shards_shards_per_client3_seed42"),
        ("class_based", "split_groups", {"clients_per_group": [1, 3]},
         "class-based partition, split_groups, clients_per_group = 1-3, seed 42",
         "split_groups_clients_per_group1-3_seed42"),
        ("class_based", "dirichlet_per_class", {"balanced": False},
         "class-based partition, dirichlet_per_class, α = 0.1, balanced = False, seed 42",
         "dirichlet_per_class_alpha0.1_balancedFalse_seed42"),
        ("class_based", "dirichlet_per_class", {"balanced": True},  # as before there was the argument
         "class-based partition, dirichlet_per_class, α = 0.1, seed 42", "dirichlet_per_class_alpha0.1_seed42"),
        ("iid", "paper", {}, "IID partition, seed 42", "seed42"),
        ("iid", "shards", {"shards_per_client": 3}, "IID partition, seed 42", "seed42"),  # assigned by the rule iid
        ("class_based", "iid", {"alpha": 5}, "class-based partition, iid, seed 42", "iid_seed42"),
    ],
)  # fmt: skip
def test_alpha_is_in_names_of_rules_that_use_it_alone(
    kind: str, partition: str, changes: dict, title: str, name: str
) -> None:
    settings = split(kind, partition, **changes)
    assert (settings.title, settings.name) == (title, name)


def test_names_of_folders_stay_short() -> None:
    one, other = (split("class_based", "split_groups", clients_per_group=[n] * 200).name for n in (1, 2))
    assert one != other and max(len(one), len(other)) < 60


def test_a_random_split_reads_neither_alpha_nor_clusters_nor_a_rule() -> None:
    by_rule = {"balanced", "shards_per_client", "clients_per_group", "client_share"}
    assert unread_by("iid") == {"alpha", "partition", "n_clusters"} | by_rule
    assert unread_by("class_based") == set()
