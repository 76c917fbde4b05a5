"""Furniture: what pieces there are and the primitives that each is built from.

Pure data: a piece is described in its own unit box with its back at -y, and a new one is one entry of `PIECES`.
Materials are named by role (wood, fabric, …) and get their colours and textures from the room they stand in; the
role `any` is drawn anew for every part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Interval = tuple[float, float]
_NO_THING = "background"
_NEARLY = 0.02


@dataclass(frozen=True)
class Part:
    """A primitive of a piece: bounds (x0, x1, y0, y1, z0, z1) are shares of the piece's width,
    depth and height."""

    shape: str
    material: str
    bounds: tuple[float, ...]
    label: str = ""  # the piece's own when empty

    def touches(self, other: Part) -> bool:
        """Whether two parts' bounds meet, or nearly."""
        sides = zip(self.bounds[::2], self.bounds[1::2], other.bounds[::2], other.bounds[1::2], strict=True)
        return all(a0 <= b1 + _NEARLY and b0 <= a1 + _NEARLY for a0, a1, b0, b1 in sides)


@dataclass(frozen=True)
class Piece:
    """A piece of furniture: its sizes in metres, what it is made of and where it belongs.

    `place` is wall, floor, hung (on a wall), on (another piece) or ceiling; `height` is where a hung piece starts.
    `around` lists further pieces as (name, x, y, quarter turns), x and y in shares of this one's width and depth.
    `things` is the mean number of small pieces on top.
    """

    size: tuple[Interval, Interval, Interval]
    parts: tuple[Part, ...]
    place: str = "wall"
    label: str = _NO_THING
    things: float = 0.0
    height: Interval = (0.0, 0.0)
    around: tuple[tuple[str, float, float, int], ...] = ()

    def thing_of_part(self) -> tuple[int, ...]:
        """The number of the thing that each part is of, -1 for parts that are labelled as none.

        The parts that have the piece's own label are one thing. Parts with another are one where they touch, within a
        fiftieth of the piece: the books of a board are one row, and the bottles of a board stand apart.
        """
        numbers: list[int] = []
        for i, part in enumerate(self.parts):
            label = part.label or self.label
            same = (j for j in range(i) if (self.parts[j].label or self.label) == label)
            if label == _NO_THING:
                numbers.append(-1)
            elif (match := next((j for j in same if label == self.label or self.parts[j].touches(part)), None)) is None:
                numbers.append(max(numbers, default=-1) + 1)
            else:
                numbers.append(numbers[match])
        return tuple(numbers)


def _part(shape: str, material: str, *bounds: float, label: str = "") -> Part:
    return Part(shape, material, bounds, label)


def _box(material: str, *bounds: float, label: str = "") -> Part:
    return Part("box", material, bounds, label)


def _legs(material: str, top: float, thickness: float = 0.06, shape: str = "box") -> tuple[Part, ...]:
    starts = (-0.48, 0.48 - thickness)
    return tuple(_part(shape, material, x, x + thickness, y, y + thickness, 0, top) for x in starts for y in starts)


def _row(count: int, axis: int, fill: float, part: Part) -> tuple[Part, ...]:
    """`count` copies that share the part's own interval along `axis`, each filling `fill` of its share."""
    low, high = part.bounds[2 * axis : 2 * axis + 2]
    before, after = part.bounds[: 2 * axis], part.bounds[2 * axis + 2 :]
    step = (high - low) / count
    starts = [low + step * (i + (1 - fill) / 2) for i in range(count)]
    return tuple(replace(part, bounds=(*before, start, start + fill * step, *after)) for start in starts)


