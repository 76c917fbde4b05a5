"""Ditto on quadratics: personal models by hand, and FedAvg's global model to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.network import quadratic as q


@pytest.mark.parametrize("lam, personal_steps", [(0.0, None), (0.5, None), (2.0, 5)])
def test_two_rounds_by_hand(tmp_path: Path, lam: float, personal_steps: int | None) -> None:
    federation = q.trained(q.method("ditto", lam=lam, personal_steps=personal_steps), tmp_path)
    x, own = q.START, [q.START, q.START]
    for _ in range(2):
        own = [q.descend(v, i, personal_steps or 3, lambda y, x=x: lam * (y - x)) for i, v in enumerate(own)]
        x = q.average([q.descend(x, client) for client in range(2)])
    for client in range(2):
        assert q.close(q.model_of(federation, client), own[client])
    row = federation.rows[-1]
    losses = [q.loss(v, images) for v, images in zip(own, q.CLIENTS, strict=True)]
    assert np.isclose(row["personal_train_loss_mean"], np.mean(losses))
    assert np.isclose(row["train_loss_mean"], np.mean([q.loss(x, images) for images in q.CLIENTS]))


def test_its_global_model_is_fedavgs_to_the_last_bit(tmp_path: Path) -> None:
    ditto, plain = (q.server_of(q.trained(q.method(name), tmp_path / name)) for name in ("ditto", "fedavg"))
    assert (ditto == plain).all()
