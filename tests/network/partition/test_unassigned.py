"""Images that no client has: they are counted, refused where they are too many, and taken away evenly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.partition.assigning import assign_by_settings, read_partition
from network.partition.nested import Natural, joined
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings, PartitionSettings
from network.partition.unassigned import thinned, unassigned_lines
from utils.errors import UserError

MANY = np.repeat(np.arange(100), 50)
ASKED = AssignSettings(0, "paper", n_clients=10)


def test_few_clients_of_many_groups_are_refused_unless_that_is_allowed() -> None:
    # At alpha 0.1 a client has one or two of the hundred groups.
    with pytest.raises(UserError, match=r"assigns \d{3} of 5,000 images to 10 clients, and nothing of \d\d of 100"):
        assign_by_settings(ASKED, MANY)
    allowed = replace(ASKED, allow_unassigned=1.0)
    partition = assign_by_settings(allowed, MANY)
    assigned = PARTITIONERS["paper"](MANY, 10, 0.1, np.random.default_rng(0)) >= 0
    assert 0.05 < (partition.client_of >= 0).mean() < 0.15 and 0.05 < assigned.mean() < 0.15
    [line] = unassigned_lines(partition.client_of, MANY)
    left = int((partition.client_of < 0).sum())
    nobodys = sorted({*MANY.tolist()} - {*MANY[partition.client_of >= 0].tolist()})
    named = ", ".join(map(str, nobodys[:8]))
    assert line == (
        f"{left:,} of 5,000 images ({left / 50:.2g} %) have no client, among them all of {len(nobodys)} of 100 groups: "
        f"{named} and {len(nobodys) - 8} more"
    )


def test_what_the_error_tells_to_allow_is_enough() -> None:
    for seed in range(2):
        asked = replace(ASKED, rand_seed=seed)
        with pytest.raises(UserError) as error:
            assign_by_settings(asked, MANY)
        assign_by_settings(replace(asked, allow_unassigned=float(str(error.value).split()[-1])), MANY)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_the_papers_own_setting_is_never_refused(alpha: float) -> None:
    groups = np.random.default_rng(1).integers(0, 16, 800)
    for seed in range(3):
        assign_by_settings(AssignSettings(seed, "paper", alpha=alpha, n_clients=25), groups)


@pytest.mark.parametrize("rule", sorted(PARTITIONERS))
def test_no_rule_leaves_an_image_out_without_a_line(rule: str) -> None:
    groups = np.append(np.arange(107) % 7, [-1, -1])
    partition = assign_by_settings(
        AssignSettings(3, rule, n_clients=7, min_client_ds_len=1, allow_unassigned=1), groups
    )
    left, apart = int((partition.client_of[:107] < 0).sum()), "2 images in no group have no client"
    lines = unassigned_lines(partition.client_of, groups)
    assert lines[-1] == apart and len(lines) == 1 + bool(left)
    assert not left or lines[0].startswith(f"{left} of 107 images (")


def test_a_share_that_the_user_chooses_is_not_refused() -> None:
    share = {"clients_per_group": None, "client_share": 0.1}
    partition = assign_by_settings(
        AssignSettings(0, "split_groups", n_clients=4, options=share), np.repeat([0, 1], 100)
    )
    assert partition.sizes.tolist() == [10] * 4


def test_names_of_groups_and_one_image() -> None:
    [line] = unassigned_lines(np.array([0, -1, 0]), np.array([0, 1, 0]), ["cat", "dog"], "class")
    assert line == "1 of 3 images (33 %) has no client, among them all of 1 of 2 classes: dog"
    assert unassigned_lines(np.zeros(3, int), np.zeros(3, int)) == []


def test_all_runs_have_as_many_images_as_they_are_given() -> None:
    groups = np.arange(900) % 10
    for rule in ("paper", "iid", "equal_size", "dirichlet_per_class"):
        asked = AssignSettings(1, rule, alpha=1.0, n_clients=20)
        whole, fewer = assign_by_settings(asked, groups), assign_by_settings(replace(asked, n_images=500), groups)
        assert int(fewer.sizes.sum()) == 500
        assert (fewer.client_of[fewer.client_of >= 0] == whole.client_of[fewer.client_of >= 0]).all()
        share = 500 / whole.sizes.sum()
        assert np.abs(fewer.sizes - share * whole.sizes).max() < 1
        assert fewer.origin["n_images"] == 500 and "n_images" not in whole.origin
    with pytest.raises(UserError, match="--n_images 901 is more than the 900 that are assigned"):
        assign_by_settings(AssignSettings(1, "iid", n_clients=20, n_images=901), groups)


def test_thinning_keeps_mixtures_on_average() -> None:
    client_of, groups = np.arange(4000) % 4, np.arange(4000) // 4 % 5
    kept = thinned(client_of, 1000, np.random.default_rng(0)) >= 0
    # 200 of each group are expected, with a hypergeometric standard deviation of 11.
    assert np.abs(np.bincount(groups[kept]) - 200).max() < 45
    with pytest.raises(UserError, match="--n_images 3 leaves a client without images"):
        thinned(client_of, 3, np.random.default_rng(0))


def test_too_few_images_a_client_are_refused_after_thinning() -> None:
    asked = AssignSettings(0, "iid", n_clients=5, min_client_ds_len=30, n_images=100)
    with pytest.raises(UserError, match="the smallest of 5 clients has 20 images, fewer than 30"):
        assign_by_settings(asked, np.zeros(200, int))


def test_within_natural_groups_all_of_them_together_count() -> None:
    natural = Natural.of("city", np.repeat(["bern", "ulm"], 600))
    with pytest.raises(UserError, match="of 1,200 images to 6 clients"):
        assign_by_settings(replace(ASKED, n_clients=6), joined(natural, np.tile(np.arange(12), 100)), natural)


def test_runs_with_fewer_images_have_a_name_of_their_own(tmp_path: Path) -> None:
    asked = AssignSettings(0, "iid", n_clients=5, n_images=100)
    split = PartitionSettings("iid", asked, 10, tmp_path)
    assert (split.name, split.title) == ("n_images100_seed0", "IID partition, n_images = 100, seed 0")
    assert split.record()["n_images"] == 100 and "allow_unassigned" not in split.record()
    assert "n_images" not in replace(split, assign=replace(asked, n_images=None)).record()
    assign_by_settings(asked, np.zeros(200, int)).save(tmp_path)
    assert read_partition(tmp_path).origin["n_images"] == 100
