"""The sheet that shows the built-in rooms."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from datasets.rooms import preview_grid
from datasets.rooms.preview_grid import PREVIEW_GRID, draw_preview_grid, most_typical
from datasets.sources.taskonomy import CLASS_NAMES, SEGMENTS, View
from tests.conftest import ROOT
from tests.datasets.sources.finding import save_image
from tests.datasets.test_frame import save_turned

pytestmark = pytest.mark.usefixtures("figures")  # they are looked at


def test_it_stands_beside_the_views(rendered: Path, own_copy: Path) -> None:
    assert (rendered / PREVIEW_GRID).is_file()
    draw_preview_grid(own_copy)
    with Image.open(own_copy / PREVIEW_GRID) as sheet:
        assert min(sheet.size) > 800


def test_the_sheet_shows_typical_views(tmp_path: Path) -> None:
    """Distances of (0.4, 0) to the four others add up to 1.79, of (0.3, 0) to 1.85, of (0.5, 0) to 1.97."""
    shares = {0: {"bed": 0.5}, 1: {"bed": 0.4}, 2: {"bed": 0.3}, 3: {"vase": 0.9}, 4: {"bed": 0.3, "vase": 0.6}}
    views = [View("aspen", number, 0) for number in shares]
    for view, of in zip(views, shares.values(), strict=True):
        ids = np.full(100, SEGMENTS.names.index("background"), np.uint8)
        start = 0
        for name, share in of.items():
            ids[start : start + round(100 * share)] = SEGMENTS.names.index(name)
            start += round(100 * share)
        path = tmp_path / view.path("segment_semantic")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(ids.reshape(10, 10)).save(path)
    assert most_typical(tmp_path, views) == views[1]


@pytest.mark.parametrize("orientation", [1, 5, 6, 7, 8])
def test_targets_lie_where_their_photographs_show_them(
    tmp_path: Path, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photographs on their sides, with targets of the stored pictures: a patch in all three, at the same pixels."""
    view, patch = View("aspen", 0, 0), np.zeros((12, 20), bool)
    patch[1:5, 2:9] = True
    bed, wall = SEGMENTS.names.index("bed"), SEGMENTS.names.index("background")
    save_turned(tmp_path / view.path("rgb"), np.repeat(patch[..., None], 3, axis=-1) * np.uint8(200), orientation)
    save_image(tmp_path / view.path("segment_semantic"), np.where(patch, bed, wall).astype(np.uint8))
    save_image(tmp_path / view.path("depth_euclidean"), np.where(patch, 700, 2048).astype(np.uint16))
    scene = tmp_path / view.path("class_scene")
    scene.parent.mkdir(parents=True)
    np.save(scene, np.eye(365, dtype=np.float32)[0])
    shutil.copy(ROOT / "datasets" / CLASS_NAMES, tmp_path)
    figures: list[Figure] = []
    monkeypatch.setattr(preview_grid, "save", lambda figure, _: figures.append(figure))
    draw_preview_grid(tmp_path)
    [figure] = figures
    assert [axes.get_title() for axes in figure.axes] == ["View", "Depth", "Semantic segmentation"]
    photograph, *targets = (np.asarray(axes.images[0].get_array()) for axes in figure.axes)
    shown = photograph[..., 0] > 100
    assert shown.shape == ((20, 12) if orientation > 4 else (12, 20)) and shown.sum() == patch.sum()
    for target in targets:
        pixels = target.reshape(*shown.shape, -1)
        patch_only, rest = (np.unique(pixels[where], axis=0) for where in (shown, ~shown))
        assert len(patch_only) == len(rest) == 1 and (patch_only != rest).any()
