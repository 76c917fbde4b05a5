"""What tells rooms apart: the kinds of room (Places scene classes), building styles, colours and textures.

Pure data and draws from it. Sizes and textures of all kinds overlap widely on purpose: the geometry of a view depends
more on the building, the room and the camera than on the scene class, as in real buildings. Walls tend to a hue of the
kind, so that scene classes can be told from few images.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np

Interval = tuple[float, float]
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Material:
    """A surface: two albedos that `pattern` mixes, the pattern's `period` in metres, and how brightly it glows."""

    colour: Colour
    second: Colour = (0.5, 0.5, 0.5)
    pattern: str = "plain"
    period: float = 0.3
    emission: float = 0.0


@dataclass(frozen=True)
class RoomKind:
    """A scene class: its share of rooms, sizes in metres, mean number of each piece, and typical floor patterns.

    `things` are the small pieces that lie about, `confused_with` the classes whose logits come close, `hue` the
    usual hue of the walls.
    """

    share: float
    width: Interval
    depth: Interval
    furniture: dict[str, float]
    things: str
    floors: str
    confused_with: str
    hue: float


KINDS: dict[str, RoomKind] = {
    "bedroom": RoomKind(
        12, (2.4, 5.5), (2.8, 5.5),
        {"bed": 1.1, "nightstand": 1.4, "wardrobe": 0.9, "dresser": 0.6, "desk": 0.2, "rug": 0.5,
         "picture": 1.6, "mirror": 0.3, "armchair": 0.3, "floor_lamp": 0.3, "potted_tree": 0.2,
         "ceiling_lamp": 1},
        "books clock table_lamp vase bottle plant", "wood noise", "hotel_room childs_room dorm_room nursery", 0),
    "living_room": RoomKind(
        11, (2.8, 7.5), (3, 7),
        {"couch": 1, "small_couch": 0.4, "armchair": 1, "tv_stand": 0.6, "wall_tv": 0.3, "bookshelf": 0.6,
         "rug": 0.7, "picture": 2, "floor_lamp": 0.6, "potted_tree": 0.6, "dresser": 0.3, "wall_clock": 0.2,
         "pendant": 0.8},
        "books vase plant bowl laptop bottle", "wood noise", "television_room home_theater waiting_room", 0.3125),
    "kitchen": RoomKind(
        9, (2.2, 5.5), (2.2, 6),
        {"counter": 1.8, "sink_counter": 1, "stove": 1, "refrigerator": 1, "wall_cupboard": 1.6,
         "round_table": 0.4, "stool": 0.6, "wall_clock": 0.3, "picture": 0.3, "radiator": 0.3,
         "ceiling_lamp": 1},
        "microwave toaster bottle bottle bowl plant vase", "tiles checker wood",
         "galley restaurant_kitchen pantry", 0.625),
    "bathroom": RoomKind(
        9, (1.6, 4), (1.8, 4.5),
        {"toilet": 1, "washbasin": 1.2, "bathtub": 0.6, "shower": 0.5, "mirror": 1, "washing_machine": 0.2,
         "rug": 0.4, "radiator": 0.5, "stool": 0.3, "wall_cupboard": 0.2, "ceiling_lamp": 1},
        "bottle bottle vase", "tiles checker noise", "shower jacuzzi/indoor utility_room", 0.9375),
    "corridor": RoomKind(
        8, (1.2, 2.4), (3.5, 11),
        {"picture": 2, "coat_hooks": 0.6, "dresser": 0.3, "bench": 0.2, "locker": 0.5, "rug": 0.5,
         "mirror": 0.4, "potted_tree": 0.4, "radiator": 0.6, "carton": 0.4, "wall_clock": 0.2,
         "light_panel": 2},
        "vase books plant", "wood tiles noise", "elevator_lobby entrance_hall lobby", 0.25),
    "office": RoomKind(
        8, (2.6, 8), (2.8, 8),
        {"desk": 2.6, "bookshelf": 0.9, "locker": 0.4, "potted_tree": 0.5, "board": 0.4, "picture": 0.8,
         "radiator": 0.4, "carton": 0.5, "wall_clock": 0.4, "light_panel": 3},
        "laptop books bottle plant table_lamp", "noise plain", "home_office office_cubicles computer_room", 0.5625),
    "dining_room": RoomKind(
        7, (2.6, 6), (2.8, 6.5),
        {"dining_table": 1, "dresser": 0.8, "wardrobe": 0.2, "picture": 1.5, "rug": 0.4, "potted_tree": 0.5,
         "mirror": 0.2, "wall_shelf": 0.3, "wall_clock": 0.3, "pendant": 1},
        "vase bowl bottle plant", "wood tiles", "dining_hall restaurant banquet_hall", 0.875),
    "home_office": RoomKind(
        6, (2, 4.5), (2.2, 5),
        {"desk": 1.1, "bookshelf": 1.2, "wall_shelf": 0.6, "armchair": 0.4, "picture": 1.2, "rug": 0.5,
         "floor_lamp": 0.4, "dresser": 0.4, "potted_tree": 0.3, "carton": 0.3, "ceiling_lamp": 1},
        "laptop books books plant table_lamp clock", "wood noise", "office computer_room library/indoor", 0.1875),
    "staircase": RoomKind(
        5, (2.4, 5), (3.6, 6.5),
        {"stairs": 1.3, "picture": 1.2, "potted_tree": 0.4, "dresser": 0.3, "coat_hooks": 0.3, "rug": 0.3,
         "bench": 0.2, "radiator": 0.3, "pendant": 0.8},
        "vase books plant", "wood tiles plain", "corridor lobby mezzanine", 0.5),
    "closet": RoomKind(
        5, (1.4, 3.2), (1.5, 4),
        {"clothes_rail": 1.6, "wardrobe": 0.6, "rack": 0.6, "carton": 1, "mirror": 0.3, "stool": 0.2,
         "dresser": 0.3, "ceiling_lamp": 1},
        "books vase", "noise wood plain", "clothing_store dressing_room storage_room", 0.8125),
    "conference_room": RoomKind(
        4, (3.2, 7), (4, 9),
        {"meeting_table": 1, "board": 0.7, "wall_tv": 0.6, "dresser": 0.4, "potted_tree": 0.5, "picture": 0.8,
         "wall_clock": 0.4, "swivel_chair": 0.6, "light_panel": 3},
        "laptop bottle books", "noise plain wood", "conference_center office classroom", 0.125),
    "classroom": RoomKind(
        4, (3.6, 8.5), (4, 9),
        {"school_desk": 8, "board": 1.2, "lectern": 0.6, "locker": 0.5, "bookshelf": 0.6, "picture": 1,
         "wall_clock": 0.7, "radiator": 0.6, "light_panel": 4},
        "books laptop bottle", "plain checker wood", "kindergarden_classroom lecture_room conference_room", 0.4375),
    "childs_room": RoomKind(
        4, (2.2, 4.5), (2.5, 5),
        {"bed": 0.6, "bunk_bed": 0.6, "crate": 1.2, "ball": 1.3, "wall_shelf": 0.7, "dresser": 0.7,
         "desk": 0.4, "rug": 0.9, "picture": 1.5, "stool": 0.4, "pendant": 0.8},
        "books books plant table_lamp clock", "noise wood checker", "bedroom nursery playroom", 0.75),
    "storage_room": RoomKind(
        3, (1.6, 5.5), (2, 6.5),
        {"rack": 2, "carton": 4, "crate": 1.2, "locker": 0.6, "chair": 0.3, "bookshelf": 0.3,
         "washing_machine": 0.2, "light_panel": 1},
        "bottle books", "plain noise", "attic basement closet utility_room", 0.0625),
    "waiting_room": RoomKind(
        3, (2.8, 7), (3, 8),
        {"bench": 2.2, "small_couch": 0.4, "armchair": 0.8, "coffee_table": 0.8, "potted_tree": 0.9,
         "wall_tv": 0.5, "picture": 1.6, "wall_clock": 0.5, "light_panel": 2},
        "books vase plant", "noise tiles plain", "lobby reception hospital_room", 0.375),
    "utility_room": RoomKind(
        3, (1.6, 4), (1.8, 4.5),
        {"washing_machine": 1.6, "sink_counter": 0.6, "rack": 0.7, "wall_cupboard": 0.7, "crate": 0.8,
         "carton": 0.6, "clothes_rail": 0.3, "radiator": 0.3, "light_panel": 1},
        "bottle bottle bowl", "tiles plain checker", "laundromat storage_room pantry", 0.6875),
}  # fmt: skip


