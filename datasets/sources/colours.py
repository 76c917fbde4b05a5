"""Masks in colours, and the tables that say which class has which: CVAT's, datumaro's, CamVid's, and a csv file's.

Such masks are written as masks of ids into a folder of the data folder: a class's id is the number of its line in the
table, from 0 on, and what has none of its colours is void.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from datasets.as_saved import check_ids
from datasets.classes import VOID
from datasets.pages import check_alone, n_images_in
from datasets.sources.outlines import write_map
from datasets.stored import read_photograph, read_values
from utils import progress
from utils.errors import UserError
from utils.words import counted, some

FOLDER = "id_masks"  # of what is made of masks in colours, in the data folder
Colour = tuple[int, int, int]

_LINE = re.compile(r"(.+?):(?:(\d{1,3}),(\d{1,3}),(\d{1,3}))?:[^:]*:[^:]*|(.+?):(\d{1,3}),(\d{1,3}),(\d{1,3})")
_COLOUR_FIRST = re.compile(r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+(.*[^\d\s].*)")
_COLUMNS = (("r", "red"), ("g", "green"), ("b", "blue"))
_OF_NAMES = ("name", "names", "class", "label", "category")
_WIDE = ("I;16", "I;16B", "I")
_MOST_NAMED = 8  # colours of a line


def coloured(lines: Sequence[str]) -> list[tuple[str, Colour | None]]:
    """The name of each line and its colour, of a table without empty lines and comments; nothing where it is none.

    Lines are all `name:red,green,blue` (with two more fields, and then perhaps without a colour), or all
    `red green blue name`, or the first one names the columns. ValueError where two names have one colour, or a colour
    is none.

    >>> coloured(["road:128,64,128::", "sky:70,130,180::"])
    [('road', (128, 64, 128)), ('sky', (70, 130, 180))]
    """
    entries = _by_columns(lines)
    if not entries and all(matches := [_LINE.fullmatch(line) for line in lines]):
        cells = [[group or "" for group in match.groups()] for match in matches if match]
        entries = [(a or b, _colour([r or r2, g or g2, b1 or b2])) for a, r, g, b1, b, r2, g2, b2 in cells]
    if not entries and all(matches := [_COLOUR_FIRST.fullmatch(line) for line in lines]):
        entries = [(match[4].strip(), _colour(match.groups()[:3])) for match in matches if match]
    owners: dict[Colour, str] = {}
    for name, colour in entries:
        if colour and owners.setdefault(colour, name) != name:
            raise ValueError(f"{owners[colour]!r} and {name!r} have one colour, {hexadecimal(colour)}")
    return entries


def colours_in(path: Path) -> dict[Colour, int]:
    """The number of the line of each colour in a table; empty where the file is none, or names lack one.

    Where all lack one, as in datumaro's label maps, line k has Pascal VOC's colour k. UserError where the file cannot
    be read, or its colours are none.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        return {}
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        entries = coloured([line for line in lines if line and not line.startswith("#")])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot read the names of the classes ({reason}); see --mask_classes") from error
    colours = [colour for _, colour in entries if colour is not None]
    if entries and not colours:
        print(f"{path.name} has no colours: those of Pascal VOC are taken, in the order of its lines")
        colours = [voc_colour(number) for number in range(len(entries))]
    numbers: dict[Colour, int] = {}
    for number, colour in enumerate(colours if len(colours) == len(entries) else ()):
        numbers.setdefault(colour, number)
    return numbers


def voc_colour(number: int) -> Colour:
    """Pascal VOC's colour of an id: its bits, three at a time, are the highest bits of red, green and blue.

    >>> voc_colour(15)
    (192, 128, 128)
    """
    red, green, blue = (
        sum((number >> 3 * place + channel & 1) << 7 - place for place in range(8)) for channel in range(3)
    )
    return red, green, blue


