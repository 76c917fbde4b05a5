"""Each client's images in one array: the same as a list of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.partition.client_images import ClientImages

ASSIGNED = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-1, n - 1), max_size=30)))


def lists(clients: ClientImages) -> list[list[int]]:
    return [images.tolist() for images in clients]


@given(ASSIGNED)
def test_what_is_assigned_is_what_each_client_has(assigned: tuple[int, list[int]]) -> None:
    n_clients, owners = assigned
    client_of = np.array(owners, np.int32)
    expected = [[i for i, owner in enumerate(owners) if owner == client] for client in range(n_clients)]
    clients = ClientImages.assigned(client_of, n_clients)
    assert lists(clients) == lists(ClientImages.of([np.array(each, np.int64) for each in expected])) == expected
    assert clients.sizes.tolist() == list(map(len, expected)) and len(clients) == n_clients
    assert clients.owners.tolist() == sorted(owner for owner in owners if owner >= 0)
    named = ClientImages.assigned(client_of, n_clients, 100 + np.arange(len(owners)))
    assert lists(named) == [[100 + i for i in each] for each in expected]


def test_some_clients_in_any_order() -> None:
    clients = ClientImages.of([np.array([4, 7]), np.zeros(0, np.int64), np.array([1]), np.array([9, 2, 3])])
    chosen = clients.choose(np.array([3, 0, 1]))
    assert lists(chosen) == [[9, 2, 3], [4, 7], []] and chosen.sizes.tolist() == [3, 2, 0]
    assert lists(clients[1::2]) == [[], [9, 2, 3]] and clients[-1].tolist() == [9, 2, 3]
    assert len(clients.choose(np.zeros(0, np.int64))) == 0
    with pytest.raises(IndexError):
        clients[4]


def test_a_client_is_a_view() -> None:
    clients = ClientImages.of([np.arange(3), np.arange(3, 8)])
    assert clients[1].base is not None and np.shares_memory(clients[1], clients.images)
    assert ClientImages.of(clients) is clients
