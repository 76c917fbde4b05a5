"""Ditto on quadratics: personal models by hand, and FedAvg's global model to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.network.quadratic import (
    CLIENTS,
    START,
    average,
    close,
    descend,
    loss,
    method,
    model_of,
    server_of,
    trained,
)


@pytest.mark.parametrize("lam, personal_steps", [(0.0, None), (0.5, None), (2.0, 5)])
def test_two_rounds_by_hand(tmp_path: Path, lam: float, personal_steps: int | None) -> None:
    federation = trained(method("ditto", lam=lam, personal_steps=personal_steps), tmp_path)
    x, own = START, [START, START]
    for _ in range(2):
        own = [descend(v, i, personal_steps or 3, lambda y, x=x: lam * (y - x)) for i, v in enumerate(own)]
        x = average([descend(x, client) for client in range(2)])
    for client in range(2):
        assert close(model_of(federation, client), own[client])
    row = federation.rows[-1]
    assert np.isclose(row["personal_train_loss_mean"], np.mean([loss(v, c) for v, c in zip(own, CLIENTS, strict=True)]))
    assert np.isclose(row["train_loss_mean"], np.mean([loss(x, images) for images in CLIENTS]))


def test_its_global_model_is_fedavgs_to_the_last_bit(tmp_path: Path) -> None:
    ditto, plain = (server_of(trained(method(name), tmp_path / name)) for name in ("ditto", "fedavg"))
    assert (ditto == plain).all()
