"""What the sources of boxes share: boxes are held against their photographs, and made rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from datasets.classes import VOID, ClassSet
from datasets.frame import turned_boxes
from datasets.left_out import main_error
from datasets.sources.labels import class_of_image, groups_of_names
from datasets.sources.named_folders import InFolder, rows_of
from datasets.sources.outlines import (
    all_can_be_read,
    bounds,
    check_classes,
    inside,
    map_of,
    paint,
    polygon_of,
    write_map,
)
from datasets.stored import photograph_frame
from datasets.table import BOX_COLUMNS, PART
from datasets.tasks import CLASS, RGB
from utils import progress
from utils.errors import UserError
from utils.words import counted

SHARES = (1.0, 1.0)  # the size of a picture whose boxes are given as shares of its sides
_SLACK = 0.01  # by which a box reaches out of its image by rounding, as a share of it

# Category id, then left, top, right and bottom.
Box = tuple[int, float, float, float, float]


@dataclass(frozen=True)
class Drawn:
    """An object's category, its outline, and its left, top, right and bottom, in the unit of these.

    Without a category it counts nowhere, without an outline nobody knows its pixels, and without sides its place.
    """

    category: int | None
    outline: Any
    sides: tuple[float, float, float, float] | None


@dataclass
class Photograph:
    """A photograph's cell and part (empty where there are no parts), and its boxes as its annotations give them.

    `size` is the width and height that the boxes refer to, in their unit; None where the annotations do not say, so
    that it must be the photograph's own. `words` are what words stand for in the folders' names. `outlines` are
    those of the objects, in the unit of the boxes, and of what counts nowhere.
    """

    cell: str
    part: str
    size: tuple[float, float] | None = None
    boxes: list[Box] = field(default_factory=list)
    words: Mapping[str, str] = field(default_factory=dict)
    outlines: list[Drawn] = field(default_factory=list)


def held_against_files(data_path: Path, photographs: Sequence[Photograph], errors: list[str]) -> list[Photograph]:
    """The photographs that are there and as large as their annotations say, with boxes as shares of their sides.

    A photograph may be annotated at another scale, and as it is stored, before its EXIF entry turns it. Those that are
    missing, unreadable or of another shape are left out and added to the errors. UserError where no box reaches beyond
    the first pixel, as none does whose sides are shares already.
    """
    farthest = [
        max(map(abs, sides))
        for photograph in photographs
        if photograph.size != SHARES
        for _, *sides in photograph.boxes
    ]
    if farthest and max(farthest) <= 1:
        raise UserError(
            "no box reaches beyond the first pixel: its sides are to be in pixels, not shares of the image's"
        )
    photographs = [_without_shares(photograph, errors) for photograph in photographs]
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda photograph: _in_shares(data_path, photograph), photographs)
        converted = list(progress.bar(answers, total=len(photographs), desc="sizes of photographs", unit="photograph"))
    errors += [answer for answer in converted if isinstance(answer, str)]
    accepted = [answer for answer in converted if not isinstance(answer, str)]
    if unclear := sum(is_unclear for _, is_unclear in accepted):
        print(
            f"{counted(unclear, 'photograph')} turned by an EXIF entry, and no size tells whether before or after the "
            "boxes were drawn: they are taken for those of the upright picture"
        )
    return [photograph for photograph, _ in accepted]


def _without_shares(photograph: Photograph, errors: list[str]) -> Photograph:
    """The photograph without objects in its first pixel, as those are whose sides are shares; these are errors.

    Where the objects are is not known then, unless they have outlines beyond that pixel.
    """
    if photograph.size == SHARES:
        return photograph
    strange = [box for box in photograph.boxes if may_be_shares(box[1:])]
    errors += [
        f"{photograph.cell}: box {' '.join(f'{side:g}' for side in sides)} lies within the first pixel: in shares of "
        "the image's sides?"
        for _, *sides in strange
    ]
    outlines = [
        Drawn(None, None, None) if _is_drawn_in_first_pixel(outline) else outline for outline in photograph.outlines
    ]
    return replace(photograph, boxes=[box for box in photograph.boxes if box not in strange], outlines=outlines)


def _is_drawn_in_first_pixel(drawn: Drawn) -> bool:
    if drawn.sides is None or not may_be_shares(drawn.sides):
        return False
    extent = bounds(drawn.outline)
    return extent is None or may_be_shares(extent)


def may_be_shares(sides: Sequence[float]) -> bool:
    """Whether a box has an area, within the first pixel, and is not all of it, as a box in pixels may be."""
    return max(map(abs, sides)) <= 1 and sides[0] < sides[2] and sides[1] < sides[3] and any(side % 1 for side in sides)


def _in_shares(data_path: Path, photograph: Photograph) -> tuple[Photograph, bool] | str:
    """The photograph with boxes in shares, and whether they could be of the picture before its turn; or its error."""
    if not (data_path / photograph.cell).is_file():
        return f"{photograph.cell}: there is no such photograph"
    try:
        frame = photograph_frame(data_path, photograph.cell)
    except ValueError as error:
        return f"{photograph.cell}: {error}"
    if photograph.size == SHARES:
        return photograph, frame.turn is not None
    across, down = photograph.size or (frame.width, frame.height)
    try:
        turn = frame.turn_of(across, down)
    except ValueError:
        return (
            f"{photograph.cell}: it is {frame.width} x {frame.height} pixels, and {across:g} x {down:g} in its "
            "annotations"
        )
    shares = np.array([sides for _, *sides in photograph.boxes]).reshape(-1, 4) / (across, down, across, down)
    shares = shares if turn is None else turned_boxes(shares, turn)
    boxes = [(category, *sides) for (category, *_), sides in zip(photograph.boxes, shares.tolist(), strict=True)]
    is_unclear = frame.leaves_open(across, down) if photograph.size else frame.turn is not None
    return replace(photograph, boxes=boxes), is_unclear


def table_of_boxes(photographs: Sequence[Photograph], classes: ClassSet, errors: list[str], hint: str) -> pd.DataFrame:
    """The boxes in shares of their images that have an area there and a known class: columns `BOX_COLUMNS`.

    Boxes are cut at the border. Those of an unknown category, without area or wholly outside are left out and added to
    the errors, and one that stands there again is counted. UserError, which ends with the hint, where none is left.
    """
    number_of = {identity: number for number, identity in enumerate(classes.ids or range(len(classes.names)))}
    rows, n_cut, n_again = [], 0, 0
    for photograph in photographs:
        n_again += len(photograph.boxes) - len({*photograph.boxes})
        for category, *sides in dict.fromkeys(photograph.boxes):
            left, top, right, bottom = (min(max(side, 0.0), 1.0) for side in sides)
            where = f"{photograph.cell}: box {' '.join(f'{side:.3f}' for side in sides)}"
            if category not in number_of:
                errors.append(f"{where} is of the unknown category {category}")
            elif not np.isfinite(sides).all() or sides[0] >= sides[2] or sides[1] >= sides[3]:
                errors.append(f"{where} has no area")
            elif left >= right or top >= bottom:
                errors.append(f"{where} lies outside its image")
            else:
                rows.append((photograph.cell, number_of[category], left, top, right, bottom))
                n_cut += min(sides) < -_SLACK or max(sides) > 1 + _SLACK
    used, known = {category for photograph in photographs for category, *_ in photograph.boxes}, sorted(number_of)
    first, last = known[0], known[-1]
    if last + 1 in used and first not in used:
        print(f"no box has id {first}, and some {last + 1}, but names are of {first} to {last}: counted from another?")
    if not rows:
        raise UserError(f"no valid box in {counted(len(photographs), 'photograph')}{main_error(errors)}; see {hint}")
    if n_again:
        print(f"left out {counted(n_again, 'box')} that their photographs have already, of the same class and sides")
    if n_cut:
        print(f"cut {counted(n_cut, 'box')} that {'reaches' if n_cut == 1 else 'reach'} over the border of the image")
    return pd.DataFrame(rows, columns=BOX_COLUMNS)


def write_maps(data_path: Path, photographs: Sequence[Photograph], classes: ClassSet, errors: list[str]) -> None:
    """Write the maps of the photographs' objects, from their outlines.

    What has no outline that can be read, or an unknown category, counts nowhere: its box, or where it has none, all
    that is no other object. The former is added to the errors. UserError where no outline is left.
    """
    check_classes(classes)
    number_of = {identity: number for number, identity in enumerate(classes.ids or range(len(classes.names)), start=1)}
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda photograph: _write_map(data_path, photograph, number_of), photographs)
        written = list(progress.bar(answers, total=len(photographs), desc="maps of objects", unit="photograph"))
    of_outlines = [error for _, of_photograph in written for error in of_photograph]
    errors += of_outlines
    if not sum(n_objects for n_objects, _ in written):
        raise UserError(
            f"no outline of an object in {counted(len(photographs), 'photograph')}{main_error(of_outlines)}; "
            "give --objects boxes"
        )


def _write_map(data_path: Path, photograph: Photograph, number_of: Mapping[int, int]) -> tuple[int, list[str]]:
    """Write the map of a photograph; returns how many objects it has, and the errors of outlines."""
    frame = photograph_frame(data_path, photograph.cell)
    size = frame.height, frame.width
    across, down = photograph.size or size[::-1]
    turn = None if photograph.size == SHARES else frame.turn_of(across, down)
    size = size if turn is None else size[::-1]
    regions, errors = [], []

    def pixels_of(drawn: Drawn) -> np.ndarray:
        """Where an object may be as far as its outline does not tell: in its box, or else anywhere."""
        try:
            return inside(polygon_of(*drawn.sides or ()), (across, down), size)
        except (ValueError, TypeError):
            return np.ones(size, bool)

    for drawn in photograph.outlines:
        if drawn.outline is None:
            regions.append((VOID, pixels_of(drawn)))
            continue
        try:
            if photograph.size != SHARES and _is_in_shares(drawn):
                raise ValueError("a polygon in shares of the sides beside a box in pixels")
            pixels, is_whole = inside(drawn.outline, (across, down), size), all_can_be_read(drawn.outline)
            regions.append((VOID if drawn.category is None else number_of.get(drawn.category, VOID), pixels))
            error = "" if is_whole else "a ring that is not of numbers"
        except ValueError as unreadable:
            error = str(unreadable)
        if error:
            regions.append((VOID, pixels_of(drawn)))
            errors.append(f"{photograph.cell}: an object whose outline cannot be read: {error}")
    picture = paint(regions, size)
    if turn is not None:
        picture = np.asarray(Image.fromarray(picture).transpose(turn))
    write_map(data_path / map_of(photograph.cell), picture)
    return sum(label != VOID for label, _ in regions), errors


def _is_in_shares(drawn: Drawn) -> bool:
    """Whether an outline is within the first pixel, and its box reaches further."""
    extent = None if drawn.sides is None or max(map(abs, drawn.sides)) <= 1 else bounds(drawn.outline)
    return extent is not None and not isinstance(drawn.outline, Mapping) and max(map(abs, extent)) <= 1


def rows_of_images(
    photographs: Sequence[Photograph], boxes: pd.DataFrame, classes: ClassSet, rule: str
) -> pd.DataFrame:
    """A row per photograph with its class, -1 for one without boxes, and its part where there are parts."""
    cells = [photograph.cell for photograph in photographs]
    amounts = pd.crosstab(boxes["image"], boxes[CLASS])
    amounts = amounts.reindex(index=cells, columns=range(len(classes.names)), fill_value=0)
    of_images = [class_of_image(row, classes.names, rule) for row in amounts.to_numpy()]
    rows = pd.DataFrame({RGB.domain: cells, CLASS: of_images, PART: [photograph.part for photograph in photographs]})
    return rows if any(rows[PART]) else rows.drop(columns=PART)


def groups_of_images(
    photographs: Sequence[Photograph], folder: str, rows: pd.DataFrame, pattern: str | None
) -> pd.DataFrame:
    """The natural groups that the words of the photographs' folder and a regular expression of their names make.

    A column each, beside those of `rows`; UserError where one is called like one of these, or like another.
    """
    taken = [name for name in rows if name not in (RGB.domain, PART)]
    of_words = rows_of([InFolder(photograph.cell, "", photograph.words) for photograph in photographs], folder, taken)
    of_words = of_words.drop(columns=[RGB.domain, PART], errors="ignore")
    of_names = groups_of_names(rows[RGB.domain], pattern, {*rows, *of_words})
    return pd.concat([of_words, of_names], axis=1)
