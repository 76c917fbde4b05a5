"""Maps in OpenEXR files, whose channels are taken by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError

ENDING = ".exr"
REQUIREMENTS = "requirements-exr.txt"
_NUMBERS = ("z", "depth", "v", "y")  # what a channel with a number for each pixel is called; y is luminance
_AXES, _COLOURS = ("x", "y", "z"), ("r", "g", "b")


def read_exr(path: Path, n_channels: int) -> np.ndarray:
    """One or three channels of an EXR file, see `chosen`, (C, H, W), with NaN where its data window has no pixel.

    ValueError where the file cannot be read, or has no such channels; UserError without the package OpenEXR.
    """
    with _opened(path, header_only=False) as file:
        parts: dict[str, tuple[int, Any]] = {}
        for number, part in enumerate(file.parts):
            for name, channel in file.channels(number).items():
                parts[name if name not in parts else f"{part.name()}.{name}"] = (number, channel)
        if not parts:  # of pixels that are cut off, the package only prints a warning
            raise ValueError("not a readable EXR file (it has no pixels)")
        selected = [parts[name] for name in chosen(list(parts), n_channels)]
        height, width = _size(file.header(selected[0][0])["displayWindow"])
        planes = []
        for number, channel in selected:
            pixels, header = channel.pixels, file.header(number)
            if pixels.ndim != 2 or pixels.dtype.hasobject or pixels.shape != _size(header["dataWindow"]):
                raise ValueError("a channel that has not a number for each pixel")
            planes.append(_in_window(pixels, header, (height, width)))
        return np.stack(planes)


def exr_size(path: Path) -> tuple[int, int]:
    """Height and width of what `read_exr` gives, from the header alone; errors as there."""
    with _opened(path, header_only=True) as file:
        return _size(file.header()["displayWindow"])


def chosen(names: Sequence[str], n_channels: int) -> list[str]:
    """The channels of an EXR file that a map of one or three has; ValueError where they are none, or several.

    Of one: the only one, or else that called Z, depth, V or Y, alone or in a layer (`ViewLayer.Depth.Z`). Of three: X,
    Y and Z, or else R, G and B. Where several layers have such, that of depth, or of normals.

    >>> chosen(["A", "B", "G", "R", "Z"], 1), chosen(["N.X", "N.Y", "N.Z", "Z"], 3)
    (['Z'], ['N.X', 'N.Y', 'N.Z'])
    """
    if n_channels == 1 and len(names) == 1:
        return list(names)
    layers: dict[str, dict[str, str]] = {}
    for name in names:
        layer, _, last = name.rpartition(".")
        layers.setdefault(layer, {})[last.lower()] = name
    of_axes, of_colours = (
        [[layer[axis] for axis in axes] for layer in layers.values() if set(axes) <= layer.keys()]
        for axes in (_AXES, _COLOURS)
    )
    numbers = [
        [layer[name]]
        for layer in layers.values()
        for name in _NUMBERS
        if name in layer and not {"x", "z"} <= layer.keys()
    ]
    candidates, called = (numbers or of_colours, "depth") if n_channels == 1 else (of_axes or of_colours, "normal")
    named = (
        [candidate for candidate in candidates if called in candidate[0].lower()] if len(candidates) > 1 else candidates
    )
    if len(named) != 1:
        what = "Z, depth, V or Y" if n_channels == 1 else "X, Y and Z, or R, G and B"
        raise ValueError(f"channels {', '.join(names)}, of which {'several are' if candidates else 'none is'} {what}")
    return named[0]


@contextmanager
def _opened(path: Path, header_only: bool) -> Iterator[Any]:
    """An EXR file that is open; ValueError where it is none, UserError without the package."""
    try:
        import OpenEXR
    except ImportError as error:
        raise UserError(f"{path}: EXR files need a package: python -m pip install -r {REQUIREMENTS}") from error
    try:
        with OpenEXR.File(str(path), separate_channels=True, header_only=header_only) as file:
            yield file
    except (OSError, RuntimeError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"not a readable EXR file ({' '.join(str(error).split())})") from error


def _size(window: Sequence[np.ndarray]) -> tuple[int, int]:
    """Height and width of a window, whose corners (x, y) both belong to it."""
    width, height = (np.asarray(window[1], np.int64) - window[0] + 1).tolist()
    return height, width


def _in_window(pixels: np.ndarray, header: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Pixels of the data window in the display window, of which they may be a part only, or reach out of it."""
    if pixels.shape == size and np.array_equal(header["dataWindow"][0], header["displayWindow"][0]):
        return pixels
    full = np.full(size, np.nan, np.result_type(pixels, np.float32))
    left, top = (np.asarray(header["dataWindow"][0], np.int64) - header["displayWindow"][0]).tolist()
    bottom, right = (min(start + n, most) for start, n, most in zip((top, left), pixels.shape, size, strict=True))
    above, before = max(top, 0), max(left, 0)
    if above < bottom and before < right:
        full[above:bottom, before:right] = pixels[above - top : bottom - top, before - left : right - left]
    return full
