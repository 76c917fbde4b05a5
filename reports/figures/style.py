"""What all figures share: how they are saved, their colours, and the names of what they show."""

from __future__ import annotations

from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure

from utils.files import write_atomically

# Of the palette that Okabe and Ito chose for the colour-blind.
COLOURS = {"class": "#0072b2", "embedding": "#d55e00"}
# The images that values are measured on: their names in the columns of `metrics.csv`, and in figures.
IMAGES = {"train": "clients' own training images", "local_test": "clients' held-out images",
          "test": "all held-out images"}  # fmt: skip


def save(figure: Figure, path: Path) -> Path:
    """Save a figure as PNG, and as PDF for print beside it; returns the PNG's path."""
    for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):  # the same figure is the same file
        with write_atomically(path.with_suffix(f".{kind}")) as temporary:
            figure.savefig(temporary, dpi=150, format=kind, metadata=metadata)
    return path


def palette(n: int) -> list[tuple[float, float, float, float]]:
    """`n` distinct colours, the same for the same n."""
    base = [colormaps["tab20"](i) for i in [*range(0, 20, 2), *range(1, 20, 2)]]
    return base[:n] if n <= 20 else [colormaps["hsv"](i / n) for i in range(n)]
