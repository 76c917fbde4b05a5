"""Figure of how non-IID clients are: the equivalent α by each grouping of their images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from reports.figures.style import mark_cut, save

if TYPE_CHECKING:
    from network.partition.own_clients import Measured

_FURTHEST = 1e3  # α is drawn up to here at least, and IID's line beside the largest that is drawn


def equivalent_alphas(measured: Sequence[Measured], path: Path) -> Path:
    """α with its interval of 95 % on a logarithmic axis, a row a grouping, and IID's line at its right end.

    An estimate of 0 or infinity has no point; its interval runs to the edge, where an arrow head marks that it is cut.
    """
    bounds = [each for one in measured for each in (one.estimate.alpha, one.estimate.low, one.estimate.high)]
    finite = [each for each in bounds if 0 < each < np.inf]
    least, most = min([*finite, 0.05]) / 2, max([*finite, _FURTHEST / 2]) * 2
    figure = Figure((7, 1.5 + 0.45 * len(measured)), layout="constrained")
    axis = figure.subplots()
    axis.set(xscale="log", xlim=(least, most * 3), ylim=(len(measured) - 0.5, -0.5))
    axis.axvline(most, color="grey", ls="--", lw=1)
    axis.annotate("IID", (most, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", color="dimgrey")
    for row, each in enumerate(measured):
        low, high = each.estimate.low, each.estimate.high
        axis.plot([max(low, least), min(high, most)], [row, row], color="#0072b2", lw=2)
        if 0 < each.estimate.alpha < np.inf:
            fill = "#0072b2" if each.fits else "white"
            axis.plot(each.estimate.alpha, row, "o", color="#0072b2", mfc=fill)
        if low < least:
            mark_cut(axis, "x", row, low, least)
        if high > most:
            axis.plot(most, row, ">", color="#0072b2", ms=6)
    axis.set_yticks(range(len(measured)), [f"{each.name} ({each.groups} groups)" for each in measured])
    axis.set_xlabel("α of Dir(α p), with its 95 % interval; hollow: no Dirichlet distribution's")
    axis.grid(axis="x", alpha=0.25, lw=0.6)
    clients = {each.estimate.clients for each in measured}
    figure.suptitle(f"How non-IID {max(clients)} clients are, by what their images are grouped by")
    return save(figure, path)
