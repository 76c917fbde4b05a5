"""Figures of single runs, in ordinary and in bare cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from reports.figures import charts
from reports.figures.style import palette
from tests.reports.figures.pictures import check_figure


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


def test_of_many_classes_neither_names_nor_numbers_are_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(charts, "save", lambda figure, path: figures.append(figure) or path)
    for n in (16, 100):
        names = [f"class {i}" for i in range(n)]
        charts.confusion_matrix(np.eye(n, dtype=int), names, "classes", path)
        charts.tsne(np.zeros((n, 2)), np.arange(n), names, "class", "embeddings", path)
    texts = [sum(len(axes.texts) for axes in figure.axes) for figure in figures[::2]]
    labels = [len(figure.axes[0].get_yticks()) for figure in figures[::2]]
    legends = [len(figure.legends) for figure in figures[1::2]]
    centroids = [len(figure.axes[0].texts) for figure in figures[1::2]]
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
