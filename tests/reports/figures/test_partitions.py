"""The figures of partitions are drawn for few and for many clients and groups."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.sparse import coo_array

from reports.figures import partitions
from tests.reports.figures.pictures import band_at, bars_of, check_figure, interval_of, legend_of, points_of, words
from utils.figures import palette, save


@pytest.mark.parametrize(
    "shape, skewed",
    [
        *((shape, skewed) for shape in ((1, 1), (1, 10), (10, 60)) for skewed in (True, False)),
        ((25, 16), True),
        ((40, 24), False),
        ((41, 16), True),
        ((2000, 500), False),
    ],
)
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
        "Principal curvature, embedding-based partition, α = 0.1, seed 0",
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
    assert [bar.get_label() for bar in bars.axes[0].collections] == expected
    rows = partitions._heat_map(counts, "title", "class", np.zeros(len(counts), bool), names).axes[1].get_yticklabels()
    assert [row.get_text() for row in rows] == expected[::-1]  # the largest group first


def test_clients_have_their_names_or_else_their_numbers() -> None:
    counts = np.arange(1, 7).reshape(3, 2)
    for given, expected in (
        (["art", "photo_print", "sketch"], ["art", "photo print", "sketch"]),
        ((), ["0", "1", "2"]),
    ):
        figure = partitions._bars(counts, "title", "class", ["a", "b"], given)
        assert words(figure.axes[0].get_xticklabels()) == expected


def test_groups_within_natural_groups_show_as_blocks_in_their_order() -> None:
    counts = np.zeros((4, 40), int)
    for client in range(4):
        counts[client, 10 * client : 10 * client + 10] = 1 + (7 * np.arange(10) + client) % 5
    cities = np.repeat(["aachen", "bern", "ulm"], [10, 20, 10]).tolist()
    axes = partitions._heat_map(counts, "title", "cluster", np.zeros(len(counts), bool), [], cities).axes[1]
    shown = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(shown, (counts / counts.sum(axis=1, keepdims=True)).T)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["aachen", "bern", "ulm"]
    assert axes.get_yticks().tolist() == [0, 10, 30] and axes.get_xlabel() == "4 clients"


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


# What is drawn


def test_a_client_is_a_bar_of_its_groups_one_upon_the_other(drawn: list[Figure]) -> None:
    partitions.distribution(np.array([[3, 0, 2], [1, 4, 0]]), "title", "class", Path(), ["hall", "bed_room", "attic"])
    [axes] = drawn[0].axes
    heights = {name: [height for *_, height in of] for name, of in bars_of(axes).items()}
    assert heights == {"hall": [3, 1], "bed room": [0, 4], "attic": [2, 0]}
    assert {name: [bottom for _, bottom, *_ in of] for name, of in bars_of(axes).items()} == {
        "hall": [0, 0],
        "bed room": [3, 1],
        "attic": [3, 5],
    }
    assert [x + width / 2 for x, _, width, _ in bars_of(axes)["attic"]] == pytest.approx([0, 1])
    assert axes.get_ylim() == (0, pytest.approx(1.04 * 5)) and axes.get_ylabel() == "images"
    assert list(legend_of(drawn[0]).values()) == [to_hex(colour) for colour in palette(3)]
    assert [to_hex(group.get_facecolor()[0]) for group in axes.collections] == [*legend_of(drawn[0]).values()]


@pytest.mark.parametrize(("n_clients", "n_groups"), [(6, 3), (70, 40)])
def test_clients_that_never_train_stand_last_behind_a_line(drawn: list[Figure], n_clients: int, n_groups: int) -> None:
    counts = np.random.default_rng(0).integers(1, 9, (n_clients, n_groups))
    for n_non_participating in (2, 0):
        partitions.distribution(counts, "title", "class", Path(), n_non_participating=n_non_participating)
    marked, plain = (figure.axes[-1 if n_clients < 60 else 1] for figure in drawn)
    assert marked.get_xlabel() == f"{plain.get_xlabel()} (the last 2, beyond the line, never train)"
    [line] = marked.get_lines()
    assert list(line.get_xdata()) == [n_clients - 2.5] * 2 and not plain.get_lines()


def test_a_wide_title_lies_within_its_figure(tmp_path: Path) -> None:
    words = (
        "normal, class-based partition within building, dirichlet_hsu, α = 0.1, 2 non-participating clients, and more"
    )
    figure = partitions._bars(np.ones((3, 2)), words, "class", ())
    save(figure, tmp_path / "a.png")
    box, width = figure._suptitle.get_window_extent(), figure.bbox.width  # type: ignore[attr-defined]
    assert box.x0 >= 0 and box.x1 <= width and figure.get_suptitle() == words


def test_a_map_has_shares_of_the_largest_group_first_and_sizes_above(drawn: list[Figure]) -> None:
    counts = np.zeros((60, 3), int)
    counts[:20, 2], counts[20:40, 0], counts[40:, 2], counts[40:, 0] = 10, 4, 6, 2
    partitions.distribution(counts, "title", "class", Path(), ["a", "b", "c"])
    above, below, _ = drawn[0].axes
    shares = np.asarray(below.images[0].get_array())  # clients by their largest group: 20 of c alone, 20 more, 20 of a
    assert [np.round(shares[:, at], 6).tolist() for at in (0, 30, 50)] == [[1, 0], [0.75, 0.25], [0, 1]]
    assert [band_at(above, 0, at - 0.5)[1] for at in (5, 30, 50)] == [10, 8, 4]
    assert words(below.get_yticklabels()) == ["c", "a"]
    assert below.get_xlabel() == "60 clients, by their largest class" and below.get_ylim() == (1.5, -0.5)


def test_the_largest_of_very_many_groups_keep_their_names(drawn: list[Figure]) -> None:
    counts = np.zeros((60, 1500), int)
    counts[:, [1100, 1300]] = 3, 2
    partitions.distribution(counts, "title", "class", Path(), [f"class {group}" for group in range(1500)])
    assert words(drawn[0].axes[1].get_yticklabels()) == ["class 1100", "class 1300"]


def test_what_is_most_alike_is_darkest_the_diagonal_with_it(drawn: list[Figure]) -> None:
    names = ["normal", "depth", "edges"]
    alike = pd.DataFrame([[1, 0.6, 0.2], [0.6, 1, 0.3], [0.2, 0.3, 1]], names, names)
    partitions.similarity({"information": (alike, "Blues"), "distance": (1 - alike, "Blues_r")}, "title", Path())
    for axes, table, bar in zip(drawn[0].axes[:2], (alike, 1 - alike), drawn[0].axes[2:], strict=True):
        image = axes.images[0]
        darkness = 1 - image.cmap(image.norm(image.get_array()))[..., :3].mean(axis=2)
        order = alike.to_numpy().ravel().argsort(kind="stable")
        assert (np.diff(darkness.ravel()[order]) >= 0).all() and darkness[0, 0] > 0.5 > darkness[0, 2]
        shown = {text.get_position(): text.get_text() for text in axes.texts}
        assert shown == {(j, i): f"{table.iloc[i, j]:.2f}" for i in range(3) for j in range(3)}
        colours = {text.get_position(): text.get_color() for text in axes.texts}
        assert (colours[0, 0], colours[2, 0]) == ("white", "black")
        assert words(axes.get_xticklabels()) == words(axes.get_yticklabels()) == names
        assert image.get_clim() == pytest.approx(sorted([table.iloc[0, 1], table.iloc[0, 2]]))
        assert bar.get_ylabel() == ("information" if table is alike else "distance")


def test_numbers_of_clusters_stand_under_their_measures(drawn: list[Figure]) -> None:
    rows = [
        {"n_clusters": n, "inertia": 1 / n, "silhouette": n / 100, "stability": n / 10, "stability_std": n / 20}
        for n in (2, 8)
    ]
    partitions.cluster_numbers(rows, "title", Path())
    points = [[points_of(line) for line in axes.lines[:1]] for axes in drawn[0].axes]
    assert points == [[[[2, 8], [0.5, 0.125]]], [[[2, 8], [0.02, 0.08]]], [[[2, 8], [0.2, 0.8]]]]
    stability = drawn[0].axes[2]
    assert interval_of(stability.containers[0]) == [[(2, 0.1), (2, 0.3)], [(8, 0.4), (8, 1.2)]]
    assert words(stability.get_xticklabels()) == ["2", "8"] and stability.get_xscale() == "log"
    assert [axes.get_ylabel().split()[0] for axes in drawn[0].axes] == ["inertia,", "silhouette", "stability"]
