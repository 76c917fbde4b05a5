"""What every figure must be, and what is drawn in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from PIL import Image

_WHITE = (255, 255, 255)


def check_picture(path: Path) -> None:
    """A PNG of a sensible size, with more than a blank page."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert min(image.size) >= 150 and max(image.size) <= 6000
        n_pixels = image.width * image.height
        colours = {colour: count for count, colour in image.convert("RGB").getcolors(n_pixels)}
    assert len(colours) > 10
    assert 1 - colours.get(_WHITE, 0) / n_pixels > 0.002


def check_figure(path: Path, returned: Path) -> None:
    """Such a PNG in the path that was returned, a PDF of the same beside it, and nothing else."""
    assert returned == path
    check_picture(path)
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, path.with_suffix(".pdf").name}


def line_of(axes: Any, label: str) -> list[list[float]]:
    """The x and the y of the only line with a label."""
    [line] = [each for each in axes.lines if each.get_label() == label]
    return points_of(line)


def points_of(line: Any) -> list[list[float]]:
    """The x and the y of a line."""
    return np.round(np.array(line.get_data(), float), 9).tolist()


def bars_of(axes: Any) -> dict[str, list[tuple[float, ...]]]:
    """The bars by their label or, without one, by their colour: (left, bottom, width, height) of each."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for container in axes.containers:
        bars = getattr(container, "patches", ())
        for bar in bars:
            names = (container.get_label(), bars[0].get_label(), to_hex(bar.get_facecolor()))
            key = next(name for name in names if not name.startswith("_"))
            found.setdefault(key, []).append((*np.round(bar.get_xy(), 9), bar.get_width(), bar.get_height()))
    for group in (each for each in axes.collections if type(each) is PolyCollection):
        label, [colour] = group.get_label(), group.get_facecolor()
        boxes = [path.get_extents() for path in group.get_paths()]
        bars = [(round(box.x0, 9), round(box.y0, 9), box.width, box.height) for box in boxes]
        found[to_hex(colour) if label.startswith("_") else label] = bars
    return found


def interval_of(container: Any) -> list[list[tuple[float, float]]]:
    """The ends of the intervals of error bars, as points, one pair each."""
    errors = getattr(container, "errorbar", container)
    return [[tuple(np.round(point, 9)) for point in segment] for segment in errors[2][0].get_segments()]


def band_at(axes: Any, number: int, x: float) -> list[float]:
    """The lowest and the highest y of a band at an x."""
    vertices = axes.collections[number].get_paths()[0].vertices
    heights = vertices[np.isclose(vertices[:, 0], x), 1]
    return [float(heights.min()), float(heights.max())]


def legend_of(owner: Any) -> dict[str, str]:
    """The colours of a legend by their labels, in their order."""
    legend = owner.get_legend() if hasattr(owner, "get_legend") else owner.legends[0]
    colour = lambda handle: handle.get_facecolor() if hasattr(handle, "get_facecolor") else handle.get_color()  # noqa: E731
    return {
        text.get_text(): to_hex(colour(handle))
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }


def words(labels: Any) -> list[str]:
    """The texts of some labels."""
    return [label.get_text() for label in labels]
