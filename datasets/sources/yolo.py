"""YOLO's label files: a line for each object of a photograph, in shares of its sides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from datasets.sources.annotated import SHARES, Drawn, Photograph

_TRACKED = 6  # numbers behind the id of a row: a box, its score and the number of its track
_MANY = 10  # rows
_LEAST_ALIKE = 10  # numbers of rows that are all as long, so that they are hardly polygons: four corners are common
_SLACK = 0.02  # by which key points lie beside their box


def paired(photographs: Mapping[str, Path], texts: Sequence[Path]) -> tuple[dict[str, Path], dict[str, list[Path]]]:
    """The label file of each photograph that has one, and those that may be its own where that is not clear.

    `photographs` are the cells with their paths in their folder, `texts` paths in that of the labels. A label file lies
    there in the same place as its photograph, as Ultralytics wants it, or else has the name of one photograph alone.
    """
    of_place = {text.with_suffix(""): text for text in texts}
    text_of_cell = {cell: of_place.get(path.with_suffix(""), of_place.get(path)) for cell, path in photographs.items()}
    labels = {cell: text for cell, text in text_of_cell.items() if text is not None}
    of_name: dict[str, list[Path]] = defaultdict(list)
    for text in set(texts) - {*labels.values()}:
        of_name[text.stem].append(text)
    named = {
        cell: sorted(of_name.get(path.stem, []) + of_name.get(path.name, []))
        for cell, path in photographs.items()
        if cell not in labels
    }
    claims = Counter(text for several in named.values() for text in several)
    unclear = {cell: several for cell, several in named.items() if sum(claims[text] for text in several) > 1}
    labels |= {cell: several[0] for cell, several in named.items() if several and cell not in unclear}
    return labels, unclear


def read_labels(path: Path, name: str, photograph: Photograph, n_key_points: int | None = None) -> list[str]:
    """Add the objects of a label file, called `name`, to its photograph; returns its errors.

    Where `n_key_points` says how many numbers of key points follow a box, objects are boxes.

    What an object is that cannot be read, and where, nobody knows: outlines count nowhere outside of the others.
    """
    errors = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            drawn = _read_line(line, n_key_points)
        except (ValueError, OverflowError):
            points = "id and polygon" if n_key_points is None else f"these and {n_key_points} numbers of key points"
            errors.append(f"{name}, line {number}: not id, centre, width and height, nor {points}")
            photograph.outlines.append(Drawn(None, None, None))
        else:
            assert drawn.category is not None and drawn.sides is not None
            photograph.boxes.append((drawn.category, *drawn.sides))
            photograph.outlines.append(drawn if drawn.outline else Drawn(None, None, drawn.sides))
    return errors


def key_points_in(photographs: Sequence[Photograph]) -> tuple[int, int] | None:
    """How many key points, of how many numbers, all polygons of label files are instead; None where they are polygons.

    That is where all are as long, begin with a box within the photograph, and have the rest in it: points of three
    numbers, whose third is 0, 1 or 2, or more points of two than polygons have that are all as long.
    """
    rows = _polygons(photographs)
    if not rows or len({*map(len, rows)}) > 1:
        return None
    numbers = np.array(rows)
    centre, sides, rest = numbers[:, None, :2], numbers[:, None, 2:4], numbers[:, 4:]
    if not (np.abs(centre - 0.5) + sides / 2 <= 0.5 + _SLACK).all():
        return None
    for n, least in ((3, 3), (2, _LEAST_ALIKE)):
        if rest.shape[1] < least or rest.shape[1] % n:
            continue
        points = rest.reshape(len(rest), -1, n)
        is_absent = (points[..., :2] == 0).all(-1)
        is_inside = (np.abs(points[..., :2] - centre) <= sides / 2 + _SLACK).all(-1)
        if (is_inside | is_absent).all() and (n == 2 or np.isin(points[..., 2], (0, 1, 2)).all()):
            return points.shape[1], n
    return None


def are_tracks(photographs: Sequence[Photograph]) -> bool:
    """Whether all polygons of label files are instead boxes with a score and the number of a track, as trackers write.

    That is where all rows have six numbers, begin with a box within the photograph, and go on with a share and a whole
    number, above 1 somewhere if there are few.
    """
    rows = _polygons(photographs)
    if not rows or {*map(len, rows)} != {_TRACKED}:
        return False
    numbers = np.array(rows)
    centre, sides, (score, track) = numbers[:, :2], numbers[:, 2:4], numbers[:, 4:].T
    is_inside = (np.abs(centre - 0.5) + sides / 2 <= 0.5 + _SLACK).all()
    is_numbered = (track == np.rint(track)).all() and (track.max() > 1 or len(rows) >= _MANY)
    return bool(is_inside and is_numbered and ((score >= 0) & (score <= 1)).all())


def _polygons(photographs: Sequence[Photograph]) -> list[list[float]]:
    """The polygons of all label files, each as the numbers of its line behind the id."""
    return [
        drawn.outline[0]
        for photograph in photographs
        if photograph.size == SHARES
        for drawn in photograph.outlines
        if drawn.outline
    ]


def _read_line(line: str, n_key_points: int | None) -> Drawn:
    """The object of a line of a label file, in shares of the sides; ValueError where it has no box and no outline.

    Four numbers are the centre and the sides of a box without an outline, more are the points of a polygon, or key
    points, which are left. The id may be written with a point, as programs do that write a row of one type.
    """
    identity, *numbers = map(float, line.split())
    category = int(identity)
    if category != identity:
        raise ValueError("no whole number")
    if n_key_points is not None and len(numbers) == 4 + n_key_points:
        numbers = numbers[:4]
    if len(numbers) == 4:
        x, y, width, height = numbers
        return Drawn(category, None, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    if len(numbers) < 6 or len(numbers) % 2 or n_key_points is not None:
        raise ValueError("no polygon")
    across, down = numbers[::2], numbers[1::2]
    return Drawn(category, [numbers], (min(across), min(down), max(across), max(down)))
