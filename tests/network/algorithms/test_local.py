"""Clients on their own: gradient descent on each one's loss."""

from __future__ import annotations

from pathlib import Path

from tests.network import quadratic as q


def test_two_rounds_are_one_long_training_of_each_client(tmp_path: Path) -> None:
    federation = q.trained(q.method("local"), tmp_path)
    ends = [q.descend(q.START, client, 2 * 3) for client in range(2)]
    assert all(q.close(q.model_of(federation, client), ends[client]) for client in range(2))
    worst = max(q.loss(end, images) for end, images in zip(ends, q.HELD_OUT, strict=True))
    assert abs(federation.rows[-1]["personal_local_test_loss_worst"] / worst - 1) < 1e-5
    assert set(federation.rows[-1]) >= {"personal_train_loss_mean"} and "test_loss" not in federation.rows[-1]
