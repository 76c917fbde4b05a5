"""What is said of each client, counted by hand."""

from __future__ import annotations

import numpy as np

from network.partition.assigning import Partition
from reports.clients import client_table

# Client 0 has two images of group 1 and one of group 0, client 1 one of each, client 2 one without a group, 3 one of 2.
CLIENT_OF = np.array([0, 0, 0, 1, 1, 2, 3, -1], np.int32)
GROUPS = np.array([1, 0, 1, 1, 0, -1, 2, 2])


def test_clients_are_called_by_the_commonest_group_that_was_assigned_to_them() -> None:
    values = {"client": np.arange(4), "images": np.array([3, 2, 1, 1]), "train_loss": np.array([0.5, 1.0, np.nan, 2.0])}
    table = client_table(values, Partition(CLIENT_OF, GROUPS, 4), ["attic", "cellar"])
    assert list(table) == ["client", "group", "share", "images", "train_loss"]
    assert table["group"].tolist() == ["cellar", "attic", "", "2"]  # the first of two; none; one without a name
    assert np.array_equal(table["share"], [2 / 3, 0.5, np.nan, 1.0], equal_nan=True)
    assert np.array_equal(table["train_loss"], values["train_loss"], equal_nan=True)


def test_only_those_that_were_evaluated_have_a_row() -> None:
    table = client_table({"client": np.array([1, 3])}, Partition(CLIENT_OF, GROUPS, 4))
    assert table["client"].tolist() == [1, 3] and table["group"].tolist() == ["0", "2"]
