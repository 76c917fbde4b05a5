"""Assigning held-out images: everybody's own mixture, nothing twice, nothing lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from network.partition.held_out import assign_held_out
from utils.streams import generator


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, int]:
    """Some clients' training images, the groups of the training and of the held-out images, and a seed."""
    n_clients, n_groups = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(n_clients, 80))
    everything = rng.integers(-1, n_groups, n + draw(st.integers(0, 60)))
    held_out = np.where(np.arange(len(everything)) >= n, everything, -1)
    train = np.where(np.arange(len(everything)) < n, np.abs(everything), -1)
    owner = rng.permutation(np.r_[np.arange(n_clients), rng.integers(-1, n_clients, n - n_clients)])
    return [np.flatnonzero(owner == i) for i in range(n_clients)], train, held_out, draw(st.integers(0, 99))


@given(partitions())
@settings(deadline=None)
def test_every_image_of_a_known_group_goes_to_one_client_in_proportion(problem: tuple) -> None:
    clients, train, held_out, seed = problem
    assigned = assign_held_out(clients, train, held_out, seed)
    assert len(assigned) == len(clients)
    together = np.concatenate(assigned)
    assert len(np.unique(together)) == len(together)
    known = np.unique(train[np.concatenate(clients)])
    assert set(together) == set(np.flatnonzero(np.isin(held_out, known) & (held_out >= 0)))
    trained = train[np.concatenate(clients)]
    for images, own in zip(assigned, clients, strict=True):
        assert (np.diff(images) > 0).all()
        for group in known:
            exact = (held_out == group).sum() * (train[own] == group).sum() / (trained == group).sum()
            assert abs((held_out[images] == group).sum() - exact) < 1  # rounded up or down, never further
    assert all((a == b).all() for a, b in zip(assigned, assign_held_out(clients, train, held_out, seed), strict=True))


def test_shares_and_largest_remainders_by_hand() -> None:
    # Group 0: 5, 3 and 2 training images, 7 held out: 3.5, 2.1, 1.4, so the last one goes to the first client.
    train = np.r_[np.zeros(10, int), np.full(7, -1)]
    held_out = np.r_[np.full(10, -1), np.zeros(7, int)]
    clients = [np.arange(5), np.arange(5, 8), np.arange(8, 10)]
    for seed in range(5):
        assert [len(images) for images in assign_held_out(clients, train, held_out, seed)] == [4, 2, 1]


def test_ties_and_images_are_drawn_by_the_seed() -> None:
    train, held_out = np.r_[np.zeros(4, int), -1, -1, -1], np.r_[-1, -1, -1, -1, np.zeros(3, int)]
    clients = [np.array([0, 1]), np.array([2, 3])]
    drawn = [assign_held_out(clients, train, held_out, seed) for seed in range(40)]
    assert {len(parts[0]) for parts in drawn} == {1, 2}
    assert {int(parts[0][0]) for parts in drawn} == {4, 5, 6}


def test_nothing_held_out() -> None:
    assigned = assign_held_out([np.array([0]), np.array([1])], np.array([0, 1]), np.array([-1, -1]), 0)
    assert [len(images) for images in assigned] == [0, 0]


def test_many_clients_and_images_take_little_time() -> None:
    rng = np.random.default_rng(0)
    groups, owner = rng.integers(0, 100, 400_000), rng.permutation(np.repeat(np.arange(4000), 80))
    clients = np.split(np.argsort(owner, kind="stable"), np.arange(80, 320_000, 80))
    train = np.where(np.arange(400_000) < 320_000, groups, -1)
    assigned = assign_held_out(clients, train, np.where(train < 0, groups, -1), 0)
    assert sum(map(len, assigned)) == 80_000


def test_as_many_groups_as_clients_take_no_table_of_both() -> None:
    # A table of clients and groups would have 40 GB, and as many random numbers would take half a minute.
    users = np.tile(np.arange(70_000), 3)
    train, held_out = (
        np.where(np.arange(210_000) < 140_000, users, -1),
        np.where(np.arange(210_000) < 140_000, -1, users),
    )
    clients = [np.array([user, 70_000 + user]) for user in range(70_000)]
    assigned = assign_held_out(clients, train, held_out, 0)
    assert (assigned.images == 140_000 + np.arange(70_000)).all() and (assigned.sizes == 1).all()


def test_groups_without_ties_move_no_draw() -> None:
    # The last of three groups is shared, the others are one client's each: the ties are those of three whole groups.
    train = np.r_[0, 1, 2, 2, 2, np.full(5, -1)]
    held_out = np.r_[np.full(5, -1), 0, 1, 2, 2, 2]
    clients = [np.array([0, 2]), np.array([1, 3]), np.array([4])]
    held_out[9] = -1  # two for three clients: two of them, by the largest of their random numbers, get one
    for seed in range(20):
        rng = generator("held_out", seed)
        rng.permutation(4)
        draws = rng.random(9)[6:]
        expected = np.sort(np.argsort(draws)[:2]).tolist()
        assigned = assign_held_out(clients, train, held_out, seed)
        assert [client for client in range(3) if held_out[assigned[client]].tolist().count(2)] == expected