@dataclass(frozen=True)
class Role:
    """What a material role may look like: intervals of hue, saturation, value and period, and its patterns."""

    hue: Interval
    saturation: Interval
    value: Interval
    patterns: str = "plain"
    period: Interval = (0.05, 0.3)
    emission: Interval = (0.0, 0.0)


_ANY_HUE = (0.0, 1.0)
ROLES = {
    "wall": Role(_ANY_HUE, (0.0, 0.4), (0.45, 0.95), "plain stripes noise brick tiles wood dots", (0.1, 0.6)),
    "floor": Role((0.02, 0.14), (0.05, 0.6), (0.15, 0.8), "wood tiles checker noise plain stripes", (0.12, 0.6)),
    "ceiling": Role((0.05, 0.15), (0.0, 0.12), (0.7, 0.95), "plain plain plain tiles wood", (0.3, 0.7)),
    "wood": Role((0.04, 0.12), (0.2, 0.7), (0.15, 0.8), "wood plain", (0.08, 0.3)),
    "fabric": Role(_ANY_HUE, (0.05, 0.6), (0.12, 0.85), "plain plain stripes checker noise dots", (0.05, 0.25)),
    "accent": Role(_ANY_HUE, (0.2, 0.85), (0.25, 0.9), "plain stripes checker noise dots", (0.06, 0.4)),
    "any": Role(_ANY_HUE, (0.0, 0.8), (0.15, 0.95), "plain plain plain stripes checker dots", (0.04, 0.2)),
    "metal": Role((0.55, 0.65), (0.0, 0.1), (0.3, 0.8)),
    "white": Role((0.05, 0.6), (0.0, 0.1), (0.7, 0.95)),
    "dark": Role((0.5, 0.7), (0.0, 0.3), (0.02, 0.12)),
    "stone": Role((0.0, 0.6), (0.0, 0.25), (0.12, 0.85), "noise plain", (0.03, 0.1)),
    "leaf": Role((0.22, 0.38), (0.4, 0.85), (0.15, 0.5), "noise", (0.04, 0.1)),
    "picture": Role(_ANY_HUE, (0.1, 0.9), (0.2, 0.95), "noise checker stripes dots", (0.08, 0.4)),
    "mirror": Role((0.5, 0.6), (0.0, 0.1), (0.55, 0.8)),
    "board": Role((0.3, 0.5), (0.0, 0.45), (0.06, 0.95)),
    "screen": Role((0.5, 0.7), (0.1, 0.6), (0.03, 0.3), "plain checker noise", (0.1, 0.3), (0.0, 0.5)),
    "glow": Role((0.08, 0.16), (0.05, 0.3), (0.85, 1.0), emission=(2.0, 4.0)),
}