def masks_of_ids(data_path: Path, cells: Sequence[str], numbers: Mapping[Colour, int], errors: list[str]) -> list[str]:
    """The cells of masks of ids: those in colours are written as such, and others stay what they are.

    A line names colours that have no number. Masks without one that has are added to the errors, and their cells are
    empty.
    """
    unknown, n_pixels = Counter[Colour](), Counter[str]()

    def written(cell: str) -> str:
        """The cell of the mask of ids; empty for one that cannot be read."""
        try:
            picture = _numbered(data_path, cell, numbers)
        except ValueError as error:
            errors.append(f"{cell}: {error}")
            return ""
        if picture is None:
            return cell
        ids, of_no_number = picture
        unknown.update(of_no_number)
        n_pixels[cell] = ids.size
        target = f"{FOLDER}/{cell}" if cell.lower().endswith(".png") else f"{FOLDER}/{cell}.png"
        write_map(data_path / target, ids)
        return target

    with ThreadPoolExecutor() as pool:
        masks = list(progress.bar(pool.map(written, cells), total=len(cells), desc="masks in colours", unit="mask"))
    if unknown:
        names = some([hexadecimal(colour) for colour, _ in unknown.most_common()], _MOST_NAMED)
        share = unknown.total() / n_pixels.total()
        print(f"{counted(len(unknown), 'colour')} without a name, {share:.3g} of all pixels, count nowhere: {names}")
    return masks


def hexadecimal(colour: Colour) -> str:
    """A colour as `#00ff80`."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _numbered(data_path: Path, cell: str, numbers: Mapping[Colour, int]) -> tuple[np.ndarray, dict[Colour, int]] | None:
    """The ids (H, W) uint8 of a mask in colours, and the pixels of each colour that has none; None for others.

    Others have ids themselves: those of 16 bits, or of greys that are not all of the table's colours. ValueError where
    one cannot be read, is not alone in its file, is saved with loss, or has none of the colours.
    """
    check_alone(n_images_in(data_path / cell))
    check_ids(data_path / cell)
    try:
        read_values(data_path, cell, _WIDE)
        return None
    except ValueError:
        pass
    values = read_photograph(data_path, cell)
    packed, which = np.unique(_packed(values), return_inverse=True)
    shown = [(value >> 16, value >> 8 & 255, value & 255) for value in packed.tolist()]
    ids = np.array([numbers.get(colour, VOID) for colour in shown], np.uint8)
    is_known = np.array([colour in numbers for colour in shown])
    if not is_known.all() and all(red == green == blue for red, green, blue in shown):
        return None
    if not is_known.any():
        raise ValueError(f"no pixel has a colour of the table; it has {some(list(map(hexadecimal, shown)), 3)}")
    amounts = np.bincount(which.ravel())
    unknown = {colour: int(n) for colour, n, known in zip(shown, amounts, is_known, strict=True) if not known}
    return ids[which].reshape(values.shape[1:]), unknown


def _packed(values: np.ndarray) -> np.ndarray:
    """Colours (3, H, W) as one number each, (H, W)."""
    red, green, blue = values.astype(np.int64)
    return red << 16 | green << 8 | blue


def _by_columns(lines: Sequence[str]) -> list[tuple[str, Colour | None]]:
    """Names and colours of a table whose first line names its columns; nothing where it has no such columns."""
    separator = max("\t,;", key=(lines[0] if lines else "").count)
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
    header = [cell.lower() for cell in rows[0]] if rows else []
    at = [next((header.index(name) for name in names if name in header), -1) for names in (*_COLUMNS, _OF_NAMES)]
    if min(at) < 0:
        return []
    if short := [row for row in rows if len(row) <= max(at)]:
        raise ValueError(f"{separator.join(short[0])!r} has no cell for each of the columns {lines[0]!r}")
    return [(row[at[3]], _colour([row[column] for column in at[:3]])) for row in rows[1:]]


def _colour(cells: Sequence[str]) -> Colour | None:
    """Red, green and blue of their texts; None where there is none, ValueError where they are not in 0..255."""
    if not any(cells):
        return None
    red, green, blue = (int(cell) if cell.isdecimal() else -1 for cell in cells)
    if not all(0 <= channel <= 255 for channel in (red, green, blue)):
        raise ValueError(f"{', '.join(cells)} is no colour, which is three numbers from 0 to 255")
    return red, green, blue
