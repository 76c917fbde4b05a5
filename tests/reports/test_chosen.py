"""Whom a rule keeps, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from network.aggregation import AGGREGATIONS
from network.attacks import ATTACKS
from reports.chosen import chosen_clients
from tests.network import quadratic as q

CLIENTS = [np.array([0, 1]), np.array([2, 3]), np.array([4]), np.array([5]), np.array([6]), np.array([7])]
HELD_OUT = [np.arange(8, 11), *[np.zeros(0, np.int64)] * 5]


def test_clients_are_counted_and_compared_with_all(tmp_path: Path) -> None:
    run = q.trained(
        q.method("fedavg"),
        tmp_path,
        replace(q.SETTINGS, n_rounds=6),
        clients=CLIENTS,
        clients_per_round=5,
        held_out=HELD_OUT,
        aggregation=AGGREGATIONS["multi_krum"](n_chosen=2),
        attack=ATTACKS["sign_flip"](attackers=1.0),
    )
    groups = np.array([0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0])
    run.data = replace(run.data, groups=groups)
    table = chosen_clients(run).set_index("client")
    kept = [row["chosen"].split() for row in run.rows[1:]]
    assert all(len(of_round) == 2 for of_round in kept)
    assert table["chosen"].to_dict() == {c: sum(str(c) in of_round for of_round in kept) for c in table.index}
    assert table["rounds"].to_dict() == {c: sum(c in run.cohort(r) for r in range(6)) for c in table.index}
    assert table.index[table["attacker"]].tolist() == sorted(run.attackers)
    # Of all clients' images, three are of group 0 and five of group 1.
    assert np.allclose(table["distance"][[0, 1, 2]], [1 / 2 - 3 / 8, 1 - 3 / 8, 3 / 8])


def test_other_rules_choose_nobody(tmp_path: Path) -> None:
    assert chosen_clients(q.trained(q.method("fedavg"), tmp_path)) is None
