"""FedRep on quadratics: heads first, then the body, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from network.algorithms.fedrep import FedRep
from network.engine.client import ClientContext
from tests.network import quadratic as q


@pytest.mark.parametrize("head_steps, heads", [(2, 2), (1, 1), (None, 1), (0, 0), (9, 2)])
def test_two_rounds_by_hand(tmp_path: Path, head_steps: int | None, heads: int) -> None:
    federation = q.trained(q.method("fedrep", head_steps=head_steps), tmp_path)
    body, head = q.START[0].astype(float), [q.START[1].astype(float)] * 2
    for _ in range(2):
        bodies = []
        for client in range(2):
            y = np.stack([body, head[client]])
            for step in range(q.STEPS):
                row = 1 if step < heads else 0
                y[row] -= q.LR * q.gradient(y, client)[row]
            bodies.append(y[0])
            head[client] = y[1]
        body = q.average(bodies)
    for client in range(2):
        assert q.close(q.model_of(federation, client), np.stack([body, head[client]]))
    assert "train_loss_mean" not in federation.rows[-1]  # there is no global model


def test_with_everything_shared_and_no_head_steps_it_is_fedavg_to_the_last_bit(tmp_path: Path) -> None:
    class Shared(FedRep):
        def is_shared(self, name: str) -> bool:
            return True

    plain = q.server_of(q.trained(q.method("fedavg"), tmp_path / "a"))
    assert (q.server_of(q.trained(Shared(head_steps=0), tmp_path / "b")) == plain).all()


def test_the_frozen_part_has_no_gradient(tmp_path: Path) -> None:
    seen = []

    class Watching(FedRep):
        def correct(self, gradients: list, local: ClientContext) -> None:
            of_all = dict(local.model.named_parameters())
            seen.append((local.phase, {name for name, p in of_all.items() if p.grad is not None}))
            assert all(torch.equal(g, of_all[name].grad) for name, g in zip(local.parameters, gradients, strict=True))

    q.trained(Watching(), tmp_path)
    assert {(phase, *names) for phase, names in seen} == {("head", "decoder.head.shift"), ("", "weight")}


@pytest.mark.parametrize("n_steps, head_steps", [(1, None), (3, None), (3, 1), (3, 0)])
def test_all_steps_are_the_heads_where_the_body_is_frozen(tmp_path: Path, n_steps: int, head_steps: int | None) -> None:
    settings = replace(q.SETTINGS, sgd_per_epoch=n_steps, train="head")
    federation = q.trained(q.method("fedrep", head_steps=head_steps), tmp_path, settings)
    for client in range(2):
        y = q.START.astype(float)
        for _ in range(settings.n_rounds * n_steps):
            y[1] -= q.LR * q.gradient(y, client)[1]
        assert q.close(q.model_of(federation, client), y)
