"""The way back: a rule and α that assign clients like the given ones."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from network.partition.assigning import assign
from network.partition.equivalent_alpha import equivalent_alpha, per_class_alpha
from network.partition.heterogeneity import group_counts
from network.partition.own_clients import Measured, OwnClients
from network.partition.simulated_clients import EMD, IMBALANCE, Shares, Simulated, simulate

GROUPS = np.repeat(np.arange(8), 150)


def simulated(
    name: str, client_of: np.ndarray, groups: np.ndarray, shares: Shares, of_table: Collection[str] = ()
) -> list[Simulated]:
    """As `measure_clients.py` makes them, without the measures that do not matter here."""
    estimate = equivalent_alpha(group_counts(client_of, groups, client_of.max() + 1))
    per_class = per_class_alpha(estimate.alpha, estimate.population)
    groups_present = int((estimate.population > 0).sum())
    measured = Measured(name, groups_present, estimate, (0, 0), 1, per_class, {}, 0, 0, 0)
    return simulate(OwnClients(client_of, {name: groups}, of_table), measured, 0, shares)


@pytest.mark.parametrize(("rule", "alpha"), [("equal_size", 1.0), ("dirichlet_per_class", 0.3)])
def test_the_rule_that_assigned_the_clients_deals_such_again(rule: str, alpha: float) -> None:
    nearest, *others = simulated("class", assign(rule, GROUPS, 30, alpha, seed=5).client_of, GROUPS, {})
    assert nearest.rule == rule and nearest.alpha == pytest.approx(alpha, rel=0.35)
    assert nearest.drawn[EMD] == pytest.approx(nearest.own[EMD], abs=0.12)
    assert nearest.drawn[IMBALANCE] == pytest.approx(nearest.own[IMBALANCE], abs=0.2)
    assert [each.distance for each in others] == sorted(each.distance for each in others)


def test_each_client_with_one_group_is_simulated_at_alpha_0() -> None:
    [only] = simulated("user", GROUPS, GROUPS, {})
    assert only.arguments == "--partition dirichlet_hsu --alpha 0 --n_clients 8"
    assert only.drawn == only.own


def test_arguments_name_what_is_assigned_and_can_be_read_from_a_file(tmp_path: Path) -> None:
    client_of = np.where(np.arange(len(GROUPS)) < 1190, np.arange(len(GROUPS)) % 6 + 3, -1)  # of clients 3 to 8
    share = {"normal": lambda client_of, n: (client_of.max() + n) / 16}
    [of_class] = simulated("class", client_of, GROUPS // 4, share, ["class"])
    assert of_class.arguments == "--type class_based --partition iid --n_clients 6"
    of_file = simulated("class", client_of, GROUPS // 4, {})[0]  # which make_partition.py assigns
    assert of_file.arguments == "--partition iid --n_clients 6"
    assert of_class.row()["normal_share"] == of_class.row()["normal_share_simulated"] == 0.6875
    skewed = np.where(GROUPS == 0, -1, (GROUPS + client_of // 2) % 3)
    of_clusters = simulated("clusters of normal", client_of, skewed, {}, ["clusters of normal"])[0]
    words = shlex.split(of_clusters.save(tmp_path).read_text(), comments=True)
    assert words[:4] == ["--type", "embedding_based", "--n_clusters", "3"] and words[-2:] == ["--n_clients", "6"]
