"""Rules in which alpha has no part, each against its paper."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from network.partition.heterogeneity import earth_movers_distance, group_counts
from network.partition.without_alpha import iid, natural, one_group, split_groups
from network.partition.without_alpha import shards as by_shards
from utils.errors import UserError


def test_mcmahans_shards() -> None:
    # 60,000 digits in 200 shards of 300, two for each of 100 clients.
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    client_of = by_shards(groups, 100, 1.0, np.random.default_rng(0), shards_per_client=2)
    counts = group_counts(client_of, groups, 100)
    assert (counts.sum(axis=1) == 600).all()
    assert (counts > 0).sum(axis=1).max() == 2
    assert set(counts[counts > 0]) == {300, 600}
    four = group_counts(by_shards(groups, 100, 1.0, np.random.default_rng(0), shards_per_client=4), groups, 100)
    assert (four > 0).sum(axis=1).max() == 4 and set(four[four > 0]) <= {150, 300, 450, 600}


def emd_is(expected: float, rule: Callable[..., np.ndarray], **more: int) -> None:
    """The mean earth mover's distance of 10 clients, of 20 images of each of 10 classes, is as expected."""
    groups, rng, n = np.repeat(np.arange(10), 20), np.random.default_rng(0), 200
    found = [earth_movers_distance(group_counts(rule(groups, 10, 1.0, rng, **more), groups, 10)) for _ in range(n)]
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(n)


def test_the_second_of_two_shards_is_of_the_firsts_class_by_chance() -> None:
    # Of the other 19 shards one is. One class of ten is 1.8 away from all, two halves are 1.6.
    emd_is(1.6 + 0.2 / 19, by_shards, shards_per_client=2)


def test_images_of_a_class_of_an_iid_client_are_hypergeometric() -> None:
    images = np.arange(21)
    away = np.abs(images - 2) @ hypergeom(200, 20, 20).pmf(images)
    emd_is(10 * away / 20, iid)


def test_more_shards_than_images_are_refused_before_they_take_memory() -> None:
    tracemalloc.start()
    with pytest.raises(UserError, match="--shards_per_client"):
        by_shards(np.zeros(100, int), 10, 1.0, np.random.default_rng(0), shards_per_client=1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30), seed=st.integers(0, 5), data=st.data())
def test_natural_groups_stay_whole_and_loads_are_even(sizes: list[int], seed: int, data: st.DataObject) -> None:
    n_clients = data.draw(st.integers(1, len(sizes)))
    groups = np.repeat(np.arange(len(sizes)) * 7 + 3, sizes)
    counts = group_counts(natural(groups, n_clients, 1.0, np.random.default_rng(seed)), groups, n_clients)
    assert ((counts > 0).sum(axis=0) <= 1).all()
    loads = counts.sum(axis=1)
    # Whoever has most got their last group when they had least, so that no gap is wider than the largest group.
    assert loads.min() > 0 and loads.max() - loads.min() <= max(sizes)
    if n_clients == len(sizes):
        assert sorted(loads) == sorted(sizes)


def test_iid_deals_everything_evenly() -> None:
    client_of = iid(np.repeat([0, 1, -1], [30, 41, 9]), 7, 1.0, np.random.default_rng(0))
    assert np.bincount(client_of[:71]).tolist().count(10) == 6  # 71 = 6 * 10 + 11
    assert (client_of[71:] == -1).all()


def test_clients_of_one_group_and_one_of_all() -> None:
    groups = np.repeat(np.arange(3), [60, 120, 20])
    for seed in range(5):
        counts = group_counts(one_group(groups, 3, 1.0, np.random.default_rng(seed)), groups, 3)
        held = (counts[:2] > 0).argmax(axis=1)
        assert ((counts[:2] > 0).sum(axis=1) == 1).all() and held[0] != held[1]
        # n and n times the group's share is what a group gives at most.
        size = min(capacity / ((g in held) + capacity / 200) for g, capacity in enumerate([60, 120, 20]))
        assert (counts.sum(axis=1) == int(size)).all()
        assert (np.abs(counts[2] - counts[2].sum() * np.array([0.3, 0.6, 0.1])) <= 1).all()
    # As many clients as there are, and each group as often as any other, up to once.
    groups = np.repeat(np.arange(3), 90)
    counts = group_counts(one_group(groups, 8, 1.0, np.random.default_rng(0)), groups, 8)
    assert sorted((counts[:7] > 0).sum(axis=0)) == [2, 2, 3]


def test_parts_of_groups_by_hand() -> None:
    groups = np.random.default_rng(0).permutation(np.repeat([3, 5, 9, 11], [100, 50, 40, 30]))
    rng = np.random.default_rng(1)

    def assign(clients_per_group: list[int] | None = None, client_share: float = 1.0) -> np.ndarray:
        return split_groups(groups, 10, 1.0, rng, clients_per_group=clients_per_group, client_share=client_share)

    counts = group_counts(assign([3, 2, 2, 3], 0.2), groups, 10)[:, [3, 5, 9, 11]]
    assert counts.sum(axis=0).tolist() == [60, 20, 16, 18]
    assert counts.max(axis=1).tolist() == [20] * 3 + [10] * 2 + [8] * 2 + [6] * 3
    assert ((counts > 0).sum(axis=1) == 1).all()
    whole = group_counts(assign([1, 4, 0, 5], 1.0), groups, 10)  # shares that are too much are equal ones
    assert whole.sum(axis=0)[[3, 5, 9, 11]].tolist() == [100, 48, 0, 30]
    assert sorted(group_counts(assign(), groups, 10).astype(bool).sum(axis=0)[[3, 5, 9, 11]]) == [2, 2, 3, 3]
    with pytest.raises(UserError, match="--clients_per_group 1,2 is not for 10 clients in 4 groups"):
        assign([1, 2])


def test_as_many_clients_as_natural_groups_stand_in_their_order() -> None:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(7), np.arange(1, 8)))
    assert natural(groups, 7, 1.0, np.random.default_rng(0)).tolist() == groups.tolist()
