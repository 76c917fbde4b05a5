"""Everybody's images in one place: gradient descent on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.network import quadratic as q


@pytest.mark.parametrize("clients_per_round, n_steps", [(None, 2 * 3), (1, 3)])
def test_a_round_has_the_steps_of_all_who_would_take_part(
    tmp_path: Path, clients_per_round: int | None, n_steps: int
) -> None:
    federation = q.trained(q.method("centralized"), tmp_path, clients_per_round=clients_per_round)
    end = q.descend(q.START, np.arange(8), 2 * n_steps)
    assert q.close(q.server_of(federation), end)
    own = [q.loss(end, images) for images in q.CLIENTS]  # still reported by client
    assert federation.rows[-1]["train_loss_std"] == pytest.approx(np.std(own), rel=1e-4)


def test_epochs_are_over_all_images(tmp_path: Path) -> None:
    # In batches of 8 each client has one step an epoch.
    settings = replace(q.SETTINGS, local_epochs=4)
    end = q.server_of(q.trained(q.method("centralized"), tmp_path, settings))
    assert q.close(end, q.descend(q.START, np.arange(8), 2 * 8))
