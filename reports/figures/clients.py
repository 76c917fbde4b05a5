"""Figures of a run's single clients."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from utils.figures import COLOURS, save

_NAMED = 30  # clients whose numbers find room beside their points


def choices(table: pd.DataFrame, title: str, path: Path) -> Path:
    """How often a rule chose each client of `reports.chosen`, by how far its images are from those of all clients.

    The dotted line is what every client would have if all were chosen equally often.
    """
    figure = Figure((7, 4.6), layout="constrained")
    axes = figure.subplots()
    for is_attacker, part in table.groupby("attacker"):
        marker, colour, label = (
            ("X", COLOURS["embedding"], "attackers") if is_attacker else ("o", COLOURS["class"], "honest clients")
        )
        axes.scatter(part["distance"], part["share"], s=45, marker=marker, color=colour, alpha=0.8, lw=0, label=label)
    if len(table) <= _NAMED:
        for row in table.itertuples():
            axes.annotate(
                str(row.client), (row.distance, row.share), (5, 5), textcoords="offset points", fontsize="small"
            )
    even = table["chosen"].sum() / table["rounds"].sum()
    axes.axhline(even, color="gray", ls=":", label="all equally often")
    figure.suptitle(fill(title, 70))
    axes.set(
        xlabel="distance of the client's mixture of groups from that of all clients",
        ylabel="chosen in this share of its rounds",
    )
    axes.margins(0.08, 0.12)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(loc="outside lower center", ncols=3)
    return save(figure, path)
