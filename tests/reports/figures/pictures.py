"""What every figure must be."""

from __future__ import annotations

from pathlib import Path

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
