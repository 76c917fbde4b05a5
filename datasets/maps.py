"""Maps of anybody's own as targets: pictures of 16 bits, or of 8, TIFF and PFM of floats, arrays in `.npy` and HDF5.

Colours are of 8 bits, or in arrays: Pillow reads neither colour PNG of 16 bits nor colour PFM as they are.

The table says how their values are read (`datasets.tasks.Scale`): depth in millimetres has the unit 0.001, and where
the camera measured nothing mostly 0 or 65535.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datasets.stored import read_values
from datasets.tasks import NOTHING, Encoding, MapFiles, Scale

_MODES = ("L", "RGB", "RGBA", "I;16", "I;16B", "I", "F")
_PNG, _COLOURS = b"\x89PNG\r\n\x1a\n", (2, 6)  # a file's first bytes, and its header's types of colour
_SHORT = 0.5  # of vectors of length 1: what is shorter shows no direction


def read_map(data_path: Path, cell: str, encoding: Encoding, scale: Scale, valid_cell: str | None = None) -> np.ndarray:
    """A cell's map in its own unit, (C, H, W) float32, and `NOTHING` where nothing is known.

    That is where a value is not finite, all channels have one of the invalid values, a direction has no length, or the
    mask `valid_cell` is below what counts. ValueError says what is wrong with the files.
    """
    assert encoding.maps is not None
    _check_depth(data_path / cell)
    values = _channels(read_values(data_path, cell, _MODES), encoding)
    if values.dtype.kind not in "uif":
        raise ValueError(f"{values.dtype} values where {encoding.domain} has numbers")
    if encoding.maps.distances and values.dtype.itemsize < 2:
        raise ValueError(f"8 bits where {encoding.domain} has 16 or more: a picture of it?")
    finite = np.isfinite(values).all(axis=0)
    known = finite & ~np.isin(values, _as_stored(scale.invalid, values.dtype)).all(axis=0)
    if not known.any():
        found = np.unique(values[:, finite])[:3]
        other = f", the others {', '.join(f'{value:g}' for value in found)}" if found.size else ""
        raise ValueError(f"no pixel counts: {(~finite).sum()} of {finite.size} are not finite{other}")
    result = _in_units(np.where(known, values, 0), encoding.maps, scale)
    if encoding.maps.distances and (n_behind := ((result < 0) & known).sum()):
        raise ValueError(
            f"{n_behind} of {known.size} distances are negative, the least {result.min():g}; see --invalid"
        )
    if encoding.maps.distances and scale.camera is not None:
        result = scale.camera.depth(result)
        known &= np.isfinite(result).all(axis=0)
    if valid_cell is not None:
        known &= _counting(data_path, valid_cell, known.shape, scale.valid_from)
    if not known.any():
        raise ValueError("no pixel counts")
    if encoding.maps.signed:
        known &= np.linalg.norm(result, axis=0) >= _SHORT
        if not known.any():
            raise ValueError("no pixel counts: all vectors are shorter than a half, where their length should be 1")
    return np.where(known, result, NOTHING).astype(np.float32)


def _counting(data_path: Path, cell: str, size: tuple[int, ...], valid_from: float) -> np.ndarray:
    """Which pixels (H, W) of a map of this size count by their mask, which may have another scale."""
    try:
        mask = read_values(data_path, cell, (*_MODES, "1", "P"))
    except ValueError as error:
        raise ValueError(f"its mask {cell}: {error}") from error
    height, width = mask.shape[1:]
    if len(mask) > 1 or abs(height * size[1] - width * size[0]) > max(height, width, *size):
        raise ValueError(
            f"its mask {cell} has {len(mask)} channels of {width} x {height} pixels, and it {size[1]} x {size[0]}"
        )
    rows, columns = ((np.arange(n) * 2 + 1) * m // (2 * n) for n, m in zip(size, (height, width), strict=True))
    return (mask[0] >= valid_from)[rows[:, None], columns]


def _check_depth(path: Path) -> None:
    """ValueError for a colour PNG of 16 bits, of which Pillow gives the upper 8 without a word."""
    if not path.is_file():
        return  # a row of an array
    with path.open("rb") as file:
        head = file.read(26)
    if head.startswith(_PNG) and len(head) == 26 and head[24] == 16 and head[25] in _COLOURS:
        raise ValueError("a colour PNG of 16 bits, of which 8 would be read; save it as .npy")


def _as_stored(invalid: Sequence[float], dtype: np.dtype) -> np.ndarray:
    """The invalid values as a file of this type has them: 0.1 is another number in 32 bits than in 64."""
    with np.errstate(over="ignore"):  # what is too large is infinite there, and counts nowhere in any case
        return np.asarray(invalid, dtype if dtype.kind == "f" else None)


def _channels(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The values of the domain's channels; ValueError where there are others."""
    if encoding.channels == 1 and len(values) > 1:
        has_nan = values.dtype.kind == "f"
        if not all(np.array_equal(each, values[0], equal_nan=has_nan) for each in values[1:3]):
            raise ValueError(f"a colour picture where {encoding.domain} has one channel")
        return values[:1]
    if len(values) not in (encoding.channels, encoding.channels + 1):  # the last one says how opaque a picture is
        raise ValueError(f"{len(values)} channels where {encoding.domain} has {encoding.channels}")
    return values[: encoding.channels]


def _in_units(values: np.ndarray, files: MapFiles, scale: Scale) -> np.ndarray:
    """Stored numbers (C, H, W) in the map's unit, float64."""
    wide = np.asarray(values, np.float64)
    if files.signed and values.dtype.kind in "ui":
        wide = 2.0 * wide / (255.0 if values.dtype.itemsize == 1 else 65535.0) - 1.0
    return (wide + scale.offset) * scale.unit
