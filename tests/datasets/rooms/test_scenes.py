"""What scenes are made of: shapes that are turned and put in their places."""

from __future__ import annotations

import numpy as np

from datasets.rooms.scenes import turn


def test_a_quarter_turn_takes_x_to_y_and_y_to_minus_x_and_leaves_heights_and_lengths() -> None:
    assert np.allclose(turn(np.array([[1.0, 0, 5], [0, 1, -2]]), np.pi / 2), [[0, 1, 5], [-1, 0, -2]])
    points = np.random.default_rng(0).normal(size=(20, 3))
    turned = turn(points, 0.7)
    assert np.allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(points, axis=1))
    assert np.allclose(turned[:, 2], points[:, 2]) and np.allclose(turn(turned, -0.7), points)
