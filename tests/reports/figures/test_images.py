"""Figures of images, targets and predictions, in ordinary and in bare cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from datasets.tasks import TASKS, get_task
from reports.figures import images
from tests.datasets.tables import bound
from tests.reports.figures.pictures import check_figure

DENSE = [name for name, task in TASKS.items() if task.dense]


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
    inputs, targets = np.ones((1, 3, 8, 8)), np.full((1, 1, 8, 8), 0.5)
    shares = []
    for share in (0, 0.5):
        valid = np.ones((1, 1, 8, 8), bool)
        valid[..., : int(8 * share)] = False
        images.predictions(get_task("reshading"), inputs, targets, valid, targets, "", path)
        with Image.open(path) as image:
            shares.append((np.asarray(image.convert("RGB")) == (0xC8, 0xC8, 0xD8)).all(axis=2).mean())
    assert shares[0] < 0.001 < 0.01 < shares[1]


@pytest.mark.parametrize(("task", "shown"), [("reshading", True), ("edge_texture", False)])
def test_where_zero_is_a_value_it_looks_like_one(task: str, shown: bool) -> None:
    values, valid = np.array([[[0.0, 0.5], [1.0, 0.0]]]), np.array([[[False, True], [True, False]]])
    axes = Figure().subplots()
    drawn = images.draw_target(axes, get_task(task), values, valid, (0.0, 1.0)).get_array()
    assert np.isnan(drawn.filled(np.nan)).any() == shown


@pytest.mark.parametrize("sizes", [[1], [12], [3, 1, 12], [2, 0, 1]])
def test_cluster_samples(path: Path, sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    check_figure(path, images.cluster_samples([rng.random((n, 3, 8, 8)) for n in sizes], "Clusters", path))