@dataclass(frozen=True)
class Style:
    """What the rooms of one building have in common."""

    hue: float  # of walls and textiles
    wood: Interval  # value of woods
    height: float  # of ceilings, in metres
    daylight: float  # strength of what comes through windows
    texture: float  # share of surfaces that are textured

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Style:
        """A random style."""
        dark = rng.uniform(0.12, 0.5)
        wood = (dark, dark + 0.3)
        return cls(rng.random(), wood, rng.uniform(2.3, 3.1), rng.uniform(0.5, 1.5), rng.uniform(0.15, 0.5))


class Palette:
    """The materials of a room by role, drawn when first asked for; `wood2` is another draw of the role `wood`."""

    def __init__(self, style: Style, kind: RoomKind, lit: bool, rng: np.random.Generator) -> None:
        self._style, self._kind, self._lit, self._rng = style, kind, lit, rng
        self._materials: dict[str, Material] = {}

    def __getitem__(self, role: str) -> Material:
        if role == "any":  # a new one for every part
            return self._draw(role)
        if role not in self._materials:
            self._materials[role] = self._draw(role.rstrip("2"))
        return self._materials[role]

    def variant(self) -> Palette:
        """The palette of one piece in the room: shares most materials with it, others are its own."""
        palette = Palette(self._style, self._kind, self._lit, self._rng)
        shared = [role for role in ROLES if role != "picture" and self._rng.random() < 0.65]
        palette._materials = {role: self[role] for role in shared}
        return palette

    def _draw(self, name: str) -> Material:
        rng, role, style = self._rng, ROLES[name], self._style
        patterns = self._kind.floors if name == "floor" and rng.random() < 0.6 else role.patterns
        textured = rng.random() < style.texture
        pattern = str(rng.choice(patterns.split())) if textured else "plain"
        hue = rng.uniform(*role.hue)
        saturation = rng.uniform(*role.saturation)
        if name == "wall" and rng.random() < 0.8:
            hue, saturation = rng.normal(self._kind.hue, 0.02) % 1, rng.uniform(0.2, 0.5)
        elif role.hue == _ANY_HUE and rng.random() < 0.5:
            hue = rng.normal(style.hue, 0.07) % 1
        value = rng.uniform(*(style.wood if name == "wood" else role.value))
        second_hue = rng.normal(hue, 0.04 if name in ("wood", "floor", "wall") else 0.2) % 1
        second_value = value * rng.uniform(0.35, 0.85) if value > 0.4 else min(1.0, value * rng.uniform(1.2, 2.2))
        return Material(
            colorsys.hsv_to_rgb(hue, saturation, value),
            colorsys.hsv_to_rgb(second_hue, saturation * rng.uniform(0.4, 1.2) % 1, second_value),
            pattern,
            rng.uniform(*role.period),
            rng.uniform(*role.emission) if self._lit or name == "screen" else 0.0,
        )
