"""The benchmark of equivalent alphas, made small: clients as it says, and a row for each number of groups."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks import equivalent_alpha, partition
from network.partition import own_clients


def test_table_has_every_number_of_groups(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("CLIENTS", 20), ("IMAGES", 400), ("GROUPS", (2, 5))):
        monkeypatch.setattr(equivalent_alpha, name, value)
    monkeypatch.setattr(partition, "REPEATS", 1)
    for name in ("bootstrap", "misfit"):
        monkeypatch.setattr(own_clients, name, partial(getattr(own_clients, name), draws=9))
    equivalent_alpha.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == ["groups", "2", "5"]


def test_groups_are_drawn_from_the_clients_mixtures() -> None:
    client_of, groups = equivalent_alpha.pairs(4, 8000, 3, np.random.default_rng(0))
    below = np.random.default_rng(0)
    below.integers(0, 4, 8000)
    mixtures = below.dirichlet(np.full(3, 0.5 / 3), 4)
    for client, mixture in enumerate(mixtures):
        own = np.bincount(groups[client_of == client], minlength=3)
        assert own / own.sum() == pytest.approx(mixture, abs=0.04)