def _tub(material: str, floor: float, wall: float, bottom: float = 0.0, top: float = 1.0) -> tuple[Part, ...]:
    """An open vessel from `bottom` to `top`: four sides of thickness `wall` and a floor as high as `floor`."""
    inner = 0.5 - wall
    return (
        _box(material, -0.5, 0.5, -0.5, 0.5, bottom, floor),
        _box(material, -0.5, 0.5, -0.5, -inner, floor, top),
        _box(material, -0.5, 0.5, inner, 0.5, floor, top),
        _box(material, -0.5, -inner, -inner, inner, floor, top),
        _box(material, inner, 0.5, -inner, inner, floor, top),
    )


def _cupboard(n_columns: int, n_rows: int, plinth: float = 0.06) -> tuple[Part, ...]:
    """A body with fronts that stand proud of it, each with a knob."""
    fronts: tuple[Part, ...] = ()
    knobs: tuple[Part, ...] = ()
    for row in range(n_rows):
        low, high = (plinth + (0.98 - plinth) * (row + shift) / n_rows for shift in (0.06, 0.94))
        middle = (low + high) / 2
        fronts += _row(n_columns, 0, 0.94, _box("wood", -0.49, 0.49, 0.4, 0.46, low, high))
        knobs += _row(n_columns, 0, 0.1, _box("metal", -0.49, 0.49, 0.46, 0.5, middle - 0.02, middle + 0.02))
    return (_box("wood2", -0.5, 0.5, -0.5, 0.4, 0, 1), *fronts, *knobs)


def _shelves(n_boards: int, *goods: tuple[Part, ...]) -> tuple[Part, ...]:
    """An open rack; `goods` are rows of parts in a unit-high compartment, assigned to the compartments in turn."""
    sides = (
        _box("wood", -0.5, -0.47, -0.5, 0.5, 0, 1),
        _box("wood", 0.47, 0.5, -0.5, 0.5, 0, 1),
        _box("wood2", -0.47, 0.47, -0.5, -0.46, 0.02, 0.98),
    )
    boards = _row(n_boards, 2, 0.1, _box("wood", -0.47, 0.47, -0.46, 0.5, 0, 1))
    filled = []
    for level in range(n_boards - 1):
        low, step = (level + 0.55) / n_boards, 0.9 / n_boards
        for part in goods[level % len(goods)]:
            *xy, z0, z1 = part.bounds
            filled.append(replace(part, bounds=(*xy, low + step * z0, low + step * z1)))
    return (*sides, *boards, *filled)


def _sofa(n_seats: int) -> tuple[Part, ...]:
    return (
        _box("fabric", -0.5, 0.5, -0.45, 0.48, 0.08, 0.38),
        _box("fabric", -0.5, 0.5, -0.5, -0.25, 0.08, 0.9),
        _box("fabric", -0.5, -0.5 + 0.2 / n_seats, -0.5, 0.5, 0.05, 0.65),
        _box("fabric", 0.5 - 0.2 / n_seats, 0.5, -0.5, 0.5, 0.05, 0.65),
        *_row(n_seats, 0, 0.96, _part("cushion", "fabric2", -0.4, 0.4, -0.27, 0.5, 0.32, 0.54)),
        *_row(n_seats, 0, 0.9, _part("cushion", "accent", -0.4, 0.4, -0.3, -0.08, 0.5, 1)),
    )


_BOOKS = tuple(
    replace(part, bounds=(*part.bounds[:5], (0.9, 0.75, 0.82)[i % 3]))
    for i, part in enumerate(_row(9, 0, 0.92, _box("any", -0.42, 0.35, -0.4, 0.25, 0, 1, label="book")))
)
_BOXES = _row(3, 0, 0.8, _box("any", -0.45, 0.45, -0.4, 0.35, 0, 0.75))
_JARS = _row(5, 0, 0.7, _part("cylinder", "any", -0.45, 0.45, -0.25, 0.25, 0, 0.6, label="bottle"))
_CLOTHES = _row(7, 0, 0.6, _part("cushion", "any", -0.44, 0.44, -0.4, 0.4, 0.28, 0.93))
_SEAT = (0.4, 0.52)
_SEATS = tuple(("chair", x, y, turns) for x in (-0.27, 0.27) for y, turns in ((-0.62, 0), (0.62, 2)))
_LONG_SEATS = tuple(("chair", x, y, turns) for x in (-0.36, -0.12, 0.12, 0.36) for y, turns in ((-0.66, 0), (0.66, 2)))

