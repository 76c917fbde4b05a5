"""Tests for the figure of what partitions cost against their measures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reports.figures.predictors import costs_by_measure
from reports.tables import CANDIDATES
from tests.reports.figures.pictures import legend_of


def test_costs_stand_over_their_measures(drawn: list[Figure]) -> None:
    costs = pd.DataFrame({
        "task": ["normal", "normal", "rooms: reshading"], "type": ["class_based", "embedding_based", "class_based"],
        "emd": [0.5, 0.25, 1.0], "gradient_dispersion": [1.0, 40.0, 2.0], "increase": [10.0, -5.0, 120.0],
    }).reindex(columns=["task", "type", *CANDIDATES, "increase"])  # fmt: skip
    costs_by_measure(costs, Path())
    first, second = drawn[0].axes
    assert [axis.get_xlabel() for axis in (first, second)] == ["EMD", "V"]
    assert (first.get_xscale(), second.get_xscale(), first.get_yscale()) == ("linear", "log", "symlog")
    for axis, name in ((first, "emd"), (second, "gradient_dispersion")):
        points = [(*line.get_xydata()[0], line.get_marker()) for line in axis.lines if len(line.get_xydata()) == 1]
        assert points == list(zip(costs[name], costs["increase"], ("o", "^", "o"), strict=True))
    colours = [to_hex(line.get_color()) for line in first.lines if len(line.get_xydata()) == 1]
    legend = legend_of(drawn[0])
    assert [legend[task] for task in ("Surface normals", "Surface normals", "rooms: Reshading")] == colours
    assert list(legend)[2:] == ["class-based partition", "embedding-based partition"]
    assert first.get_ylabel() == "increase over IID, %"
