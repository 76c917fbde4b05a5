"""Measures of skew against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from network.heterogeneity import earth_movers_distance, effective_groups, group_counts, report, size_imbalance


def test_emd_of_two_clients_by_hand() -> None:
    # Shares (1, 0) and (1/2, 1/2), sizes 2 and 4, population (4/6, 2/6).
    # 2/6 * (1/3 + 1/3) + 4/6 * (1/6 + 1/6) = 2/9 + 2/9
    assert earth_movers_distance(np.array([[2, 0], [2, 2]])) == pytest.approx(4 / 9)


def test_emd_is_zero_for_equal_clients_and_reaches_its_bound() -> None:
    assert earth_movers_distance(np.full((5, 3), 7)) == 0
    # K clients of one group each: 2 (1 - 1/K)
    assert earth_movers_distance(np.eye(4) * 9) == pytest.approx(1.5)


def test_effective_groups_counts_even_shares() -> None:
    # One client has three groups evenly, the other one group: (3 + 1) / 2.
    assert effective_groups(np.array([[4, 4, 4], [9, 0, 0]])) == pytest.approx(2.0)


def test_size_imbalance_by_hand() -> None:
    # Sizes 2 and 6: mean 4, standard deviation 2.
    assert size_imbalance(np.array([[2, 0], [3, 3]])) == pytest.approx(0.5)


def test_report_leaves_out_images_without_a_group() -> None:
    groups = np.array([0, 1, 1, -1])
    clients = [np.array([0, 3]), np.array([1, 2])]
    assert group_counts(clients, groups).tolist() == [[1, 0], [0, 2]]
    assert report(clients, groups)["images_dealt"] == 3
