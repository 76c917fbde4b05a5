"""YOLO's label files: a line for each object of a photograph, in shares of its sides."""

from __future__ import annotations

from pathlib import Path

from datasets.sources.annotated import Drawn, Photograph


def read_labels(path: Path, name: str, photograph: Photograph) -> list[str]:
    """Add the objects of a label file, called `name`, to its photograph; returns its faults.

    What an object is that cannot be read, and where, nobody knows: outlines count nowhere outside of the others.
    """
    faults = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            drawn = _read_line(line)
        except (ValueError, OverflowError):
            faults.append(f"{name}, line {number}: not id, centre, width and height, nor id and polygon")
            photograph.outlines.append(Drawn(None, None, None))
        else:
            assert drawn.category is not None and drawn.sides is not None
            photograph.boxes.append((drawn.category, *drawn.sides))
            photograph.outlines.append(drawn if drawn.outline else Drawn(None, None, drawn.sides))
    return faults


def _read_line(line: str) -> Drawn:
    """The object of a line of a label file, in shares of the sides; ValueError where it has no box and no outline.

    Four numbers are the centre and the sides of a box without an outline, more are the points of a polygon. The id may
    be written with a point, as programs do that write a row of one type.
    """
    identity, *numbers = map(float, line.split())
    category = int(identity)
    if category != identity:
        raise ValueError("no whole number")
    if len(numbers) == 4:
        x, y, width, height = numbers
        return Drawn(category, None, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    if len(numbers) < 6 or len(numbers) % 2:
        raise ValueError("no polygon")
    across, down = numbers[::2], numbers[1::2]
    return Drawn(category, [numbers], (min(across), min(down), max(across), max(down)))
