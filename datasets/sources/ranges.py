"""Which numbers maps and photographs of 16 bits hold, in a line: there a wrong unit or other axes are seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.as_saved import is_deep_colour
from datasets.decoding import DEPTH_METRE
from datasets.left_out import main_error
from datasets.maps import LONG, SHORT, is_halved, read_map
from datasets.stored import deep_values, file_of
from datasets.tasks import DEPTH, DIRECTIONS, NO_NORMAL, Encoding, Scale
from utils import progress
from utils.words import counted

_MOST, _LEAST, _MOST_OF_MAP = 2**21, 64, 4096  # values that are looked at: of all maps, and of one
_MOST_FILES = 200  # that are read for their range alone
_BY_EIGHT = 0.95  # share of multiples of 8 from which on bits may be rotated; it is an eighth where they are not
_NEAR = 0.05  # metres: a median below is no camera's
_OTHER_UNIT = 20  # times the median of all maps, or a part of it, that a map's is in another unit
_BEHIND = 5  # times the 95 % of the other values, that the largest is hardly measured, if it stands for some of them
_LARGEST = 0.005  # share of the values that are the largest
_FEW = 16  # different values, which may all be multiples of 8 by chance
_NOT_UNIT = 0.001  # share of directions that are none by their length
_STEEP, _SOME = 0.3, 0.05  # z of a direction, and the share of directions, that tell whether it points to one side
_NARROW = 64  # grey levels of 256
_NEVER_DEEP = (".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".bin", "-ubyte")  # endings of files of 8 bits


@dataclass(frozen=True)
class Sample:
    """Some of a map's known values (C, n), in its unit, and what is counted of all: pixels, those without a value.

    Of whole numbers of 16 bits `n_eighths` of the `n_whole` known ones are multiples of 8.
    """

    values: np.ndarray
    n_pixels: int
    n_without: int
    n_integers: int = 0
    n_eighths: int = 0
    is_halved: bool = False


def most_of_map(n_maps: int) -> int:
    """How many values of each of so many maps are looked at."""
    return int(np.clip(_MOST // max(n_maps, 1), _LEAST, _MOST_OF_MAP))


def sample_of(values: np.ndarray, known: np.ndarray, most: int, stored: np.ndarray | None = None) -> Sample:
    """At most so many values of a map (C, H, W) where it is known (H, W), evenly over it; `stored` are its numbers."""
    shown = values[:, known]
    some = shown[:, :: -(-shown.shape[1] // most) or 1].astype(np.float32)
    n_integers, n_eighths = 0, 0
    if stored is not None and stored.dtype.kind == "u" and stored.dtype.itemsize == 2:
        n_integers, n_eighths = int(known.sum()) * len(stored), int((stored[:, known] % 8 == 0).sum())
    halved = stored is not None and len(stored) == 3 and is_halved(stored, known)
    return Sample(some, known.size, int(known.size - known.sum()), n_integers, n_eighths, halved)


def lines_of(encoding: Encoding, scale: Scale, samples: Sequence[Sample]) -> Iterator[str]:
    """What the maps of a domain hold, and what is doubtful of it: a line each."""
    values = np.concatenate([sample.values for sample in samples], axis=1) if samples else np.empty((1, 0))
    if not values.size:
        return
    without = sum(sample.n_without for sample in samples) / sum(sample.n_pixels for sample in samples)
    rest = f", {100 * without:.2g} % of the pixels without" if without else ""
    is_flow = encoding.maps is not None and encoding.maps.flow
    if is_flow:
        values = np.linalg.norm(values, axis=0, keepdims=True)
    elif encoding.domain in DIRECTIONS:
        along = ", ".join(f"{axis} {mean:.2f}" for axis, mean in zip("xyz", values.mean(axis=1), strict=True))
        yield f"{encoding.domain}: on average {along}{rest}"
        lengths = np.linalg.norm(values, axis=0)
        if (share := float(((lengths < SHORT) | (lengths > LONG)).mean())) > _NOT_UNIT:
            yield (
                f"{encoding.domain}: {100 * share:.2g} % of the vectors are not about 1 long, and count: is what "
                f"is not known black, in place of {NO_NORMAL}?"
            )
        yield from _axes_warnings(encoding, scale, values, sum(sample.is_halved for sample in samples), len(samples))
        return
    is_metres = encoding.domain == DEPTH.domain or (encoding.maps is not None and encoding.maps.distances)
    unit = " m" if is_metres else " px" if is_flow else ""
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95))
    yield f"{encoding.domain}: median {median:.3g}{unit}, 5 to 95 %: {low:.3g} to {high:.3g}{unit}{rest}"
    if is_metres:
        yield from _unit_warnings(encoding, scale, median, values[0], [sample.values for sample in samples])
    n_integers = sum(sample.n_integers for sample in samples)
    eighths = sum(sample.n_eighths for sample in samples) / max(n_integers, 1)
    offset = scale.offset * scale.unit
    if (
        is_metres
        and scale.camera is None
        and not scale.rotated
        and eighths >= _BY_EIGHT
        and len(np.unique(values)) > _FEW
    ):
        yield (
            f"{encoding.domain}: {100 * eighths:.3g} % of the values are multiples of 8, as SUN RGB-D's are, whose "
            f"bits are rotated: if these are so, too, --bits rotated reads them, and the median is "
            f"{(median - offset) / 8 + offset:.3g} m"
        )


def _unit_warnings(
    encoding: Encoding, scale: Scale, median: float, values: np.ndarray, of_maps: Sequence[np.ndarray]
) -> Iterator[str]:
    """What distances (n,) in metres can hardly be, of all maps and of each."""
    if median < _NEAR:
        yield f"{encoding.domain}: nearer than cameras measure: in another unit? see --unit"
    medians = np.array([np.median(of_map) for of_map in of_maps if of_map.size])
    other = (medians * _OTHER_UNIT < median) | (medians > _OTHER_UNIT * median)
    if other.any():
        yield (
            f"{encoding.domain}: {other.sum()} of {counted(len(medians), 'map')} with a median such as "
            f"{medians[other][0]:.2g} m, where that of all is {median:.3g} m: in another unit?"
        )
    largest = values.max()
    rest = values[values < largest]
    share = 1 - rest.size / values.size
    is_as_stored = scale.camera is None or not scale.camera.intrinsics
    if is_as_stored and rest.size and share >= _LARGEST and largest > _BEHIND * np.quantile(rest, 0.95):
        yield (
            f"{encoding.domain}: {100 * share:.2g} % are the largest value, {largest:.4g} m, far behind the others: "
            f"if nothing was measured there, --invalid {largest / scale.unit - scale.offset:.7g} says so"
        )


def _axes_warnings(encoding: Encoding, scale: Scale, values: np.ndarray, n_halved: int, n_maps: int) -> Iterator[str]:
    """What the directions (3, n) of a camera's frame cannot be: surfaces that it sees have a z of one sign."""
    if n_halved:
        yield f"{encoding.domain}: {n_halved} of {counted(n_maps, 'map')} hold (n + 1) / 2 in floats, and are read so"
    sides = [float(min((axis > _STEEP).mean(), (axis < -_STEEP).mean())) for axis in values]
    if scale.world or sides[2] <= _SOME:
        return
    if sides[0] <= _SOME / 5 and abs(values[0].mean()) > _STEEP:
        yield (
            f"{encoding.domain}: the first channel points to one side as a camera's z does, and the third to both: "
            "z, y, x, as OpenCV writes colours? Save them as x, y, z"
        )
    else:
        yield (
            f"{encoding.domain}: z points to both sides ({100 * sides[2]:.2g} % of the pixels to the rarer one), which "
            "no surface does that a camera sees, in its own axes: if they are the world's, give --axes world"
        )


