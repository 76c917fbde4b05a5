"""FedPer on quadratics: one phase, a shared body and personal heads, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from network.algorithms.fedper import FedPer
from tests.network import quadratic as q


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedper"), tmp_path)
    body, head = q.START[0], [q.START[1]] * 2
    for _ in range(2):
        ends = [q.descend(np.stack([body, head[client]]), client) for client in range(2)]
        body, head = q.average([end[0] for end in ends]), [end[1] for end in ends]
    for client in range(2):
        assert q.close(q.model_of(federation, client), np.stack([body, head[client]]))
    own = [q.loss(np.stack([body, head[i]]), images) for i, images in enumerate((np.arange(8, 10), np.array([10])))]
    assert np.isclose(federation.rows[-1]["personal_local_test_loss_mean"], np.mean(own), rtol=1e-5)
    assert q.close(q.server_of(federation)[1], q.START[1])  # heads do not travel


def test_a_client_that_has_not_taken_part_has_the_initial_head(tmp_path: Path) -> None:
    class First(FedPer):
        def cohort(self, *args: object) -> dict:
            return {0: super().cohort(*args)[0]}

    federation = q.trained(First(), tmp_path)
    assert 1 not in federation.states
    expected = q.server_of(federation)
    assert (q.model_of(federation, 1) == expected).all() and q.close(expected[1], q.START[1])


def test_parts_are_the_heads_or_the_decoders_tensors() -> None:
    names = ["encoder.vector.1.weight", "decoder.fc.weight", "decoder.head.0.weight"]
    assert [q.method("fedper").is_shared(name) for name in names] == [True, True, False]
    assert [q.method("fedper", personal_part="decoder").is_shared(name) for name in names] == [True, False, False]
