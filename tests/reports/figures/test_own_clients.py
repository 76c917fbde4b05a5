"""The figure of equivalent alphas shows points, intervals and where these are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from network.partition.equivalent_alpha import Estimate
from network.partition.own_clients import Measured
from reports.figures import own_clients
from tests.reports.figures.pictures import check_figure, words


def measured(name: str, alpha: float, low: float, high: float, fit: float = 0.5) -> Measured:
    """With these numbers of ten clients."""
    estimate = Estimate(alpha, low, high, np.full(4, 0.25), 10, 500)
    return Measured(name, 4, estimate, (low, high), fit, alpha / 4, {}, 0.5, 1.0, 0.2)


def test_alphas_by_grouping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        measured("class", np.inf, 1200.0, np.inf),
        measured("clusters", 4.0, 3.0, 5.0, fit=0.01),
        measured("users", 0.0, 0.0, 0.1),
    ]
    path = tmp_path / "alpha.png"
    check_figure(path, own_clients.equivalent_alphas(rows, path))
    drawn: list[Figure] = []
    monkeypatch.setattr(own_clients, "save", lambda figure, path: drawn.append(figure))
    own_clients.equivalent_alphas(rows, path)
    [axis] = drawn[0].axes
    assert [label.get_text() for label in axis.get_yticklabels()] == [f"{row.name} (4 groups)" for row in rows]
    points = [line for line in axis.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in points] == [4.0] and points[0].get_markerfacecolor() == "white"
    arrows = {line.get_marker(): line.get_ydata()[0] for line in axis.lines if line.get_marker() in ("<", ">")}
    assert arrows == {">": 0, "<": 2}
    assert words(axis.texts) == ["IID"]


def test_costs_by_alpha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = ["class, α = 1", "class, α = 1", "domain", "class, α = 2"]
    alphas, shares = [1.0, 2.0, np.inf, 2.0], [0.5, 0.4, 0.0, 0.1]
    costs = pd.DataFrame(
        {"task": ["photos"] * 3 + ["digits"], "type": splits, "loss": [50.0, 300.0, 20.0, 5.0]}
        | {"class": alphas, "share": shares}
    )
    path, measures = tmp_path / "costs.png", {"class": "α by class", "share": "target share"}
    check_figure(path, own_clients.costs_by_alpha(costs, "loss", path, measures, "held-out"))
    drawn: list[Figure] = []
    monkeypatch.setattr(own_clients, "save", lambda figure, path: drawn.append(figure))
    own_clients.costs_by_alpha(costs, "loss", path, measures, "held-out")
    by_class, by_share, of_digits, _ = drawn[0].axes
    points = {line.get_label(): line for line in by_class.lines if line.get_marker() == "o"}
    assert points["class, α = 1"].get_xdata().tolist() == [1.0, 2.0]
    iid = max(line.get_xdata()[0] for line in by_class.lines if line.get_linestyle() == "--")
    assert points["domain"].get_xdata().tolist() == [iid] and iid > 2  # an infinite α is at the line
    assert (by_class.get_xscale(), by_share.get_xscale(), by_class.get_yscale()) == ("log", "linear", "symlog")
    assert [words(axis.get_legend().get_texts()) for axis in drawn[0].axes if axis.get_legend()] == [
        splits[1:3],
        splits[3:],
    ]
    assert of_digits.get_yscale() == "linear"  # its own
