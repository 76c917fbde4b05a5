"""Figures of images, targets and predictions, in ordinary and in bare cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from datasets.classes import ClassSet
from datasets.tasks import TASKS, get_task
from reports.figures import images
from tests.datasets.tables import bound
from tests.reports.figures.pictures import check_figure, legend_of, words

DENSE = [name for name, task in TASKS.items() if task.dense and not task.instances]
KINDS = {(TASKS[name].categorical, TASKS[name].out_channels, TASKS[name].value_range): name for name in DENSE}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "figures" / "figure.png"


def draw_predictions(
    task_name: str, depth_target: str, path: Path, *, n: int, valid_share: float, level: float
) -> Path:
    """Random predictions of `n` images; continuous targets lie below `level`."""
    task, rng = bound(task_name, depth_target), np.random.default_rng(0)
    shape = (n, 8, 8) if task.categorical else (n, task.out_channels, 8, 8)
    targets, outputs = rng.integers(0, 18, (2, *shape)) if task.categorical else level - rng.random((2, *shape))
    valid = rng.random((n, 8, 8) if task.categorical else (n, 1, 8, 8)) < valid_share
    return images.predictions(task, rng.random((n, 3, 8, 8)), targets, valid, outputs, task_name, path)


@pytest.mark.parametrize(
    "task, n, valid_share",
    [(task, *how) for task in KINDS.values() for how in ((2, 1.0), (1, 0.0))] + [(task, 1, 0.5) for task in DENSE],
)
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
    returned = draw_predictions("depth_euclidean", depth_target, path, n=1, valid_share=valid_share, level=level)
    check_figure(path, returned)


def test_pixels_that_do_not_count_have_a_colour_of_their_own(path: Path) -> None:
    inputs, targets = np.ones((1, 3, 8, 8)), np.full((1, 1, 8, 8), 0.5)
    shares = []
    for share in (0, 0.5):
        valid = np.ones((1, 1, 8, 8), bool)
        valid[..., : int(8 * share)] = False
        images.predictions(get_task("reshading"), inputs, targets, valid, targets, "", path)
        with Image.open(path) as image:
            shares.append((np.asarray(image.convert("RGB")) == (0xC8, 0xC8, 0xD8)).all(axis=2).mean())
    assert shares[0] < 0.001 < 0.01 < shares[1]


@pytest.mark.parametrize("sizes", [[1], [12], [3, 1, 12], [2, 0, 1]])
def test_cluster_samples(path: Path, sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    check_figure(path, images.cluster_samples([rng.random((n, 3, 8, 8)) for n in sizes], "Clusters", path))


# What is drawn


def array_of(axes: Axes) -> np.ndarray:
    return np.ma.filled(np.ma.asarray(axes.images[0].get_array(), float), np.nan)


def test_rows_are_input_target_and_prediction(drawn: list[Figure]) -> None:
    task, rng = get_task("depth_euclidean", "metric"), np.random.default_rng(0)
    inputs, targets, outputs = rng.random((2, 3, 4, 4)), 5 * rng.random((2, 1, 4, 4)), 5 * rng.random((2, 1, 4, 4))
    valid = rng.random((2, 1, 4, 4)) < 0.7
    images.predictions(task, inputs, targets, valid, outputs, "title", Path())
    panels = np.array(drawn[0].axes[:6]).reshape(3, 2)
    for n in range(2):
        np.testing.assert_array_equal(array_of(panels[0, n]), inputs[n].transpose(1, 2, 0))
        np.testing.assert_array_equal(array_of(panels[1, n]), np.where(valid[n], targets[n], np.nan)[0])
        np.testing.assert_array_equal(array_of(panels[2, n]), outputs[n, 0])
    limits = (0.0, np.quantile(targets[valid], 0.99))
    assert all(axes.images[0].get_clim() == pytest.approx(limits) for axes in panels[1:].flat)
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["input", "target", "prediction"]
    assert drawn[0].axes[6].get_ylabel() == task.unit


def test_classes_have_the_colours_of_the_legend(drawn: list[Figure]) -> None:
    task = get_task("segmentation").with_classes(ClassSet(("road", "sky"), colours=("#804080", "#4682b4")))
    ids = np.array([[[0, 1], [1, 0]]])
    images.predictions(task, np.zeros((1, 3, 2, 2)), ids, ids == 0, 1 - ids, "title", Path())
    shown = [[to_hex(pixel) for pixel in array_of(axes).reshape(-1, 3)] for axes in drawn[0].axes[1:]]
    assert shown == [["#804080", "#c8c8d8", "#c8c8d8", "#804080"], ["#4682b4", "#804080", "#804080", "#4682b4"]]
    assert legend_of(drawn[0]) == {"road": "#804080", "sky": "#4682b4"}


def boxes_of(axes: Axes) -> list[tuple[float, ...]]:
    """Left, top, right and bottom in pixels."""
    return [
        (x + 0.5, y + 0.5, x + w + 0.5, y + h + 0.5) for x, y, w, h in (box.get_bbox().bounds for box in axes.patches)
    ]


CELLS = get_task("detection").with_classes(ClassSet(("red", "platelet"), colours=("#ff0000", "#0000ff")))


def test_boxes_have_the_sides_classes_and_scores_of_the_table(drawn: list[Figure]) -> None:
    there, found = (
        np.array([[1, 2, 5, 8, 1.0]]),
        np.array([[0, 0.9, 2, 2, 6, 7], [1, 0.31, 0, 0, 3, 3], [1, 0.2, 0, 0, 9, 9]]),
    )
    images.detections(CELLS, np.zeros((1, 3, 10, 10)), [there], [found], "title", Path())
    above, below = drawn[0].axes
    assert boxes_of(above) == [(1, 2, 5, 8)] and words(above.texts) == ["platelet"]
    assert boxes_of(below) == [(1, 2, 5, 8), (0, 0, 3, 3), (2, 2, 6, 7)]  # the best on top, the true one dotted
    assert words(below.texts) == ["platelet 0.31", "red 0.90"]
    assert [to_hex(box.get_edgecolor()) for box in below.patches] == ["#ffffff", "#0000ff", "#ff0000"]
    assert below.patches[0].get_linestyle() == ":" and above.texts[0].get_position() == (0.5, 1.5)
    assert legend_of(drawn[0]) == {"red": "#ff0000", "platelet": "#0000ff"}


def test_on_crowded_images_no_label_buries_a_box(drawn: list[Figure]) -> None:
    corner = np.arange(9.0)
    many = np.stack([corner, corner, corner + 1, corner + 1, 0 * corner], axis=1)
    found = np.concatenate([0 * many[:, :1], 0 * many[:, :1] + 0.5, many[:, :4]], axis=1)
    images.detections(CELLS, np.zeros((2, 3, 10, 10)), [many, many[:8]], [found[:8], found], "title", Path())
    assert [len(axes.texts) for axes in drawn[0].axes] == [0, 8, 8, 0]  # row by row
    assert [len(axes.patches) for axes in drawn[0].axes] == [9, 8, 17, 17]
    assert list(legend_of(drawn[0])) == ["red"]


def test_a_row_has_the_images_of_its_cluster(drawn: list[Figure]) -> None:
    samples = [np.full((n, 3, 2, 2), k / 4) for k, n in enumerate((2, 3))]
    images.cluster_samples(samples, "title", Path())
    panels = np.array(drawn[0].axes).reshape(2, 3)
    assert [[array_of(axes).max() for axes in row if axes.images] for row in panels] == [[0, 0], [0.25] * 3]
    assert [row[0].get_ylabel() for row in panels] == ["0", "1"]


def test_components_are_stretched_by_layer_and_channel(drawn: list[Figure]) -> None:
    maps = np.random.default_rng(0).normal(size=(2, 3, 8, 8)) * np.array([1, 10, 100])[:, None, None]
    images.coloured_maps(np.zeros((2, 3, 4, 4)), {"low": maps, "high": -maps}, Path())
    panels = np.array(drawn[0].axes).reshape(3, 2)
    low, high = np.quantile(maps, (0.02, 0.98), axis=(0, 2, 3))
    expected = ((maps[1].transpose(1, 2, 0) - low) / (high - low)).clip(0, 1)
    np.testing.assert_allclose(array_of(panels[1, 1]), expected)
    np.testing.assert_allclose(array_of(panels[2, 1]), 1 - expected, atol=1e-9)
    assert [row[0].get_ylabel() for row in panels] == ["image", "low", "high"]


def test_objects_have_colours_of_their_own_over_the_image(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["instances"].with_classes(ClassSet(("cat", "dog")))
    numbers, valid = np.zeros((1, 8, 8), int), np.ones((1, 8, 8), bool)
    numbers[0, :4, :4], numbers[0, :4, 4:], valid[0, 7] = 1, 2, False
    drawn, texts = [], []
    show, write = Axes.imshow, Axes.text
    monkeypatch.setattr(Axes, "imshow", lambda axes, values, **more: drawn.append(values) or show(axes, values, **more))
    monkeypatch.setattr(
        Axes, "text", lambda axes, x, y, s, **more: texts.append((x, y, s)) or write(axes, x, y, s, **more)
    )
    truth, nothing = (numbers[0], np.array([1, 0])), (np.zeros((8, 8), int), np.zeros(0, int))
    check_figure(path, images.objects(task, np.full((1, 3, 8, 8), 0.5), [truth], valid, [nothing], "cats", path))
    image, target, prediction = drawn
    assert (image == 0.5).all() and (prediction == 0.5).all() and (target[4:7] == 0.5).all()
    first, second, void = target[0, 0], target[0, 7], target[7, 0]
    assert (target[:4, :4] == first).all() and (target[:4, 4:] == second).all() and (target[7] == void).all()
    assert len({tuple(each) for each in (first, second, void, image[0, 0])}) == 4
    assert texts == [(1.5, 1.5, "dog"), (5.5, 1.5, "cat")]
