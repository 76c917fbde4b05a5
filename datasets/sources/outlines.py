"""Maps of objects that are written beside the photographs, in the three channels of `datasets/instances.py`.

They are made of the outlines in COCO's annotations, or of two maps: one of the objects and one of the classes.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from datasets.as_saved import check_ids
from datasets.classes import INSTANCES_OF_A_CLASS, VOID, ClassSet
from datasets.stored import read_values
from utils.errors import UserError
from utils.files import write_atomically

FOLDER = "objects"  # of the maps, in the data folder
MOST_OBJECTS = 255  # of a map, the largest; the others count nowhere
_FARTHEST = 100  # sides of a photograph that a corner may be away: edges are drawn point by point, within it or not
_MOST_CLASSES = VOID - 1  # of objects in a map: their numbers count from 1
_MODES = ("1", "L", "P", "RGB", "I;16", "I;16B", "I")

# Polygons, each x and y in turn, or COCO's run lengths: {"size": [height, width], "counts": …}
Outline = Sequence[Sequence[float]] | Mapping[str, Any]


def map_of(cell: str) -> str:
    """The cell of the map that is written for a photograph."""
    return f"{FOLDER}/{cell}.png"


def check_classes(things: ClassSet) -> None:
    """UserError where objects are of more classes than a map can tell apart."""
    if len(things.names) > _MOST_CLASSES:
        raise UserError(
            f"{len(things.names)} classes of objects, and a map of objects has at most {_MOST_CLASSES}; give fewer, or "
            "boxes alone"
        )


def polygon_of(left: float, top: float, right: float, bottom: float) -> Outline:
    """The outline of a box."""
    return [[left, top, right, top, right, bottom, left, bottom]]


def inside(outline: Any, frame: tuple[float, float], size: tuple[int, int]) -> np.ndarray:
    """Which pixels (height, width) of a photograph of this size an outline holds: as COCO's tools fill it.

    Edges that leave the photograph stay straight. `frame` is the width and height that the outline refers to.
    ValueError where it is none.
    """
    height, width = size
    if isinstance(outline, Mapping):
        mask = Image.fromarray(_run_lengths(outline))
        if mask.size[0] * frame[1] != mask.size[1] * frame[0]:
            raise ValueError(f"run lengths of {mask.size[0]} x {mask.size[1]} pixels in a frame of another shape")
        return np.asarray(mask.resize((width, height), Image.Resampling.NEAREST))
    from faster_coco_eval.core import mask as coco

    rings = [points * np.divide((width, height), frame) for points in _rings(outline)]
    if max(np.abs(points).max() for points in rings) > _FARTHEST * max(size):
        raise ValueError(f"a polygon that reaches more than {_FARTHEST} times the photograph's side out of it")
    polygons = [points.ravel().tolist() for points in rings]
    return coco.decode(coco.merge(coco.frPyObjects(polygons, height, width))).astype(bool)


def bounds(outline: Any) -> tuple[float, float, float, float] | None:
    """The left, top, right and bottom of an outline, in its unit; None where it cannot be read, or is empty."""
    try:
        if not isinstance(outline, Mapping):
            points = np.concatenate(_rings(outline))
            return (*points.min(0).tolist(), *points.max(0).tolist())
        mask = _run_lengths(outline)
    except ValueError:
        return None
    y, x = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return (float(x[0]), float(y[0]), float(x[-1] + 1), float(y[-1] + 1)) if len(x) else None


def all_can_be_read(outline: Any) -> bool:
    """Whether all rings of polygons are of points, be they too few for an area."""
    return isinstance(outline, Mapping) or all(_points(ring) is not None for ring in _nested(outline))


def _rings(outline: Any) -> list[np.ndarray]:
    """The rings (n, 2) of polygons that have an area, without what is none; ValueError where there is none."""
    rings = [points for ring in _nested(outline) if (points := _points(ring)) is not None and len(points) > 2]
    if not rings:
        raise ValueError("no polygon of three points or more")
    return rings


def _nested(outline: Any) -> Sequence[Any]:
    """The rings of polygons, of which one may stand without the list of all; ValueError where there is no list."""
    if not isinstance(outline, Sequence) or isinstance(outline, str):
        raise ValueError("neither polygons nor run lengths")
    is_ring = len(outline) > 0 and all(isinstance(number, int | float) for number in outline)
    return [outline] if is_ring else outline


def _points(ring: Any) -> np.ndarray | None:
    """The points (n, 2) of a ring; None where it is not of pairs of finite numbers."""
    try:
        points = np.asarray(ring, np.float64).reshape(-1, 2)
    except (ValueError, TypeError, OverflowError):
        return None
    return points if np.isfinite(points).all() else None


def _run_lengths(outline: Mapping[str, Any]) -> np.ndarray:
    """The mask (height, width) of COCO's run lengths, which go down the columns and begin with what is outside.

    ValueError where they are not those of a picture.
    """
    try:
        height, width = map(int, outline["size"])
        counts = outline["counts"]
        lengths = np.array(_numbers_in(counts) if isinstance(counts, str) else counts, np.int64).ravel()
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise ValueError("run lengths without a size of two numbers and counts") from error
    if (lengths < 0).any() or lengths.sum() != height * width or min(height, width) < 1:
        raise ValueError(f"run lengths that are not those of {width} x {height} pixels")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(width, height).T


def _numbers_in(text: str) -> list[int]:
    """The numbers of COCO's compressed run lengths: five bits a letter, and from the third on less the last but one."""
    numbers: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:
            value -= (bits & 0x10) << (shift - 4)  # negative where the last letter has its fifth bit
            numbers.append(value + (numbers[-2] if len(numbers) > 2 else 0))
            value = shift = 0
    return numbers


