"""Which clients a rule such as Krum keeps: how often, and how they differ from the others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from network.aggregation.rule import CHOSEN
from network.engine.simulation import Simulation


def chosen_clients(simulation: Simulation) -> pd.DataFrame | None:
    """A row per client that took part, of a run in which a rule chose clients; None of any other.

    Columns: `client`; `rounds` that it took part in, and those in which it was `chosen`; `share`, the latter over the
    former; `images`; `distance`, the total variation between its shares of the assigned groups and those of all clients
    together, from 0 to 1; `attacker`.
    """
    rows = simulation.rows[1:]
    if not any(CHOSEN in row for row in rows):
        return None
    data = simulation.data
    n, groups = len(data.clients), data.groups - data.groups.min()
    part, chosen = np.zeros(n, int), np.zeros(n, int)
    for row in rows:
        part[list(simulation.cohort(row["round"] - 1))] += 1
        chosen[[int(client) for client in row[CHOSEN].split()]] += 1
    counts = np.stack([np.bincount(groups[images], minlength=groups.max() + 1) for images in data.clients])
    sizes = counts.sum(axis=1)
    apart = np.abs(counts / sizes[:, None] - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2
    table = pd.DataFrame({"client": np.arange(n), "rounds": part, "chosen": chosen, "share": chosen / part.clip(min=1),
                          "images": sizes, "distance": apart})  # fmt: skip
    table["attacker"] = table["client"].isin(simulation.attackers)
    return table[table["rounds"] > 0].reset_index(drop=True)