def lines_of_columns(data_path: Path, encodings: Sequence[Encoding], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """What maps that need no scale hold, of which some are read; those that cannot be are left for later."""
    from datasets.packed import read_image, surface

    def sample(encoding: Encoding, cell: str) -> Sample | str:
        """Some values of a file, or what is wrong with it."""
        try:
            stored = (read_map if encoding.maps else read_image)(data_path, cell, encoding)
        except ValueError as error:
            return f"{cell}: {error}"
        values = stored.astype(np.float32)
        if encoding.domain == DEPTH.domain:
            values /= DEPTH_METRE
        elif encoding.domain in DIRECTIONS:
            values = values * (2 / 255) - 1
        return sample_of(values, surface(stored, encoding), most_of_map(_MOST_FILES))

    for encoding, column in zip(encodings, cells, strict=True):
        looked_at = list(dict.fromkeys(column))[:: -(-len(column) // _MOST_FILES) or 1]
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda cell: sample(encoding, cell), looked_at))  # noqa: B023
        yield from lines_of(encoding, Scale(), [answer for answer in answers if isinstance(answer, Sample)])
        if errors := [answer for answer in answers if isinstance(answer, str)]:
            files = counted(len(answers), "file")
            yield f"{len(errors)} of {files} of {encoding.domain} cannot be read{main_error(errors)}"


def lines_of_levels(data_path: Path, cells: Sequence[str], levels: tuple[float, float] | None) -> Iterator[str]:
    """How bright the photographs of 16 bits are, and what to do where few grey levels are left of them."""
    files: dict[str, list[str]] = {}
    for cell in cells:
        if not file_of(cell).lower().endswith(_NEVER_DEEP):
            files.setdefault(file_of(cell), []).append(cell)

    def ranges(of_file: list[str]) -> list[tuple[int, int]]:
        """The least and the largest value of each photograph of a file; none where it has 8 bits."""
        ranges = []
        for cell in of_file:
            values = deep_values(data_path, cell)
            if values is None:
                break
            ranges.append((int(values.min()), int(values.max())))
        return ranges

    with ThreadPoolExecutor() as pool:
        answers = pool.map(ranges, files.values())
        extremes = [
            bounds
            for answer in progress.bar(answers, total=len(files), desc="depth of colour", unit="file")
            for bounds in answer
        ]
    if not extremes:
        if levels is not None:
            yield "--levels: there is no photograph of 16 bits"
        return
    colours = [cell for of_file in files.values() for cell in of_file if is_deep_colour(data_path / cell)]
    if levels is not None and colours:
        yield f"--levels: {counted(len(colours), 'colour PNG')} of 16 bits cannot have them; save with 8: {colours[0]}"
    low, high = (np.array(bounds) for bounds in zip(*extremes, strict=True))
    what = f"{counted(len(extremes), 'photograph')} of 16 bits, with values from {low.min()} to {high.max()}"
    if levels is not None:
        yield f"{what}: {levels[0]:g} and less is black, {levels[1]:g} and more is white"
        return
    n_levels = float(np.median((high >> 8) - (low >> 8) + 1))
    hint = "; --levels BLACK WHITE gives other values to black and white" if n_levels < _NARROW else ""
    if colours and hint:
        hint = f"; of {counted(len(colours), 'colour PNG')} no more can be read: save with 8 bits, and bright"
    yield f"{what}: 0 is black and 65535 white, so that the median one has {n_levels:g} of 256 grey levels{hint}"
