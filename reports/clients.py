"""What each client of a run has, and how well it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from network.partition.assigning import Partition
from network.partition.heterogeneity import sparse_counts

CLIENTS_FILE = "clients.csv"


def client_table(values: Mapping[str, np.ndarray], partition: Partition, names: Sequence[str] = ()) -> pd.DataFrame:
    """A row per client that was evaluated: the commonest of the groups assigned to it, and its values.

    Columns: `client`; `group`, by its name or number (of equally common ones the first); `share`, that of the client's
    images in this group; and the others of `values`, which are those of `Evaluation.by_client`. A client without an
    image in any group has neither.
    """
    counts = sparse_counts(partition.client_of, partition.groups, partition.n_clients)[values["client"]]
    group, most, of = counts.argmax(axis=1), counts.max(axis=1).toarray(), counts.sum(axis=1)
    called = [names[number] if number < len(names) else str(number) for number in group]
    return pd.DataFrame(
        {
            "client": values["client"],
            "group": np.where(of > 0, called, ""),
            "share": np.divide(most, of, out=np.full(len(of), np.nan), where=of > 0),
            **{name: column for name, column in values.items() if name != "client"},
        }
    )
