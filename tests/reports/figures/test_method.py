"""The picture of the method shows what it says: each partition is skewed in what it is of, and in nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from network.partition.heterogeneity import earth_movers_distance
from reports.figures import method
from tests.reports.figures.pictures import bars_of, check_figure

PHOTOGRAPH, DEPTH = np.zeros((3, 8, 8), np.uint8), np.arange(64.0).reshape(8, 8)


def test_it_is_a_figure(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "method.png"
    check_figure(path, method.method(PHOTOGRAPH, DEPTH, path))


def test_a_partition_is_skewed_in_its_own_groups_alone(drawn: list[Figure], tmp_path: Path) -> None:
    method.method(PHOTOGRAPH, DEPTH, tmp_path / "method.png")
    panels = [[axes for axes in part.axes if bars_of(axes)] for part in drawn[0].subfigs][1]
    skew = []
    for axes in panels:  # by row: what is partitioned; by column: classes and clusters
        counts = np.array([[bar[3] for bar in bars] for bars in bars_of(axes).values()]).T
        assert counts.shape == (8, 5) and set(counts.sum(axis=1)) == {50.0}  # all 400 images, in equal numbers
        skew.append(earth_movers_distance(counts))
    of_classes, beside, across, of_clusters = skew
    assert min(of_classes, of_clusters) > 1.0 and max(beside, across) < 0.5
