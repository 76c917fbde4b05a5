"""Images by where they were taken: the cells of the earth's surface that Hsu, Qi and Brown make clients of.

S2 divides the surface into six faces, and every cell into four children, down to level 30, of a square centimetre. A
cell's id is a number of 64 bits in which the ids of its descendants lie around its own, in an interval, so that all
that follows is sorting and counting (https://s2geometry.io/devguide/s2cell_hierarchy).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utils import progress
from utils.args import POSITIVE_INT
from utils.arguments import Argument
from utils.errors import UserError

MAX_CELL = {
    "max_cell": Argument(
        None,
        "most images of a cell of the natural groups cell_<number>: the training images by place",
        POSITIVE_INT,
        nargs="+",
    )
}

_FACE_BITS, _FINEST = 61, 1  # the first 3 bits of an id are the face; the last bit set says the level, of a leaf 1
_LARGEST = {"latitude": 90.0, "longitude": 180.0}  # degrees: libraries wrap what is beyond, silently


@dataclass(frozen=True)
class Cells:
    """The cells with enough images.

    `ids` (C,) uint64 are in the order of the curve that S2 numbers cells along, so that neighbours are mostly close;
    `cell` (N,) int64 is each image's cell, as a position in `ids`, -1 for none. `dropped` images lie in cells with too
    few images, `homeless` ones have no place.
    """

    ids: np.ndarray
    cell: np.ndarray
    dropped: int
    homeless: int

    @property
    def tokens(self) -> list[str]:
        """The cells' names: their ids in hexadecimal without the zeros at the end, as S2 writes them."""
        return [f"{identity:016x}".rstrip("0") for identity in self.ids.tolist()]

    def __str__(self) -> str:
        return (
            f"{len(self.ids)} cells; {self.dropped} images are in cells of too few and {self.homeless} have no place: "
            "they are nobody's"
        )


def adaptive_cells(latitude: np.ndarray, longitude: np.ndarray, most: int, least: float | None = None) -> Cells:
    """Cells of at most `most` images each: Hsu, Qi and Brown 2020 (arXiv 2003.08082), section 4.1.

    Every cell with more is replaced by its four children; then those with fewer than `least` are dropped with their
    images. Images of one place cannot be parted: a cell of the finest level may have more. With `most` beyond the
    number of images there are up to six cells, the faces.

    Args:
        latitude: (N,) degrees, NaN for images without a place.
        longitude: (N,) degrees, NaN for images without a place.
        most: N_max, at least 1.
        least: N_min; None for the paper's hundredth of N_max.

    Raises:
        UserError: for a place that is not on earth, or where no cell has enough images.
    """
    advice = "lower --max_cell, of which that is a hundredth" if least is None else "lower --min_cell"
    least = 0.01 * most if least is None else least
    for (name, largest), values in zip(_LARGEST.items(), (latitude, longitude), strict=True):
        outside = np.flatnonzero(np.abs(values) > largest)
        if len(outside):
            raise UserError(
                f"image {outside[0]}: {name} {values[outside[0]]:g} is beyond {largest:g} degrees; "
                "a place is latitude and longitude, in this order"
            )
    located = np.flatnonzero(~np.isnan(latitude) & ~np.isnan(longitude))
    leaves = leaf_ids(latitude[located], longitude[located])
    order = np.argsort(leaves, kind="stable")
    leaves, located = leaves[order], located[order]
    leaf_cells = sorted(_divided(leaves, most))
    large_cells = [(identity, first, end) for identity, first, end in leaf_cells if end - first >= least]
    if not large_cells:
        raise UserError(f"of {len(located)} images with a place no cell has {least:g}; {advice}")
    cell = np.full(len(latitude), -1, np.int64)
    for number, (_, first, end) in enumerate(large_cells):
        cell[located[first:end]] = number
    ids = np.array([identity for identity, _, _ in large_cells], np.uint64)
    in_cells = sum(end - first for _, first, end in large_cells)
    return Cells(ids, cell, len(located) - in_cells, len(latitude) - len(located))


def leaf_ids(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """The ids (N,) uint64 of the finest cells in which places lie."""
    from s2cell import lat_lon_to_cell_id

    places = zip(latitude.tolist(), longitude.tolist(), strict=True)
    return np.fromiter((lat_lon_to_cell_id(*place) for place in places), np.uint64, len(latitude))


def _divided(leaves: np.ndarray, most: int) -> list[tuple[int, int, int]]:
    """The id of each cell with images, and where these begin and end among the sorted leaves."""
    cells = []
    open_cells = [(face << _FACE_BITS | 1 << _FACE_BITS - 1, 0, len(leaves)) for face in range(6)]
    while open_cells:
        identity, first, end = open_cells.pop()
        size = identity & -identity
        ends = np.array([identity - size + 1, identity + size - 1], np.uint64)
        within = leaves[first:end]
        first, end = first + np.searchsorted(within, ends[0]), first + np.searchsorted(within, ends[1], "right")
        if end - first > most and size > _FINEST:
            open_cells += [(identity - size + size // 4 * (2 * child + 1), first, end) for child in range(4)]
        elif end > first:
            cells.append((identity, int(first), int(end)))
    return cells


def named_cells(latitude: np.ndarray, longitude: np.ndarray, train: np.ndarray, most: int) -> np.ndarray:
    """The natural group `cell_<most>`: the cell of each training image by name, (N,) str, empty for nobody's.

    Places (N,) are as for `adaptive_cells`, and `train` (N,) says which images are trained on. Says how many cells
    there are, and how many images are in none.
    """
    assigned = np.flatnonzero(train)
    cells = adaptive_cells(latitude[assigned], longitude[assigned], most)
    progress.say(f"cell_{most}: {cells}")
    names = np.full(len(train), "", object)
    names[assigned] = np.array([*cells.tokens, ""], object)[cells.cell]
    return names
