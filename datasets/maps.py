"""Maps of anybody's own as targets: pictures of 16 or 8 bits, TIFF, PFM and EXR of floats, arrays in `.npy` and HDF5.

Colours are of 8 bits, or in arrays or EXR: Pillow reads neither colour PNG of 16 bits nor colour PFM as they are.

The table says how their values are read (`datasets.tasks.Scale`): depth in millimetres has the unit 0.001, and where
the camera measured nothing mostly 0 or 65535.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datasets import exr, flow_files
from datasets.as_saved import is_deep_colour
from datasets.stored import read_pair, read_values, regular_file
from datasets.tasks import DEPTH_MAPS, DIRECTIONS, NOTHING, Encoding, Scale

_MODES = ("1", "L", "RGB", "RGBA", "I;16", "I;16B", "I", "F")
SHORT, LONG = 0.5, 1.5  # of vectors of length 1: what is shorter or longer shows no direction
_MEDIAN_LENGTHS = (0.9, 1.1)  # of the vectors of a file
_UNIT = 0.02  # by which the median of lengths differs from 1 at most where all are 1, but for rounding
_ROTATED, _WORD = 3, 16  # bits
_AS_STORED = Scale()
_FULL = {"u1": 255.0, "u2": 65535.0, "i1": 127.0, "i2": 32767.0}  # of whole numbers, what stands for 1


def read_map(
    data_path: Path, cell: str, encoding: Encoding, scale: Scale = _AS_STORED, valid_cells: Sequence[str] = ()
) -> np.ndarray:
    """A cell's map in its own unit, (C, H, W) float32, and `NOTHING` where nothing is known; see `in_units`.

    `valid_cells` are those of its masks of what counts. ValueError says what is wrong with the files.
    """
    values = stored_map(data_path, cell, encoding)
    return in_units(values, encoding, scale, counting(data_path, valid_cells, values.shape[1:], scale))


def stored_map(data_path: Path, cell: str, encoding: Encoding) -> np.ndarray:
    """A cell's numbers as they are stored, (C, H, W); ValueError says what is wrong with the file."""
    assert encoding.maps is not None
    path, is_flow = data_path / cell, encoding.maps.flow
    if cell.lower().endswith(exr.ENDING):
        values = exr.read_exr(regular_file(path), encoding.channels)
    elif is_flow and cell.lower().endswith(flow_files.ENDINGS):
        values = _flow_of(data_path, cell)
    elif is_flow and is_deep_colour(path):
        values = flow_files.read_kitti_flow(path)
    else:
        values = read_values(data_path, cell, _MODES, encoding.domain in DIRECTIONS)
    is_coarse = values.dtype.itemsize < 2
    values = _channels(flow_files.with_known(values) if is_flow else values, encoding)
    if values.dtype.kind not in "uif":
        raise ValueError(f"{values.dtype} values where {encoding.domain} has numbers")
    if is_coarse and (encoding.maps.distances or is_flow):
        raise ValueError(f"8 bits where {encoding.domain} has 16 or more: a picture of it?")
    return values


def _flow_of(data_path: Path, cell: str) -> np.ndarray:
    """The flow (2, H, W) of a `.flo` file, or of a pair of depth maps; ValueError says what is wrong with the files."""
    path = regular_file(data_path / cell)
    if cell.lower().endswith(flow_files.FLO):
        return flow_files.read_flo(path)

    def depth(cell: str, unit: float, invalid: tuple[float, ...]) -> np.ndarray:
        """A depth map (H, W), NaN where nothing is known."""
        values = read_map(data_path, cell, DEPTH_MAPS, Scale(unit, tuple(invalid)))[0]
        return np.where(values == NOTHING, np.nan, values)

    return read_pair(path).flow(depth)


def in_units(values: np.ndarray, encoding: Encoding, scale: Scale, counts: np.ndarray | None = None) -> np.ndarray:
    """Stored numbers (C, H, W) in the map's unit, float32, and `NOTHING` where nothing is known.

    That is where a value is not finite, all channels have one of the invalid values, a direction's length is not about
    1, or a mask (H, W) says that it does not count. ValueError where no pixel counts, or the values cannot be what the
    encoding has.
    """
    assert encoding.maps is not None
    if scale.rotated:
        values = _rotated_back(values)
    finite = np.isfinite(values).all(axis=0)
    known = finite & ~np.isin(values, _as_stored(scale.invalid, values.dtype)).all(axis=0)
    if not known.any():
        examples = np.unique(values[:, finite])[:3]
        other = f", the others {', '.join(f'{value:g}' for value in examples)}" if examples.size else ""
        raise ValueError(f"no pixel counts: {(~finite).sum()} of {finite.size} are not finite{other}")
    result = np.where(known, values, 0)
    result = np.asarray(result, np.float64) if not encoding.maps.signed else _from_minus_1(result, known)
    result = (result + scale.offset) * scale.unit
    if encoding.maps.distances and (n_behind := ((result < 0) & known).sum()):
        raise ValueError(
            f"{n_behind} of {known.size} distances are negative, the least {result.min():g}; see --invalid"
        )
    if encoding.maps.distances and scale.camera is not None:
        result = scale.camera.depth(result)
        known &= np.isfinite(result).all(axis=0)
    if counts is not None:
        known &= counts
    if not known.any():
        raise ValueError("no pixel counts")
    if (largest := np.abs(result[:, known]).max()) > np.finfo(np.float32).max:
        raise ValueError(f"values up to {largest:g}, more than 32 bits hold; see --unit, --invalid")
    if encoding.maps.signed:
        known &= _has_direction(np.linalg.norm(result, axis=0), known)
    return np.where(known, result, NOTHING).astype(np.float32)


