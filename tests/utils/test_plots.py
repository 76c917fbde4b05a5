"""The figures: each is a readable PNG that shows something, in ordinary and in bare cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from datasets.tasks import TASKS, get_task
from tests.datasets.tables import bound
from tests.utils.figures import check_figure
from utils import plots

DENSE = [name for name, task in TASKS.items() if task.dense]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "figures" / "figure.png"


@pytest.mark.parametrize("n", [1, 16])
def test_class_histogram(path: Path, n: int) -> None:
    check_figure(path, plots.class_histogram([n - i for i in range(n)], [f"living_room {i}" for i in range(n)], path))


@pytest.mark.parametrize("n_epochs", [1, 5])
def test_loss_curve(path: Path, n_epochs: int) -> None:
    history = [{"epoch": i + 1, "train_loss": 1 / (i + 1), "val_loss": 2 / (i + 1)} for i in range(n_epochs)]
    check_figure(path, plots.loss_curve(history, 0.7, "normal", "L1 loss", path))


def draw_predictions(
    task_name: str, depth_target: str, path: Path, *, n: int, valid_share: float, level: float
) -> Path:
    """Random predictions of `n` images; continuous targets lie below `level`."""
    task, rng = bound(task_name, depth_target), np.random.default_rng(0)
    shape = (n, 8, 8) if task.categorical else (n, task.out_channels, 8, 8)
    targets, outputs = rng.integers(0, 18, (2, *shape)) if task.categorical else level - rng.random((2, *shape))
    valid = rng.random((n, 8, 8) if task.categorical else (n, 1, 8, 8)) < valid_share
    return plots.predictions(task, rng.random((n, 3, 8, 8)), targets, valid, outputs, task_name, path)


@pytest.mark.parametrize("n, valid_share", [(1, 1.0), (3, 0.5), (2, 0.0)])
@pytest.mark.parametrize("task", DENSE)
def test_predictions(path: Path, task: str, n: int, valid_share: float) -> None:
    check_figure(path, draw_predictions(task, "scaled", path, n=n, valid_share=valid_share, level=1))


@pytest.mark.parametrize(
    "depth_target, valid_share, level",
    [
        ("metric", 0.5, 3), ("log", 0.5, 2), ("metric", 0.0, 3),
        ("log", 0.0, 1), ("log", 1.0, -0.5),
    ],
)  # fmt: skip
def test_predictions_of_depth_in_metres(path: Path, depth_target: str, valid_share: float, level: float) -> None:
    returned = draw_predictions("depth_euclidean", depth_target, path, n=2, valid_share=valid_share, level=level)
    check_figure(path, returned)


def test_pixels_that_do_not_count_have_a_colour_of_their_own(path: Path) -> None:
    images, targets = np.ones((1, 3, 8, 8)), np.full((1, 1, 8, 8), 0.5)
    shares = []
    for share in (0, 0.5):
        valid = np.ones((1, 1, 8, 8), bool)
        valid[..., : int(8 * share)] = False
        plots.predictions(get_task("reshading"), images, targets, valid, targets, "", path)
        with Image.open(path) as image:
            shares.append((np.asarray(image.convert("RGB")) == (0xC8, 0xC8, 0xD8)).all(axis=2).mean())
    assert shares[0] < 0.001 < 0.01 < shares[1]


@pytest.mark.parametrize(("task", "shown"), [("reshading", True), ("edge_texture", False)])
def test_where_zero_is_a_value_it_looks_like_one(task: str, shown: bool) -> None:
    values, valid = np.array([[[0.0, 0.5], [1.0, 0.0]]]), np.array([[[False, True], [True, False]]])
    axes = Figure().subplots()
    drawn = plots.draw_target(axes, get_task(task), values, valid, (0.0, 1.0)).get_array()
    assert np.isnan(drawn.filled(np.nan)).any() == shown


@pytest.mark.parametrize("matrix", [np.array([[3]]), np.array([[2, 1], [0, 0]]), np.eye(16, dtype=int) * 9])
def test_confusion_matrix(path: Path, matrix: np.ndarray) -> None:
    check_figure(path, plots.confusion_matrix(matrix, [f"class_{i}" for i in range(len(matrix))], "classes", path))


def test_of_many_classes_neither_names_nor_numbers_are_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure) or path)
    for n in (16, 100):
        names = [f"class {i}" for i in range(n)]
        plots.confusion_matrix(np.eye(n, dtype=int), names, "classes", path)
        plots.tsne(np.zeros((n, 2)), np.arange(n), names, "class", "embeddings", path)
    texts = [sum(len(axes.texts) for axes in figure.axes) for figure in figures[::2]]
    labels = [len(figure.axes[0].get_yticks()) for figure in figures[::2]]
    legends = [len(figure.legends) for figure in figures[1::2]]
    centroids = [len(figure.axes[0].texts) for figure in figures[1::2]]
    assert texts == [16, 0] and labels[0] == 16 and labels[1] < 16 and legends == [1, 0] and centroids == [16, 0]


@pytest.mark.parametrize("n_ids, n_points", [(1, 1), (3, 30), (25, 50)])
def test_tsne(path: Path, n_ids: int, n_points: int) -> None:
    points = np.random.default_rng(0).normal(size=(n_points, 2))
    labels = [str(i) for i in range(n_ids)]
    check_figure(path, plots.tsne(points, np.arange(n_points) % n_ids, labels, "cluster", "Embeddings", path))


@pytest.mark.parametrize("sizes", [[1], [12], [3, 1, 12], [2, 0, 1]])
def test_cluster_samples(path: Path, sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    check_figure(path, plots.cluster_samples([rng.random((n, 3, 8, 8)) for n in sizes], "Clusters", path))


@pytest.mark.parametrize("n_rounds", [1, 20])
def test_federated_rounds(path: Path, n_rounds: int) -> None:
    rows = [
        {"round": i, "train_loss_mean": 1 / (i + 1), "train_loss_std": 0.1, "test_loss": 1.0} for i in range(n_rounds)
    ]
    rows[1:-1:2] = [{"round": row["round"], "seconds": 1.0} for row in rows[1:-1:2]]  # these were not evaluated
    check_figure(path, plots.federated_rounds(rows, "loss", {"train": 0.5, "test": 0.6}, "normal", "L1 loss", path))


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
        plots.federated_rounds(rows, "loss", {"train": 0.5, "local_test": 0.7, "test": 0.6}, "normal", "L1 loss", path),
    )


@pytest.mark.parametrize("n", [1, 20, 21, 200])
def test_colours_are_distinct(n: int) -> None:
    assert len(set(plots.palette(n))) == len(plots.palette(n)) == n