PIECES: dict[str, Piece] = {
    # On the floor
    "chair": Piece(((0.4, 0.5), _SEAT, (0.8, 1.05)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.44, 0.5), *_legs("wood", 0.44, 0.08),
        *_row(2, 0, 0.1, _box("wood", -0.9, 0.9, -0.5, -0.42, 0.5, 1)),
        *_row(2, 2, 0.55, _box("wood", -0.48, 0.48, -0.48, -0.44, 0.58, 1)),
    ), "floor", "chair"),
    "swivel_chair": Piece(((0.5, 0.62), (0.5, 0.62), (0.85, 1.2)), (
        _part("cone", "metal", -0.45, 0.45, -0.45, 0.45, 0.02, 0.12),
        _part("cylinder", "metal", -0.06, 0.06, -0.06, 0.06, 0.1, 0.4),
        _part("cushion", "fabric", -0.45, 0.45, -0.4, 0.5, 0.38, 0.52),
        _part("cushion", "fabric", -0.42, 0.42, -0.5, -0.34, 0.5, 1),
        *_row(2, 0, 0.1, _box("dark", -0.95, 0.95, -0.3, 0.25, 0.56, 0.62)),
    ), "floor", "chair"),
    "stool": Piece(((0.3, 0.4), (0.3, 0.4), (0.42, 0.75)), (
        _part("cylinder", "wood", -0.5, 0.5, -0.5, 0.5, 0.9, 1), *_legs("metal", 0.9, 0.12, "cylinder"),
    ), "floor", "chair"),
    "dining_table": Piece(((1.3, 2.2), (0.8, 1.1), (0.72, 0.78)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.94, 1), *_legs("wood", 0.94, 0.07),
    ), "floor", "dining table", 2.5, around=_SEATS),
    "round_table": Piece(((0.8, 1.4), (0.8, 1.4), (0.7, 0.76)), (
        _part("cylinder", "wood", -0.5, 0.5, -0.5, 0.5, 0.94, 1),
        _part("cylinder", "metal", -0.06, 0.06, -0.06, 0.06, 0.05, 0.94),
        _part("cone", "metal", -0.3, 0.3, -0.3, 0.3, 0, 0.1),
    ), "floor", "dining table", 1.2, around=(("chair", 0, -0.65, 0), ("chair", 0, 0.65, 2))),
    "meeting_table": Piece(((2.4, 3.8), (1, 1.4), (0.72, 0.76)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.93, 1),
        *_row(2, 0, 0.1, _box("wood2", -0.7, 0.7, -0.35, 0.35, 0, 0.93)),
    ), "floor", things=3, around=_LONG_SEATS),
    "school_desk": Piece(((0.65, 1.2), (0.5, 0.6), (0.7, 0.76)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.95, 1), *_legs("metal", 0.95, 0.05, "cylinder"),
        _box("metal", -0.45, 0.45, -0.45, -0.4, 0.6, 0.9),
    ), "floor", things=0.5, around=(("chair", 0, 0.8, 2),)),
    "coffee_table": Piece(((0.7, 1.3), (0.45, 0.7), (0.35, 0.48)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.88, 1), *_legs("wood", 0.88),
        _box("wood", -0.44, 0.44, -0.44, 0.44, 0.25, 0.32),
    ), "floor", things=1.5),
    "rug": Piece(((1.2, 2.8), (0.9, 2), (0.012, 0.02)), (_box("accent", -0.5, 0.5, -0.5, 0.5, 0, 1),), "floor"),
    "crate": Piece(((0.3, 0.6), (0.3, 0.6), (0.25, 0.6)), _tub("any", 0.1, 0.05), "floor"),
    "carton": Piece(((0.3, 0.7), (0.3, 0.6), (0.25, 0.9)), (
        _box("any", -0.5, 0.5, -0.5, 0.5, 0, 1),
    ), "floor", things=0.3),
    "ball": Piece(((0.2, 0.4),) * 3, (_part("ball", "any", -0.5, 0.5, -0.5, 0.5, 0, 1),), "floor"),
    "potted_tree": Piece(((0.5, 0.9), (0.5, 0.9), (0.9, 2)), (
        _part("cone", "any", -0.25, 0.25, -0.25, 0.25, -0.1, 0.22),
        _part("cylinder", "wood", -0.03, 0.03, -0.03, 0.03, 0.1, 0.7),
        _part("ball", "leaf", -0.4, 0.3, -0.3, 0.4, 0.45, 0.8),
        _part("ball", "leaf", -0.2, 0.5, -0.5, 0.2, 0.55, 0.9),
        _part("ball", "leaf", -0.35, 0.3, -0.35, 0.3, 0.7, 1),
    ), "wall", "potted plant"),
    "floor_lamp": Piece(((0.3, 0.5), (0.3, 0.5), (1.3, 1.8)), (
        _part("cone", "glow", -0.5, 0.5, -0.5, 0.5, 0.8, 1),
        _part("cylinder", "metal", -0.04, 0.04, -0.04, 0.04, 0, 0.85),
        _part("cylinder", "metal", -0.35, 0.35, -0.35, 0.35, 0, 0.02),
    )),
    # Along the walls
    "bed": Piece(((0.9, 1.9), (1.9, 2.1), (0.85, 1.2)), (
        _box("wood", -0.5, 0.5, -0.5, -0.46, 0, 1), _box("wood", -0.5, 0.5, -0.46, 0.5, 0.1, 0.28),
        _box("white", -0.48, 0.48, -0.46, 0.49, 0.28, 0.46),
        _part("cushion", "accent", -0.51, 0.51, -0.2, 0.51, 0.3, 0.54),
        *_row(2, 0, 0.9, _part("cushion", "white", -0.45, 0.45, -0.45, -0.22, 0.43, 0.6)),
        *_legs("wood", 0.1, 0.05),
    ), label="bed"),
    "bunk_bed": Piece(((0.9, 1.1), (1.9, 2.1), (1.6, 1.9)), (
        *_legs("wood", 1, 0.06), *_row(2, 2, 0.1, _box("wood", -0.48, 0.48, -0.48, 0.48, -0.15, 1.25)),
        *_row(2, 2, 0.14, _part("cushion", "accent", -0.44, 0.44, -0.44, 0.44, -0.09, 1.3)),
        _box("wood", 0.44, 0.48, -0.42, 0.2, 0.85, 0.95),
    ), label="bed"),
    "couch": Piece(
        ((1.7, 2.4), (0.8, 1), (0.75, 0.95)), _sofa(3), label="couch", around=(("coffee_table", 0, 1.05, 0),)),
    "small_couch": Piece(((1.3, 1.6), (0.8, 0.95), (0.75, 0.9)), _sofa(2), label="couch"),
    "armchair": Piece(((0.75, 0.95), (0.75, 0.95), (0.75, 1)), _sofa(1), label="chair"),
    "bench": Piece(((1.5, 2.6), (0.45, 0.6), (0.75, 0.9)), (
        *_row(4, 0, 0.86, _part("cushion", "fabric", -0.5, 0.5, -0.45, 0.5, 0.42, 0.55)),
        *_row(4, 0, 0.86, _part("cushion", "fabric", -0.5, 0.5, -0.5, -0.32, 0.55, 1)),
        *_row(5, 0, 0.1, _box("metal", -0.6, 0.6, -0.4, 0.4, 0, 0.44)),
    ), label="chair"),
    "desk": Piece(((1.1, 1.8), (0.6, 0.8), (0.72, 0.78)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.94, 1), *_legs("metal", 0.94, 0.05),
        _box("wood2", 0.2, 0.46, -0.4, 0.42, 0.1, 0.94),
        *_row(3, 2, 0.85, _box("wood", 0.21, 0.45, 0.42, 0.46, 0.1, 0.94)),
    ), things=2.5, around=(("monitor", 0, -0.2, 0), ("swivel_chair", -0.1, 0.75, 2))),
    "nightstand": Piece(((0.4, 0.55), (0.35, 0.45), (0.45, 0.65)), _cupboard(1, 2), things=1.2),
    "dresser": Piece(((0.8, 1.5), (0.42, 0.55), (0.75, 1.15)), _cupboard(2, 3), things=1.8),
    "wardrobe": Piece(((0.9, 2), (0.5, 0.65), (1.8, 2.15)), _cupboard(2, 1)),
    "locker": Piece(((0.8, 1.6), (0.4, 0.5), (1.6, 1.9)), _cupboard(4, 2)),
    "bookshelf": Piece(((0.7, 1.4), (0.28, 0.4), (1.2, 2.1)), _shelves(5, _BOOKS, _BOXES, _BOOKS)),
    "rack": Piece(((0.9, 2), (0.4, 0.6), (1.5, 2.1)), _shelves(4, _BOXES, _JARS)),
    "clothes_rail": Piece(((0.9, 2), (0.5, 0.6), (1.7, 2.1)), (
        *_CLOTHES, _box("metal", -0.48, 0.48, -0.03, 0.03, 0.93, 0.95),
        *_row(2, 0, 0.05, _box("metal", -0.95, 0.95, -0.1, 0.1, 0, 0.95)),
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0.97, 1),
        *_row(4, 0, 0.6, _box("dark", -0.45, 0.45, -0.3, 0.3, 0, 0.05)),
    )),
    "counter": Piece(((1.2, 2.6), (0.58, 0.66), (0.86, 0.94)), (
        *_cupboard(4, 1, 0.1), _box("stone", -0.51, 0.51, -0.5, 0.52, 1, 1.04),
    ), things=2.5),
    "sink_counter": Piece(((0.8, 1.4), (0.58, 0.66), (0.86, 0.94)), (
        *_cupboard(2, 1, 0.1), _box("stone", -0.51, 0.51, -0.5, 0.52, 1, 1.04),
        _box("metal", -0.3, 0.3, -0.25, 0.35, 1.03, 1.05, label="sink"),
        _box("dark", -0.26, 0.26, -0.2, 0.3, 1.04, 1.055, label="sink"),
        _part("cylinder", "metal", -0.03, 0.03, -0.4, -0.34, 1.04, 1.35),
        _box("metal", -0.02, 0.02, -0.38, -0.1, 1.33, 1.36),
    )),
    "stove": Piece(((0.58, 0.75), (0.58, 0.66), (0.86, 0.94)), (
        _box("white", -0.5, 0.5, -0.5, 0.46, 0, 1), _box("dark", -0.4, 0.4, 0.46, 0.48, 0.2, 0.68),
        _box("metal", -0.42, 0.42, 0.48, 0.53, 0.72, 0.75),
        *_row(5, 0, 0.4, _part("wheel", "dark", -0.4, 0.4, 0.46, 0.5, 0.82, 0.88)),
        *_row(2, 0, 0.8, _part("cylinder", "dark", -0.45, 0.45, -0.4, -0.05, 1, 1.02)),
        *_row(2, 0, 0.8, _part("cylinder", "dark", -0.45, 0.45, 0.02, 0.4, 1, 1.02)),
    ), label="oven"),
    "refrigerator": Piece(((0.6, 0.9), (0.6, 0.75), (1.5, 1.95)), (
        _box("white", -0.5, 0.5, -0.5, 0.42, 0, 1),
        *_row(2, 2, 0.98, _box("white", -0.5, 0.5, 0.42, 0.48, 0.02, 1)),
        *_row(2, 2, 0.5, _box("metal", 0.38, 0.44, 0.48, 0.54, 0.1, 0.95)),
    ), label="refrigerator"),
    "washing_machine": Piece(((0.58, 0.65), (0.58, 0.65), (0.84, 0.9)), (
        _box("white", -0.5, 0.5, -0.5, 0.46, 0, 1), _part("wheel", "metal", -0.35, 0.35, 0.46, 0.49, 0.2, 0.7),
        _part("wheel", "dark", -0.27, 0.27, 0.49, 0.51, 0.26, 0.64),
        _box("dark", -0.1, 0.4, 0.46, 0.47, 0.83, 0.93),
    ), things=0.7),
    "toilet": Piece(((0.36, 0.42), (0.62, 0.72), (0.75, 0.85)), (
        _box("white", -0.5, 0.5, -0.5, -0.2, 0.45, 0.97), _box("white", -0.53, 0.53, -0.5, -0.17, 0.97, 1),
        _part("cylinder", "white", -0.3, 0.3, -0.35, 0.3, 0, 0.42),
        _part("ball", "white", -0.5, 0.5, -0.3, 0.5, 0.2, 0.58),
        _part("cylinder", "white", -0.5, 0.5, -0.3, 0.5, 0.48, 0.56),
    ), label="toilet"),
    "bathtub": Piece(((1.5, 1.8), (0.7, 0.85), (0.5, 0.6)), _tub("white", 0.25, 0.08)),
    "shower": Piece(((0.8, 1), (0.8, 1), (1.95, 2.1)), (
        *_tub("white", 0.03, 0.06, top=0.07), *_row(2, 0, 0.05, _box("metal", -0.96, 0.96, 0.44, 0.48, 0, 1)),
        _box("metal", -0.48, 0.48, 0.44, 0.48, 0.97, 1), _part("cone", "metal", -0.1, 0.1, -0.3, -0.1, 0.9, 0.95),
        _part("cylinder", "metal", -0.02, 0.02, -0.47, -0.43, 0.4, 0.95),
        _box("accent", -0.46, -0.1, 0.45, 0.47, 0.1, 0.97),
    )),
    "washbasin": Piece(((0.45, 0.7), (0.4, 0.5), (0.82, 0.9)), (
        *_tub("white", 0.86, 0.1, 0.8), _part("cylinder", "white", -0.14, 0.14, -0.3, 0, 0, 0.8),
        _part("cylinder", "metal", -0.04, 0.04, -0.48, -0.4, 1, 1.14),
        _box("metal", -0.03, 0.03, -0.45, -0.2, 1.1, 1.14),
    ), label="sink"),
    "tv_stand": Piece(((1, 1.8), (0.38, 0.5), (0.4, 0.6)), _cupboard(3, 1), around=(("monitor", 0, -0.1, 0),)),
    "stairs": Piece(((0.9, 1.3), (2.6, 3.4), (1.9, 2.6)), (
        *(_box("wood", -0.5, 0.5, -0.5, 0.5 - i / 12, i / 12, (i + 1) / 12) for i in range(12)),
        *(_box("metal", 0.46, 0.49, 0.45 - i / 12, 0.47 - i / 12, i / 12 + 0.08, i / 12 + 0.5) for i in range(12)),
    )),
    "lectern": Piece(((0.5, 0.7), (0.4, 0.5), (1, 1.2)), (
        _box("wood", -0.4, 0.4, -0.4, 0.3, 0, 0.9), _part("slope", "wood", -0.5, 0.5, 0.5, -0.5, 0.9, 1),
    ), "floor"),
    # On the walls and the ceiling
    "picture": Piece(((0.3, 1.2), (0.02, 0.05), (0.3, 0.9)), (
        _box("any", -0.5, 0.5, -0.5, 0.3, 0, 1), _box("picture", -0.42, 0.42, 0.3, 0.5, 0.07, 0.93),
    ), "hung", height=(1.2, 1.5)),
    "mirror": Piece(((0.4, 1), (0.02, 0.04), (0.6, 1)), (
        _box("metal", -0.5, 0.5, -0.5, 0.3, 0, 1), _box("mirror", -0.46, 0.46, 0.3, 0.5, 0.03, 0.97),
    ), "hung", height=(1, 1.2)),
    "wall_clock": Piece(((0.25, 0.4), (0.03, 0.06), (0.25, 0.4)), (
        _part("wheel", "dark", -0.5, 0.5, -0.5, 0.4, 0, 1),
        _part("wheel", "white", -0.44, 0.44, 0.4, 0.5, 0.06, 0.94), _box("dark", -0.02, 0.02, 0.5, 0.6, 0.5, 0.85),
        _box("dark", 0, 0.25, 0.5, 0.6, 0.48, 0.52),
    ), "hung", "clock", height=(1.6, 2)),
    "wall_tv": Piece(((0.8, 1.5), (0.06, 0.1), (0.5, 0.85)), (
        _box("dark", -0.5, 0.5, -0.5, 0.4, 0, 1), _box("screen", -0.48, 0.48, 0.4, 0.5, 0.03, 0.97),
    ), "hung", "tv", height=(1, 1.4)),
    "board": Piece(((1.6, 3.2), (0.04, 0.06), (1, 1.25)), (
        _box("metal", -0.5, 0.5, -0.5, 0.2, 0, 1), _box("board", -0.49, 0.49, 0.2, 0.4, 0.03, 0.97),
        _box("wood", -0.5, 0.5, 0.2, 1.6, 0, 0.03),
    ), "hung", height=(0.85, 1)),
    "wall_cupboard": Piece(
        ((0.8, 2.2), (0.32, 0.38), (0.55, 0.75)), _cupboard(3, 1, 0.02), "hung", height=(1.4, 1.5)),
    "wall_shelf": Piece(((0.6, 1.4), (0.22, 0.3), (0.4, 0.5)), (
        _box("wood", -0.5, 0.5, -0.5, 0.5, 0, 0.08),
        *(replace(part, bounds=(*part.bounds[:4], 0.08, part.bounds[5] * 0.8)) for part in _BOOKS),
    ), "hung", height=(1.3, 1.6)),
    "coat_hooks": Piece(((0.7, 1.3), (0.2, 0.3), (0.9, 1.1)), (
        _box("wood", -0.5, 0.5, -0.5, -0.4, 0.92, 1),
        *_row(4, 0, 0.75, _part("cushion", "any", -0.48, 0.48, -0.4, 0.4, 0, 0.93)),
    ), "hung", height=(0.7, 0.9)),
    "radiator": Piece(
        ((0.6, 1.4), (0.08, 0.12), (0.5, 0.65)), _row(12, 0, 0.7, _box("white", -0.5, 0.5, -0.4, 0.5, 0, 1)),
        "hung", height=(0.1, 0.15)),
    "pendant": Piece(((0.3, 0.6), (0.3, 0.6), (0.5, 0.9)), (
        _part("cone", "glow", -0.5, 0.5, -0.5, 0.5, 0, 0.4),
        _part("cylinder", "dark", -0.02, 0.02, -0.02, 0.02, 0.3, 1),
    ), "ceiling"),
    "ceiling_lamp": Piece(((0.3, 0.5), (0.3, 0.5), (0.06, 0.1)), (
        _part("cylinder", "glow", -0.5, 0.5, -0.5, 0.5, 0, 1),
    ), "ceiling"),
    "light_panel": Piece(((0.6, 1.2), (0.3, 0.6), (0.03, 0.05)), (
        _box("glow", -0.5, 0.5, -0.5, 0.5, 0, 1),
    ), "ceiling"),
    # On other pieces
    "monitor": Piece(((0.5, 0.75), (0.15, 0.2), (0.4, 0.5)), (
        _box("dark", -0.5, 0.5, -0.1, 0.1, 0.2, 1), _box("screen", -0.47, 0.47, 0.1, 0.15, 0.25, 0.95),
        _box("dark", -0.05, 0.05, -0.1, 0.1, 0.02, 0.25), _box("dark", -0.2, 0.2, -0.5, 0.5, 0, 0.03),
    ), "on", "tv"),
    "laptop": Piece(((0.3, 0.38), (0.22, 0.28), (0.2, 0.25)), (
        _box("metal", -0.5, 0.5, -0.5, 0.5, 0, 0.08), _box("dark", -0.5, 0.5, -0.5, -0.45, 0.08, 1),
        _box("screen", -0.46, 0.46, -0.45, -0.43, 0.15, 0.95),
    ), "on"),
    "bottle": Piece(((0.07, 0.1), (0.07, 0.1), (0.22, 0.34)), (
        _part("cylinder", "any", -0.5, 0.5, -0.5, 0.5, 0, 0.6),
        _part("cone", "any", -0.5, 0.5, -0.5, 0.5, 0.6, 0.75),
        _part("cylinder", "any", -0.2, 0.2, -0.2, 0.2, 0.7, 1),
    ), "on", "bottle"),
    "vase": Piece(((0.12, 0.22), (0.12, 0.22), (0.2, 0.4)), (
        _part("ball", "any", -0.5, 0.5, -0.5, 0.5, 0, 0.75), _part("cone", "any", -0.3, 0.3, -0.3, 0.3, 0.6, 1),
    ), "on", "vase"),
    "bowl": Piece(((0.2, 0.32), (0.2, 0.32), (0.08, 0.14)), (
        _part("cone", "any", -0.5, 0.5, 0.5, -0.5, 1, 0),
    ), "on"),
    "books": Piece(
        ((0.2, 0.28), (0.15, 0.2), (0.08, 0.2)), _row(4, 2, 0.96, _box("any", -0.5, 0.5, -0.5, 0.5, 0, 1)),
        "on", "book"),
    "plant": Piece(((0.2, 0.35), (0.2, 0.35), (0.3, 0.5)), (
        _part("cone", "any", -0.4, 0.4, -0.4, 0.4, -0.2, 0.45),
        _part("ball", "leaf", -0.5, 0.5, -0.5, 0.5, 0.3, 1),
    ), "on", "potted plant"),
    "table_lamp": Piece(((0.2, 0.35), (0.2, 0.35), (0.35, 0.55)), (
        _part("cone", "glow", -0.5, 0.5, -0.5, 0.5, 0.5, 1),
        _part("cylinder", "metal", -0.1, 0.1, -0.1, 0.1, 0, 0.55),
    ), "on"),
    "clock": Piece(((0.15, 0.25), (0.06, 0.1), (0.12, 0.2)), (
        _box("dark", -0.5, 0.5, -0.5, 0.4, 0, 1), _box("screen", -0.4, 0.4, 0.4, 0.5, 0.15, 0.85),
    ), "on", "clock"),
    "microwave": Piece(((0.45, 0.55), (0.32, 0.4), (0.26, 0.32)), (
        _box("metal", -0.5, 0.5, -0.5, 0.46, 0, 1), _box("dark", -0.46, 0.2, 0.46, 0.49, 0.1, 0.9),
        _box("metal", 0.22, 0.26, 0.46, 0.56, 0.1, 0.9),
    ), "on", "microwave"),
    "toaster": Piece(((0.26, 0.34), (0.16, 0.2), (0.17, 0.22)), (
        _part("cushion", "metal", -0.5, 0.5, -0.5, 0.5, -0.2, 1),
        _box("dark", -0.35, 0.35, -0.05, 0.05, 0.9, 1.01),
    ), "on", "toaster"),
}  # fmt: skip
