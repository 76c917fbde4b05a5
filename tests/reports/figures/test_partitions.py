"""The figures of partitions are drawn for few and for many clients and groups."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from scipy.sparse import coo_array

from reports.figures import partitions
from tests.reports.figures.pictures import check_figure


@pytest.mark.parametrize("shape", [(1, 1), (1, 10), (25, 16), (40, 24), (41, 16), (10, 60), (2000, 500)])
@pytest.mark.parametrize("skewed", [True, False])
def test_distribution(tmp_path: Path, shape: tuple[int, int], skewed: bool) -> None:
    counts = np.random.default_rng(0).integers(0, 50, shape) + 1
    if skewed:
        counts *= np.arange(shape[0])[:, None] % shape[1] == np.arange(shape[1])
    path = tmp_path / "figures" / "distribution.png"
    check_figure(path, partitions.distribution(counts, "normal, α = 0.1", "cluster", path))


@pytest.mark.parametrize("shape", [(2, 5), (4, 16), (8, 24), (40, 24)])
def test_title_and_legend_of_bars_do_not_overlap(shape: tuple[int, int]) -> None:
    figure = partitions._bars(
        np.ones(shape, int),
        "Principal curvature, embedding-based split, α = 0.1, seed 0",
        "class",
        ["television_room"] * 20,
    )
    figure.draw_without_rendering()
    (legend,) = figure.legends
    titles = [each for each in figure.findobj(Text) if each.get_text().startswith("Principal")]
    assert len(titles) == 1
    title, names = titles[0].get_window_extent(), legend.get_window_extent()
    assert not title.overlaps(names)
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in (title, names))


def test_groups_have_their_names_or_else_their_numbers() -> None:
    counts, names = np.arange(1, 13).reshape(3, 4), ["living_room", "a scene that nobody has a short name for"]
    bars = partitions._bars(counts, "title", "class", names)
    (legend,) = bars.legends
    expected = ["living room", "a scene that nobody ", "2", "3"]
    assert [text.get_text() for text in legend.get_texts()] == expected
    assert [bar.get_label() for bar in bars.axes[0].containers] == expected
    rows = partitions._heat_map(counts, "title", "class", names).axes[1].get_yticklabels()
    assert [row.get_text() for row in rows] == expected[::-1]  # the largest group first


def test_a_figure_of_very_many_clients_shows_some_of_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    at = (np.arange(130_000) // 13 * 10, rng.integers(3000, size=130_000))  # every tenth client has images
    counts = coo_array((np.ones(130_000, int), at), (100_000, 3000)).tocsr()
    tracemalloc.start()
    path = partitions.distribution(counts, "users", "class", tmp_path / "many.png")
    assert tracemalloc.get_traced_memory()[1] < 6e8  # all of it has 3e8 numbers of eight bytes
    tracemalloc.stop()
    check_figure(tmp_path / "many.png", path)


def test_neighbours_are_added_up_where_there_are_too_many() -> None:
    values = np.arange(10.0)[:, None]
    assert partitions._merged(values, 10).ravel().tolist() == list(range(10))
    assert partitions._merged(values, 5).ravel().tolist() == [1, 5, 9, 13, 17]
    assert partitions._merged(values, 3).sum() == 45


@pytest.mark.parametrize("n", [2, 9])
def test_similarity(tmp_path: Path, n: int) -> None:
    names = [f"task {i}" for i in range(n)]
    table = pd.DataFrame(np.random.default_rng(0).random((n, n)), names, names)
    path = tmp_path / "similarity.png"
    check_figure(path, partitions.similarity({"one": (table, "Blues"), "other": (table, "Blues_r")}, "tasks", path))


@pytest.mark.parametrize("numbers", [[4], [2, 4, 8, 16, 32]])
def test_cluster_numbers(tmp_path: Path, numbers: list[int]) -> None:
    measured = {"inertia": 0.5, "silhouette": 0.1, "stability": 0.8, "stability_std": 0.1}
    path = tmp_path / "numbers.png"
    rows = [{"n_clusters": n, **measured} for n in numbers]
    check_figure(path, partitions.cluster_numbers(rows, "normal", path))
