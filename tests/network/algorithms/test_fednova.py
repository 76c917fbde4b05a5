"""FedNova on quadratics: normalised averaging by hand for plain, momentum and proximal local steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.algorithms.fedavg import FedAvg
from network.algorithms.fednova import FedNova
from network.engine.client import ClientRound
from network.partition.client_images import ClientImages
from tests.network import quadratic as q

TAUS = (2, 5)


class Unequal(FedNova):
    """Two and five steps for the two clients."""

    def cohort(self, sampled: dict[int, ClientRound], clients: ClientImages) -> dict[int, ClientRound]:
        return {i: replace(each, n_steps=TAUS[i]) for i, each in sampled.items()}


def norm(tau: int, rho: float, mu: float) -> float:
    """|a_i|_1 by the paper's closed forms, section 4.1 and appendix: momentum, proximal or plain steps."""
    if rho:
        return sum((1 - rho ** (tau - k)) / (1 - rho) for k in range(tau))
    return sum((1 - q.LR * mu) ** (tau - 1 - k) for k in range(tau))


@pytest.mark.parametrize("rho, mu", [(0.0, 0.0), (0.9, 0.0), (0.0, 0.8)])
def test_two_rounds_by_hand(tmp_path: Path, rho: float, mu: float) -> None:
    federation = q.trained(Unequal(mu=mu), tmp_path, replace(q.SETTINGS, momentum=rho))
    x = q.START.astype(float)
    norms = np.array([norm(tau, rho, mu) for tau in TAUS])
    for _ in range(2):
        directions = []
        for client, tau in enumerate(TAUS):
            y, v = x, 0.0
            for _ in range(tau):
                v = rho * v + q.gradient(y, client) + mu * (y - x)
                y = y - q.LR * v
            directions.append((y - x) / norms[client])
        x = x + q.SHARES @ norms * q.average(directions)
    assert q.close(q.server_of(federation), x)


def test_with_equal_steps_it_is_fedavg(tmp_path: Path) -> None:
    for momentum in (0.0, 0.9):
        settings = replace(q.SETTINGS, momentum=momentum)
        runs = [q.trained(q.method(n), tmp_path / f"{n}{momentum}", settings) for n in ("fedavg", "fednova")]
        assert q.close(*map(q.server_of, runs), 1e-6)


def test_unequal_steps_do_not_move_the_fixed_point_as_they_move_fedavgs(tmp_path: Path) -> None:
    # With small steps, FedAvg tends to the optimum weighted by p_i tau_i, FedNova to that weighted by p_i.
    class Plain(Unequal):
        upload, server_step = FedAvg.upload, FedAvg.server_step

    settings = replace(q.SETTINGS, init_lr=0.05)
    nova, plain = (q.long_run(kind(), tmp_path / kind.__name__, 120, settings) for kind in (Unequal, Plain))
    biased = q.SHARES * TAUS / (q.SHARES @ TAUS)
    assert np.abs(nova - q.optimum()).max() < 0.25 * np.abs(plain - q.optimum()).max()
    assert np.abs(plain - q.optimum(biased)).max() < 0.25 * np.abs(plain - q.optimum()).max()
