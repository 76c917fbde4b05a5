"""How a client's learning rate falls, and how clients are spread over processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from network.engine.client import Schedule, longest_first
from tests.network import quadratic as q
from tests.network.quadratic import local_of


def test_the_plateau_schedule_follows_the_published_rule() -> None:
    rng = np.random.default_rng(0)
    losses = torch.tensor(np.r_[np.linspace(2, 1, 12), rng.uniform(0.9, 1.4, 28)], dtype=torch.float32)
    settings = replace(q.SETTINGS, lr_schedule="plateau", lr_decay_rate=0.9, no_improvement_tolerance=4, init_lr=0.1)
    state: dict[str, Tensor] = {}
    schedule = Schedule(local_of(settings, state=state), 40, torch.device("cpu"))
    # The rule in plain Python: from the fourth step in a row without a new lowest mean of five, 0.9 a step.
    lr, best, since = 0.1, np.inf, 0
    for step, loss in enumerate(losses):
        schedule.before(step)
        schedule.after(loss)
        if step >= 4:
            mean = losses[step - 4 : step + 1].mean().item()
            best, since = (mean, 0) if mean < best else (best, since + 1)
            lr *= 0.9 if since >= 4 else 1.0
        assert schedule.lr.item() == pytest.approx(lr, rel=1e-5)
    assert lr < 0.05
    # It carries over to the same phase of the next round, and to no other.
    assert Schedule(local_of(settings, state=state), 40, torch.device("cpu")).lr.item() == pytest.approx(lr, rel=1e-5)
    other = local_of(settings, state=state)
    other.phase = "head"
    assert Schedule(other, 40, torch.device("cpu")).lr.item() == pytest.approx(0.1)


def test_cosine_falls_from_the_initial_rate_to_nothing_over_all_rounds() -> None:
    settings = replace(q.SETTINGS, lr_schedule="cosine", n_rounds=4, init_lr=0.05)
    rates = []
    for round in range(4):
        schedule = Schedule(local_of(settings, round), 5, torch.device("cpu"))
        for step in range(5):
            schedule.before(step)
            rates.append(schedule.lr.item())
    # Twenty steps: rate i is 0.05 * (1 + cos(pi i / 20)) / 2.
    assert np.allclose(rates, 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20)) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "schedule, expected", [("step", [0.05, 0.04, 0.032, 0.0256]), ("linear", [0.05, 0.0375, 0.025, 0.0125])]
)
def test_rate_falls_from_round_to_round_and_stays_within_it(schedule: str, expected: list[float]) -> None:
    settings = replace(q.SETTINGS, lr_schedule=schedule, n_rounds=4, init_lr=0.05, lr_decay_rate=0.8)
    for round, rate in enumerate(expected):
        of_round = Schedule(local_of(settings, round), 5, torch.device("cpu"))
        for step in range(5):
            of_round.before(step)
            assert of_round.lr.item() == pytest.approx(rate)
            of_round.after(torch.tensor(1.0))


def test_clients_are_spread_the_longest_first() -> None:
    # 9 | 7 -> 9 | 7+4 -> 9+3 | 11 -> 12 | 11+2: loads 12 and 13
    assert longest_first([4, 9, 2, 7, 3], 2) == [[1, 4], [3, 0, 2]]
