"""FedAdam, FedYogi and FedAdagrad on quadratics: algorithm 2 of arXiv 2003.00295 in plain arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.network import quadratic as q

BETA2 = 0.99
SECOND_MOMENTS = {
    "fedadam": lambda v, d: BETA2 * v + (1 - BETA2) * d**2,
    "fedyogi": lambda v, d: v - (1 - BETA2) * d**2 * np.sign(v - d**2),
    "fedadagrad": lambda v, d: v + d**2,
}


@pytest.mark.parametrize("name", SECOND_MOMENTS)
@pytest.mark.parametrize("given", [{}, {"beta1": 0.6, "tau": 0.1, "server_lr": 0.05}])
def test_three_rounds_by_hand(tmp_path: Path, name: str, given: dict[str, float]) -> None:
    published = {"beta1": 0.0 if name == "fedadagrad" else 0.9, "tau": 1e-3, "server_lr": 0.01}
    beta1, tau, eta = (published | given).values()
    x, m, v = q.START, 0.0, tau**2
    for _ in range(3):
        change = q.average([q.descend(x, client) for client in range(2)]) - x
        m = beta1 * m + (1 - beta1) * change
        v = SECOND_MOMENTS[name](v, change)
        x = x + eta * m / (np.sqrt(v) + tau)
    assert q.close(q.server_of(q.trained(q.method(name, **given), tmp_path, replace(q.SETTINGS, n_rounds=3))), x)


def test_yogi_lowers_the_second_moment_step_by_step() -> None:
    v, square = torch.tensor([1.0, 0.001]), torch.tensor([0.01, 0.01])
    # Above Delta^2 it falls by 0.01 Delta^2 only, where Adam's falls by 0.01 (v - Delta^2); below it rises by as much.
    assert torch.allclose(q.method("fedyogi").second_moment(v, square), torch.tensor([1.0 - 1e-4, 0.001 + 1e-4]))
    assert torch.allclose(q.method("fedadam").second_moment(v, square), torch.tensor([0.9901, 0.00109]))


@pytest.mark.parametrize("name", ["fedadam", "fedavgm"])
def test_buffers_are_averaged_plainly(tmp_path: Path, name: str) -> None:
    federation = q.simulation(q.method(name), tmp_path, model=_with_norm())
    mean = {n: t.double() + 1 for n, t in federation.server.items() if "." not in n or n.startswith("norm")}
    new = federation.algorithm.server_step(federation.server, mean)
    for buffer in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(new[buffer], federation.server[buffer] + 1)
    assert not torch.equal(new["norm.weight"], federation.server["norm.weight"] + 1) or name == "fedavgm"


def _with_norm() -> nn.Module:
    model = nn.Module()
    model.norm = nn.BatchNorm1d(5)
    return model
