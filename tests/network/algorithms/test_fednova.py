"""FedNova on quadratics: normalised averaging by hand for plain, momentum and proximal local steps."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.algorithms.fedavg import FedAvg
from network.algorithms.fednova import FedNova
from network.client import LocalSettings, Turn
from tests.network.quadratic import (
    LR,
    SETTINGS,
    SHARES,
    START,
    average,
    close,
    gradient,
    long_run,
    method,
    optimum,
    server_of,
    trained,
)

TAUS = (2, 5)


class Unequal(FedNova):
    """Two and five steps for the two clients."""

    def turns(self, clients: list, settings: LocalSettings, rng: np.random.Generator) -> dict[int, Turn]:
        return {i: replace(turn, n_steps=TAUS[i]) for i, turn in super().turns(clients, settings, rng).items()}


def norm(tau: int, rho: float, mu: float) -> float:
    """|a_i|_1 by the paper's closed forms, section 4.1 and appendix: momentum, proximal or plain steps."""
    if rho:
        return sum((1 - rho ** (tau - k)) / (1 - rho) for k in range(tau))
    return sum((1 - LR * mu) ** (tau - 1 - k) for k in range(tau))


@pytest.mark.parametrize("rho, mu", [(0.0, 0.0), (0.9, 0.0), (0.0, 0.8)])
def test_two_rounds_by_hand(tmp_path: Path, rho: float, mu: float) -> None:
    federation = trained(Unequal(Namespace(mu=mu)), tmp_path, replace(SETTINGS, momentum=rho))
    x = START.astype(float)
    norms = np.array([norm(tau, rho, mu) for tau in TAUS])
    for _ in range(2):
        directions = []
        for client, tau in enumerate(TAUS):
            y, v = x, 0.0
            for _ in range(tau):
                v = rho * v + gradient(y, client) + mu * (y - x)
                y = y - LR * v
            directions.append((y - x) / norms[client])
        x = x + SHARES @ norms * average(directions)
    assert close(server_of(federation), x)


def test_with_equal_steps_it_is_fedavg(tmp_path: Path) -> None:
    for momentum in (0.0, 0.9):
        settings = replace(SETTINGS, momentum=momentum)
        ends = [server_of(trained(method(n), tmp_path / f"{n}{momentum}", settings)) for n in ("fedavg", "fednova")]
        assert close(*ends, 2e-6)


def test_unequal_steps_do_not_move_the_fixed_point_as_they_move_fedavgs(tmp_path: Path) -> None:
    # With small steps, FedAvg tends to the optimum weighted by p_i tau_i, FedNova to that weighted by p_i.
    class Plain(Unequal):
        upload, server_step = FedAvg.upload, FedAvg.server_step

    settings = replace(SETTINGS, init_lr=0.05)
    nova, plain = (long_run(kind(Namespace()), tmp_path / kind.__name__, 400, settings) for kind in (Unequal, Plain))
    biased = SHARES * TAUS / (SHARES @ TAUS)
    assert np.abs(nova - optimum()).max() < 0.25 * np.abs(plain - optimum()).max()
    assert np.abs(plain - optimum(biased)).max() < 0.25 * np.abs(plain - optimum()).max()
