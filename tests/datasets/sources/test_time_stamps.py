"""Pairs by the numbers that files are called."""

from __future__ import annotations

import numpy as np

from datasets.sources.time_stamps import nearest_pairs


def test_the_nearest_of_all_pairs_come_first() -> None:
    """Against all pairs in order of their difference, as the TUM RGB-D benchmark's description has it."""
    random = np.random.default_rng(0)
    for _ in range(20):
        first, second = (np.round(1305031102 + random.uniform(0, 1, 30), 6).tolist() for _ in range(2))
        pairs = sorted(
            (abs(a - b), i, j) for i, a in enumerate(first) for j, b in enumerate(second) if abs(a - b) <= 0.02
        )
        expected: dict[int, int] = {}
        for _, i, j in pairs:
            if i not in expected and j not in expected.values():
                expected[i] = j
        assert nearest_pairs(first, second, 0.02) == expected


def test_a_difference_that_is_as_large_as_allowed_counts() -> None:
    assert nearest_pairs([1305031102.12, 5.0], [1305031102.1, 5.021], 0.02) == {0: 0}
    assert nearest_pairs([3.0], [1.0, 2.0], 1) == {0: 1} and nearest_pairs([], [1.0], 1) == nearest_pairs([1.0], [], 1)