def paint(regions: Sequence[tuple[int, np.ndarray]], size: tuple[int, int]) -> np.ndarray:
    """A map (height, width, 3) of regions: each a class from 1 on, or `VOID`, and its pixels (height, width).

    Void is painted first, and of objects the largest, so that what covers another stays whole.
    """
    picture = np.zeros((*size, 3), np.uint8)
    number = 0
    for label, pixels in sorted(regions, key=lambda region: (region[0] != VOID, -int(region[1].sum()))):
        number += label != VOID
        picture[pixels] = (label, number, 0) if label != VOID and number <= MOST_OBJECTS else (VOID, 0, 0)
    return picture


class Numbering(Enum):
    """How the objects of a map are numbered beside the ids of its mask."""

    AS_MASK = auto()  # each pixel has its id: there is no object
    # As in Cityscapes: an object's number is 1000 times its id and a count, and other pixels have their id.
    BY_CLASS = auto()
    OWN = auto()


def numbering_of(objects: np.ndarray, ids: np.ndarray) -> Numbering:
    """How a map of objects (C, H, W) is numbered beside its mask's ids (H, W); ValueError where the sizes differ."""
    if objects.shape[1:] != ids.shape:
        raise ValueError("its size differs from that of its mask")
    if len(objects) > 1:
        return Numbering.OWN
    numbers, is_id = objects[0].astype(np.int64), objects[0] == ids
    if is_id.all():
        return Numbering.AS_MASK
    return Numbering.BY_CLASS if (is_id | (numbers // INSTANCES_OF_A_CLASS == ids)).all() else Numbering.OWN


def combine(
    objects: np.ndarray,
    ids: np.ndarray,
    classes: ClassSet,
    things: Mapping[int, int],
    crowds: Collection[int],
    has_groups: bool = False,
) -> np.ndarray:
    """A map (H, W, 3) from one of objects (C, H, W), each with a number or colour of its own, and one of classes.

    An object's class is that of most of its pixels in `ids` (H, W), the ids of `classes`. Objects of classes that are
    not among `things`, which maps the numbers of these to those of the things, are background, as 0 is. Pixels of no
    class and of `crowds`, numbers of objects, count nowhere, and, where there are groups, objects numbered below 1000,
    which are of several things. ValueError where the maps do not fit.
    """
    from datasets.packed import class_numbers

    if objects.shape[1:] != ids.shape:
        raise ValueError("its size differs from that of its mask")
    values = sum(channel.astype(np.int64) << (16 * i) for i, channel in enumerate(objects[:3]))
    numbers = class_numbers(ids, classes).astype(np.int64)
    different, which = np.unique(values, return_inverse=True)
    votes = np.bincount(which.ravel() * (VOID + 1) + numbers.ravel(), minlength=len(different) * (VOID + 1))
    votes = votes.reshape(len(different), VOID + 1)[:, :VOID]
    labels = np.array([things.get(identity, -1) + 1 for identity in votes.argmax(1).tolist()]) * votes.any(1)
    groups = (different < INSTANCES_OF_A_CLASS) & (labels > 0) & has_groups
    nobody = groups | np.isin(different, list(crowds))
    shown = labels * (different != 0) * ~nobody
    which = which.reshape(ids.shape)
    regions = [(int(label), which == k) for k, label in enumerate(shown) if label]
    picture = paint(regions, ids.shape)
    nowhere = nobody[which] | (numbers == VOID)
    picture[nowhere] = (VOID, 0, 0)
    return picture


def read_objects(data_path: Path, cell: str) -> np.ndarray:
    """A map (C, H, W) in which each object has a number or a colour of its own; ValueError where it is none."""
    check_ids(data_path / cell)
    values = read_values(data_path, cell, _MODES)
    if values.dtype.kind not in "ui" or len(values) not in (1, 3):
        raise ValueError(f"{len(values)} channels of {values.dtype} where a map of objects has 1 or 3 of whole numbers")
    return values


def boxes_in(picture: np.ndarray) -> list[tuple[int, float, float, float, float]]:
    """The objects of a map (H, W, 3): class from 0 on, then left, top, right and bottom as shares of its sides."""
    from scipy import ndimage

    height, width = picture.shape[:2]
    numbers = picture[..., 1].astype(np.int64)
    boxes = []
    for number, place in enumerate(ndimage.find_objects(numbers), start=1):
        if place is not None:
            label = int(picture[..., 0][numbers == number][0]) - 1
            down, across = place
            sides = across.start / width, down.start / height, across.stop / width, down.stop / height
            boxes.append((label, *sides))
    return boxes


def write_map(path: Path, picture: np.ndarray) -> None:
    """Write a map as PNG, unless the same is there: what is packed of it stays then."""
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "png")
    if path.is_file() and path.read_bytes() == content.getvalue():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary:
        temporary.write_bytes(content.getvalue())