def counting(data_path: Path, cells: Sequence[str], size: tuple[int, ...], scale: Scale) -> np.ndarray:
    """Which pixels (H, W) of a map of this size count by all of its masks, which may be of another size.

    ValueError says what is wrong with one.
    """
    counts = np.ones(size, bool)
    for cell in cells:
        counts &= _within(data_path, cell, size, scale)
    return counts


def _within(data_path: Path, cell: str, size: tuple[int, ...], scale: Scale) -> np.ndarray:
    """Where (H, W) a mask has values that count."""
    try:
        mask = read_values(data_path, cell, (*_MODES, "P"))
    except ValueError as error:
        raise ValueError(f"its mask {cell}: {error}") from error
    height, width = mask.shape[1:]
    if len(mask) > 1 or abs(height * size[1] - width * size[0]) > max(height, width, *size):
        raise ValueError(
            f"its mask {cell} has {len(mask)} channels of {width} x {height} pixels, and it {size[1]} x {size[0]}"
        )
    rows, columns = ((np.arange(n) * 2 + 1) * m // (2 * n) for n, m in zip(size, (height, width), strict=True))
    counts = mask[0] >= scale.valid_from
    if scale.valid_to is not None:
        counts &= mask[0] <= scale.valid_to
    return counts[rows[:, None], columns]


def is_halved(values: np.ndarray, known: np.ndarray) -> bool:
    """Whether floats (3, H, W) are (n + 1) / 2 of directions n: none is negative, and only then their length is 1."""
    vectors = values[:, known & (values != values[:1]).any(axis=0)].astype(np.float64)  # without black, grey and white
    if values.dtype.kind != "f" or not vectors.size or vectors.min() < 0 or vectors.max() > 1:
        return False
    as_stored, opened = (float(np.median(np.linalg.norm(array, axis=0))) for array in (vectors, 2 * vectors - 1))
    return abs(opened - 1) <= _UNIT < abs(as_stored - 1)


def _from_minus_1(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Stored directions (3, H, W) from -1 to 1, float64: of whole numbers, and of floats that are (n + 1) / 2.

    ValueError for whole numbers of more than 16 bits, of which nobody knows what stands for 1.
    """
    wide = np.array(values, np.float64)
    if values.dtype.kind == "f":
        return 2.0 * wide - 1.0 if is_halved(values, known) else wide
    form = f"{values.dtype.kind}{values.dtype.itemsize}"
    if form not in _FULL:
        raise ValueError(f"{values.dtype} values where directions have 8 or 16 bits, or floats")
    return 2.0 * wide / _FULL[form] - 1.0 if form[0] == "u" else wide / _FULL[form]


def _has_direction(lengths: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which vectors show a direction, of their lengths (H, W); ValueError where none does, or the median is not 1."""
    shown = known & (lengths >= SHORT) & (lengths <= LONG)
    if not shown.any():
        median = np.median(lengths[known])
        raise ValueError(
            f"no pixel counts: all vectors are shorter than {SHORT:g} or longer than {LONG:g}, with a median of "
            f"{median:.3g}, where their length should be 1"
        )
    median, (least, most) = float(np.median(lengths[shown])), _MEDIAN_LENGTHS
    if not least <= median <= most:
        raise ValueError(f"the median length of its vectors is {median:.3g}, where it should be 1")
    return shown


def _rotated_back(values: np.ndarray) -> np.ndarray:
    """Whole numbers of 16 bits before these were rotated to the left by three; ValueError for others."""
    if values.dtype.kind != "u" or values.dtype.itemsize * 8 != _WORD:
        raise ValueError(f"{values.dtype} values, of which no bits are rotated; see --bits")
    return (values >> _ROTATED) | (values << (_WORD - _ROTATED))


def _as_stored(invalid: Sequence[float], dtype: np.dtype) -> np.ndarray:
    """The invalid values as a file of this type has them: 0.1 is another number in 32 bits than in 64."""
    with np.errstate(over="ignore"):  # what is too large is infinite there, and counts nowhere in any case
        return np.asarray(invalid, dtype if dtype.kind == "f" else None)


def _channels(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The values of the domain's channels; ValueError where there are others."""
    if encoding.channels == 1 and len(values) > 1:
        has_nan = values.dtype.kind == "f"
        if not all(np.array_equal(value, values[0], equal_nan=has_nan) for value in values[1:3]):
            raise ValueError(f"a colour picture where {encoding.domain} has one channel")
        return values[:1]
    if len(values) not in (encoding.channels, encoding.channels + 1):  # the last one says how opaque a picture is
        raise ValueError(f"{len(values)} channels where {encoding.domain} has {encoding.channels}")
    return values[: encoding.channels]
