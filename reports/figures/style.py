"""What all figures share: how they are saved, their colours, and the names of what they show."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, Literal

from matplotlib import colormaps
from matplotlib.figure import Figure

from utils.files import write_atomically

# Of the palette that Okabe and Ito chose for the colour-blind.
COLOURS = {"class": "#0072b2", "embedding": "#d55e00"}
INTERVAL = "95 % t interval over seeds"
_NO_GLYPH = re.compile(r"Glyph (\d+) ")  # how matplotlib's warning of a character that a font lacks begins


def save(figure: Figure, path: Path) -> Path:
    """Save a figure as PNG, and as PDF for print beside it; returns the PNG's path.

    A title that is wider than the figure has several lines.
    """
    if title := figure.get_suptitle():
        figure.suptitle(title, fontsize=figure._suptitle.get_fontsize(), wrap=True)  # type: ignore[attr-defined]
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", _NO_GLYPH.pattern)
        for ending, metadata in (("png", None), ("pdf", {"CreationDate": None})):  # the same figure is the same file
            with write_atomically(path.with_suffix(f".{ending}")) as temporary:
                figure.savefig(temporary, dpi=150, format=ending, metadata=metadata)
    lacking: dict[str, None] = {}
    for warning in caught:
        if match := _NO_GLYPH.match(str(warning.message)):
            lacking[match[1]] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if lacking:
        letters = "".join(chr(int(number)) for number in lacking)
        print(f"{path}: the font has no {letters}; boxes are drawn instead")
    return path


def mark_cut(axis: Any, along: Literal["x", "y"], place: float, low: float, high: float) -> None:
    """Mark where an interval of values along x or y, at `place` on the other axis, is cut off: by an arrow head.

    The axis' limits must be final.
    """
    least, most = axis.get_xlim() if along == "x" else axis.get_ylim()
    markers = "<>" if along == "x" else "v^"
    for end, marker, beyond in zip((least, most), markers, (low < least, high > most), strict=True):
        if beyond:
            at = (end, place) if along == "x" else (place, end)
            axis.plot(*at, marker, color="black", ms=5, clip_on=False, label="_cut")


def palette(n: int) -> list[tuple[float, float, float, float]]:
    """`n` distinct colours, the same for the same n."""
    base = [colormaps["tab20"](i) for i in [*range(0, 20, 2), *range(1, 20, 2)]]
    return base[:n] if n <= 20 else [colormaps["hsv"](i / n) for i in range(n)]
