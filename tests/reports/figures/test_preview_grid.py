"""The sheet that shows the built-in rooms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from datasets.sources.taskonomy import SEGMENTS, View
from reports.figures.preview_grid import PREVIEW_GRID, draw_preview_grid, most_typical


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
