"""Figures of single runs, in ordinary and in bare cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reports.figures import charts
from tests.reports.figures.pictures import band_at, bars_of, check_figure, legend_of, line_of, words
from utils.figures import COLOURS, palette


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "figures" / "figure.png"


@pytest.mark.parametrize("n", [1, 16])
def test_class_histogram(path: Path, n: int) -> None:
    check_figure(path, charts.class_histogram([n - i for i in range(n)], [f"living_room {i}" for i in range(n)], path))


@pytest.mark.parametrize("n_epochs", [1, 5])
def test_loss_curve(path: Path, n_epochs: int) -> None:
    history = [{"epoch": i + 1, "train_loss": 1 / (i + 1), "val_loss": 2 / (i + 1)} for i in range(n_epochs)]
    check_figure(path, charts.loss_curve(history, 0.7, "normal", "L1 loss", path))


@pytest.mark.parametrize("matrix", [np.array([[3]]), np.array([[2, 1], [0, 0]]), np.eye(16, dtype=int) * 9])
def test_confusion_matrix(path: Path, matrix: np.ndarray) -> None:
    check_figure(path, charts.confusion_matrix(matrix, [f"class_{i}" for i in range(len(matrix))], "classes", path))


def test_of_many_classes_neither_names_nor_numbers_are_drawn(path: Path, drawn: list[Figure]) -> None:
    for n in (16, 100):
        names = [f"class {i}" for i in range(n)]
        charts.confusion_matrix(np.eye(n, dtype=int), names, "classes", path)
        charts.tsne(np.zeros((n, 2)), np.arange(n), names, "class", "embeddings", path)
    texts = [sum(len(axes.texts) for axes in figure.axes) for figure in drawn[::2]]
    labels = [len(figure.axes[0].get_yticks()) for figure in drawn[::2]]
    legends = [len(figure.legends) for figure in drawn[1::2]]
    centroids = [len(figure.axes[0].texts) for figure in drawn[1::2]]
    assert texts == [16, 0] and labels[0] == 16 and labels[1] < 16 and legends == [1, 0] and centroids == [16, 0]


@pytest.mark.parametrize("n_ids, n_points", [(1, 1), (3, 30), (25, 50)])
def test_tsne(path: Path, n_ids: int, n_points: int) -> None:
    points = np.random.default_rng(0).normal(size=(n_points, 2))
    labels = [str(i) for i in range(n_ids)]
    check_figure(path, charts.tsne(points, np.arange(n_points) % n_ids, labels, "cluster", "Embeddings", path))


@pytest.mark.parametrize("n_rounds", [1, 20])
def test_federated_rounds(path: Path, n_rounds: int) -> None:
    rows = [
        {"round": i, "train_loss_mean": 1 / (i + 1), "train_loss_std": 0.1, "test_loss": 1.0} for i in range(n_rounds)
    ]
    rows[1:-1:2] = [{"round": row["round"], "seconds": 1.0} for row in rows[1:-1:2]]  # these were not evaluated
    check_figure(path, charts.federated_rounds(rows, "loss", {"train": 0.5, "test": 0.6}, "normal", "L1 loss", path))


@pytest.mark.parametrize("kinds", [("",), ("", "personal_"), ("personal_",)])
def test_federated_rounds_of_global_and_personal_models(path: Path, kinds: tuple[str, ...]) -> None:
    rows = [
        {"round": i}
        | ({"test_loss": 0.9} if "" in kinds else {})
        | {f"{k}{s}_loss_{w}": 1 / (i + 1) for k in kinds for s in ("train", "local_test") for w in ("mean", "std")}
        for i in range(5)
    ]
    check_figure(
        path,
        charts.federated_rounds(
            rows, "loss", {"train": 0.5, "local_test": 0.7, "test": 0.6}, "normal", "L1 loss", path
        ),
    )


@pytest.mark.parametrize("n", [1, 20, 21, 200])
def test_colours_are_distinct(n: int) -> None:
    assert len(set(palette(n))) == len(palette(n)) == n


# What is drawn


def test_histogram_shows_the_counts(drawn: list[Figure]) -> None:
    charts.class_histogram([5, 0, 3], ["bed_room", "attic", "hall"], Path())
    [axes] = drawn[0].axes
    assert [(x + width / 2, height) for x, _, width, height in bars_of(axes)["#3b6ea5"]] == [(0, 5), (1, 0), (2, 3)]
    assert words(axes.get_xticklabels()) == ["bed room", "attic", "hall"] and words(axes.texts) == ["5", "0", "3"]
    assert axes.get_ylabel() == "images"


def test_loss_curve_shows_both_losses_and_the_trivial_one(drawn: list[Figure]) -> None:
    history = [{"epoch": 1, "train_loss": 4.0, "val_loss": 5.0}, {"epoch": 2, "train_loss": 2.0, "val_loss": 3.0}]
    charts.loss_curve(history, 2.5, "title", "L1 loss, m", Path())
    [axes] = drawn[0].axes
    assert line_of(axes, "training images") == [[1, 2], [4, 2]]
    assert line_of(axes, "validation images") == [[1, 2], [5, 3]]
    assert line_of(axes, "constant baseline, global test")[1] == [2.5, 2.5]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "L1 loss, m")


def test_confusion_has_true_classes_in_rows(drawn: list[Figure]) -> None:
    charts.confusion_matrix(np.array([[3, 1], [0, 2]]), ["a", "b"], "title", Path())
    axes = drawn[0].axes[0]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 1]]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {(0, 0): "3", (1, 0): "1", (1, 1): "2"}
    assert words(axes.get_xticklabels()) == words(axes.get_yticklabels()) == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "true")
    assert axes.images[0].get_clim() == (0, 1) and drawn[0].axes[1].get_ylabel() == "share of the true class"


def test_tsne_shows_each_point_in_the_colour_of_its_label(drawn: list[Figure]) -> None:
    points = np.array([[0, 0], [4, 0], [1, 6], [2, 8], [9, 7]])
    charts.tsne(points, np.array([0, 0, 1, 1, 1]), ["a_b", "c"], "cluster", "title", Path())
    [axes] = drawn[0].axes
    assert [each.get_offsets().tolist() for each in axes.collections] == [points[:2].tolist(), points[2:].tolist()]
    assert {text.get_text(): text.get_position() for text in axes.texts} == {"a b": (2, 0), "c": (2, 7)}
    assert legend_of(drawn[0]) == dict(zip(("a b", "c"), map(to_hex, palette(2)), strict=True))
    assert [to_hex(each.get_facecolor()[0]) for each in axes.collections] == list(legend_of(drawn[0]).values())


def test_shares_stand_from_above_in_their_order(drawn: list[Figure]) -> None:
    charts.shares({"clusters": 0.25, "classes": -0.1, "ceiling": 0.875}, "title", Path())
    [axes] = drawn[0].axes
    assert [(round(y + height / 2), width) for _, y, width, height in bars_of(axes)["#3b6ea5"]] == [
        (0, 0.25),
        (1, -0.1),
        (2, 0.875),
    ]
    assert words(axes.get_yticklabels()) == ["clusters", "classes", "ceiling"] and axes.yaxis_inverted()
    assert words(axes.texts) == ["0.25", "-0.10", "0.88"] and axes.get_xlim() == (-0.1, 1.08)


def test_rounds_show_means_and_deviations_of_each_model_on_its_images(drawn: list[Figure]) -> None:
    columns = {"train_loss": 1, "local_test_loss": 2, "personal_train_loss": 3, "personal_local_test_loss": 4}
    rows = [
        {"round": i, "test_loss": 50.0 + i}
        | {f"{name}_mean": start + i for name, start in columns.items()}
        | {f"{name}_std": 0.25 * start for name, start in columns.items()}
        for i in range(3)
    ]
    rows[0]["train_loss_mean"] = 99.0  # of the untrained model
    trivial = {"train": 5.0, "local_test": 6.0, "test": 7.0}
    charts.federated_rounds(rows, "loss", trivial, "title", "L1 loss", Path())
    left, right = drawn[0].axes
    told = "{}, mean ± standard deviation over clients"
    of_global, of_clients = told.format("global model"), told.format("personal models")
    assert line_of(left, of_global) == [[0, 1, 2], [99, 2, 3]] and line_of(left, of_clients)[1] == [3, 4, 5]
    assert line_of(right, of_global)[1] == [2, 3, 4] and line_of(right, of_clients)[1] == [4, 5, 6]
    assert [band_at(axes, n, 2) for axes in (left, right) for n in (0, 1)] == [
        [2.75, 3.25],
        [4.25, 5.75],
        [3.5, 4.5],
        [5, 7],
    ]
    assert line_of(right, "global model, global test")[1] == [50, 51, 52]
    assert [line_of(axes, "constant baseline")[1][0] for axes in (left, right)] == [5, 6]
    assert [axes.get_title() for axes in (left, right)] == ["client train", "client test"]
    # All that comes after the untrained model is in view, the global model on all held-out images, too.
    assert left.get_ylim()[1] == pytest.approx(1.08 * 52) and left.get_ylabel() == "L1 loss"


def test_cosines_are_densities_beside_their_means(drawn: list[Figure]) -> None:
    rng = np.random.default_rng(0)
    right, other = rng.normal(0.5, 0.1, 300), rng.normal(0.2, 0.1, 900)
    charts.cosines(right, other, "cosine", Path())
    [axes] = drawn[0].axes
    for values, name in ((right, "text of its class"), (other, "text of another class")):
        [of] = [patches for label, patches in bars_of(axes).items() if label == f"{name}, mean {values.mean():.3f}"]
        edges = np.linspace(min(right.min(), other.min()), max(right.max(), other.max()), 51)
        np.testing.assert_allclose([height for *_, height in of], np.histogram(values, edges, density=True)[0], 1e-6)
        np.testing.assert_allclose([x for x, *_ in of], edges[:-1], atol=1e-6)
    assert [colour[:7] for colour in legend_of(axes).values()] == [COLOURS["embedding"], COLOURS["class"]]


def test_neighbours_stand_by_layer_beside_what_the_commonest_class_gives(drawn: list[Figure]) -> None:
    accuracy = {"one text for all": {"low": 0.5, "high": 0.75}, "own": {"low": 0.625, "high": 1.0}}
    charts.neighbours(accuracy, 0.375, "title", Path())
    [axes] = drawn[0].axes
    bars = bars_of(axes)
    assert {kind: [height for *_, height in of] for kind, of in bars.items()} == {
        "one text for all": [0.5, 0.75],
        "own": [0.625, 1.0],
    }
    middles = [np.mean([x + width / 2 for x, _, width, _ in pair]) for pair in zip(*bars.values(), strict=True)]
    assert axes.get_xticks().tolist() == pytest.approx(middles) and words(axes.get_xticklabels()) == ["low", "high"]
    assert line_of(axes, "none: the commonest class")[1] == [0.375, 0.375]
    assert words(axes.texts) == ["0.50", "0.75", "0.62", "1.00"]
