"""Procedural indoor rooms: shell, furniture, materials and lights, put together to a scene.

A room is a box with doors and windows. Pieces of furniture (`furniture.PIECES`) stand along its walls, on the floor
or on other pieces, or hang on walls and ceiling. The origin is the floor's centre. A wall's own frame is the room's,
turned about z such that the wall lies at the far -y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datasets.rooms.furniture import PIECES, Piece
from datasets.rooms.kinds import KINDS, Material, Palette, Style
from datasets.rooms.scenes import Light, Scene, SceneBuilder, turn

WALL_THICKNESS = 0.15


@dataclass(frozen=True)
class Room:
    """A furnished room: its Places class, size (width, depth, height) in metres, scene, and where things stand.

    `blocked` (N, 4) holds the rectangles (x0, x1, y0, y1) of the floor where no camera can be.
    """

    kind: str
    size: tuple[float, float, float]
    scene: Scene
    blocked: np.ndarray


@dataclass(frozen=True)
class _Opening:
    """A hole in a wall: bounds along the wall and in height, in metres."""

    u0: float
    u1: float
    z0: float
    z1: float
    is_door: bool
    is_open: bool


def make_room(kind: str, style: Style, rng: np.random.Generator) -> Room:
    """A random room of a kind in a building's style."""
    spec = KINDS[kind]
    width, depth = (low + (high - low) * rng.beta(1.1, 1.8) for low, high in (spec.width, spec.depth))
    height = max(2.2, style.height + rng.normal(0, 0.25))
    lit = bool(rng.random() < 0.8)
    maker = _RoomMaker((width, depth, height), Palette(style, spec, lit, rng), lit, rng)
    maker.add_shell(daylight=style.daylight * rng.gamma(2, 0.5))
    maker.furnish(spec.furniture, spec.things.split(), clutter=rng.uniform(0.5, 2.3))
    ambient = rng.uniform(0.1, 0.35) * (0.5 + 0.5 * maker.lamp_colour)
    scene = maker.mesh.build(tuple(maker.lights), tuple(ambient))
    return Room(kind, maker.size, scene, np.array(maker.blocked).reshape(-1, 4))


class _RoomMaker:
    """The state of a room while it is put together."""

    def __init__(self, size: tuple[float, float, float], palette: Palette, lit: bool, rng: np.random.Generator) -> None:
        self.size, self.palette, self.lit, self.rng = size, palette, lit, rng
        self.mesh = SceneBuilder()
        self.lights: list[Light] = []
        self.blocked: list[tuple[float, float, float, float]] = []
        self._doorways: list[tuple[float, float, float, float]] = []  # kept free of furniture, not of cameras
        self._walls: list[list[tuple[float, float]]] = [[], [], [], []]  # stretches that openings and pieces take
        warmth = rng.uniform(-0.2, 1)
        self.lamp_colour = np.array([1.0, 1 - 0.25 * warmth, 1 - 0.6 * warmth])
        self._facing = int(rng.integers(4))  # how free-standing pieces are turned, in quarter turns

    def _wall(self, side: int) -> tuple[float, float, float]:
        """Yaw, half length and distance from the centre of a wall."""
        width, depth, _ = self.size
        along, across = (width, depth) if side % 2 == 0 else (depth, width)
        return side * np.pi / 2, along / 2, across / 2

    def add_shell(self, daylight: float) -> None:
        """Floor, ceiling, walls with openings, and sometimes a closed-off corner or a sloping ceiling."""
        width, depth, height = self.size
        x, y, thick = width / 2, depth / 2, WALL_THICKNESS
        self.mesh.add("box", (-x - thick, x + thick, -y - thick, y + thick, -thick, 0), self.palette["floor"])
        outer = (-x - thick, x + thick, -y - thick, y + thick, height, height + thick)
        self.mesh.add("box", outer, self.palette["ceiling"])
        accent = int(self.rng.integers(12))  # the wall, if any, that is painted differently
        door = int(self.rng.integers(4))
        for side in range(4):
            openings = self._draw_openings(side, has_door=side == door or self.rng.random() < 0.12)
            self._add_wall(side, openings, self.palette["wall2" if side == accent else "wall"])
            for opening in openings:
                self._add_opening(side, opening, daylight)
        side = int(self.rng.integers(4))
        yaw, half, far = self._wall(side)
        if min(width, depth) > 2.6 and self.rng.random() < 0.25 and not self._walls[side]:
            along, across = self.rng.uniform(0.4, 1, 2)
            corner = (half - along, half, -far, -far + across, 0, height)
            self.mesh.add("box", corner, self.palette["wall"], yaw=yaw)
            self.blocked.append(_footprint(corner, yaw))
        elif height > 2.5 and self.rng.random() < 0.2 and not self._walls[side]:
            across, down = self.rng.uniform(0.6, 1.4), self.rng.uniform(0.5, 0.9)
            slope = (-half, half, -far, -far + across, height - down, height)
            self.mesh.add("slope", slope, self.palette["ceiling"], yaw=yaw)

    def _draw_openings(self, side: int, has_door: bool) -> list[_Opening]:
        """A door, a window or nothing."""
        rng = self.rng
        half, height = self._wall(side)[1], self.size[2]
        if has_door:
            start = rng.uniform(-half + 0.1, half - 0.95)
            return [_Opening(start, start + 0.85, 0, 2.05, is_door=True, is_open=rng.random() < 0.25)]
        if rng.random() < 0.42:
            sill, top = rng.choice([0.1, 0.8, 0.95, 1.3]), min(height - 0.15, rng.uniform(1.9, 2.5))
            width = min(rng.uniform(0.6, 2.4), 2 * half - 0.3)
            start = rng.uniform(-half + 0.1, half - 0.1 - width)
            return [_Opening(start, start + width, sill, top, is_door=False, is_open=True)]
        return []

    def _add_wall(self, side: int, openings: list[_Opening], material: Material) -> None:
        yaw, half, far = self._wall(side)
        height, end = self.size[2], half + WALL_THICKNESS
        panels: list[tuple[float, ...]] = []
        start = -end
        for hole in openings:
            panels.append((start, hole.u0, 0, height))
            panels += [(hole.u0, hole.u1, z0, z1) for z0, z1 in ((0, hole.z0), (hole.z1, height))]
            start = hole.u1
        for u0, u1, z0, z1 in [*panels, (start, end, 0, height)]:
            if z1 > z0:
                self.mesh.add("box", (u0, u1, -far - WALL_THICKNESS, -far, z0, z1), material, yaw=yaw)

    def _add_opening(self, side: int, hole: _Opening, daylight: float) -> None:
        """Frame and filling of a door or window, and the daylight that falls through it."""
        yaw, _, far = self._wall(side)
        self._walls[side].append((hole.u0 - 0.1, hole.u1 + 0.1))
        width, middle = 0.06, (hole.u0 + hole.u1) / 2
        bars = [(hole.u0 - 0.04, hole.u0 + 0.02), (hole.u1 - 0.02, hole.u1 + 0.04)]
        rails = [(hole.z1 - 0.02, hole.z1 + 0.04)]
        if not hole.is_door:
            bars += [(middle - 0.02, middle + 0.02)] * (hole.u1 - hole.u0 > 1)
            rails += [(hole.z0 - 0.04, hole.z0 + 0.02)]
        frame = [(u0, u1, hole.z0, hole.z1) for u0, u1 in bars]
        frame += [(hole.u0 - 0.04, hole.u1 + 0.04, z0, z1) for z0, z1 in rails]
        for u0, u1, z0, z1 in frame:
            self.mesh.add("box", (u0, u1, -far - width, -far + 0.02, z0, z1), self.palette["white"], yaw=yaw)
        if hole.is_door:
            self._doorways.append(_footprint((hole.u0, hole.u1, -far, -far + 0.7), yaw))
        if not hole.is_open:
            leaf = (hole.u0, hole.u1, -far - 0.09, -far - 0.04, 0, hole.z1)
            self.mesh.add("box", leaf, self.palette["wood2"], yaw=yaw)
            handle = (hole.u0 + 0.06, hole.u0 + 0.18, -far - 0.04, -far + 0.02, 1, 1.03)
            self.mesh.add("box", handle, self.palette["metal"], yaw=yaw)
            return
        if not hole.is_door and self.rng.random() < 0.5:
            for u0, u1 in ((hole.u0 - 0.3, hole.u0 + 0.1), (hole.u1 - 0.1, hole.u1 + 0.3)):
                curtain = (u0, u1, -far + 0.02, -far + 0.1, max(0.05, hole.z0 - 0.3), hole.z1 + 0.1)
                self.mesh.add("cushion", curtain, self.palette["fabric"], yaw=yaw)
        centre = turn(np.array([[middle, -far + 0.05, (hole.z0 + hole.z1) / 2]]), yaw)[0]
        extent = np.abs(turn(np.array([[hole.u1 - hole.u0, 0, hole.z1 - hole.z0]]), yaw)[0])
        area = (hole.u1 - hole.u0) * (hole.z1 - hole.z0)
        self.lights.append(Light(tuple(centre), tuple(extent), tuple(daylight * area * np.array([0.9, 1, 1.15]))))

    def furnish(self, furniture: dict[str, float], things: list[str], clutter: float) -> None:
        """Place pieces until their numbers are reached or the room is full; `clutter` scales the optional ones."""
        for name, mean in furniture.items():
            piece = PIECES[name]
            if piece.place == "ceiling":
                self._add_lamps(piece, max(1, self.rng.poisson(mean)))
                continue
            count = int(mean) if mean >= 1 else 0
            count += self.rng.poisson((mean - count) * clutter)
            for _ in range(count):
                self._place(piece, things, clutter)

    def _place(self, piece: Piece, things: list[str], clutter: float) -> None:
        """Put a piece at the first of some random places that is free; leave it out if none is."""
        size = self._draw_size(piece)
        for _ in range(30):
            spot = self._floor_spot(size) if piece.place == "floor" else self._wall_spot(piece, size)
            if spot is not None:
                self._add(piece, size, *spot)
                self._add_around(piece, size, *spot)
                self._add_things(piece, size, *spot, things, clutter)
                return

    def _floor_spot(self, size: np.ndarray) -> tuple[float, np.ndarray] | None:
        """A random place (yaw, origin) on the floor, rather in the middle; None if it is not free."""
        yaw = (self._facing + 2 * self.rng.integers(2)) * np.pi / 2 + self.rng.normal(0, 0.06)
        origin = np.array([*(self.rng.beta(1.6, 1.6, 2) - 0.5) * self.size[:2], 0])
        return (yaw, origin) if self._claim(size, yaw, origin) else None

    def _wall_spot(self, piece: Piece, size: np.ndarray) -> tuple[float, np.ndarray] | None:
        """A random place (yaw, origin) at or on a wall; None if it is not free."""
        side = int(self.rng.integers(4))
        yaw, half, far = self._wall(side)
        room = half - size[0] / 2 - 0.02
        if room < 0:
            return None
        u, z = self.rng.uniform(-room, room), self.rng.uniform(*piece.height)
        stretch = (u - size[0] / 2, u + size[0] / 2)
        # Tall and hung pieces keep clear of openings and of each other; low ones may stand below.
        is_high = size[2] + z > 0.95
        if is_high and any(_overlap(stretch, taken) for taken in self._walls[side]):
            return None
        origin = turn(np.array([[u, -far + size[1] / 2 + 0.005, z]]), yaw)[0]
        if piece.place != "hung" and not self._claim(size, yaw, origin):
            return None
        if is_high:
            self._walls[side].append(stretch)
        return yaw, origin

    def _draw_size(self, piece: Piece) -> np.ndarray:
        return np.array([self.rng.uniform(*interval) for interval in piece.size])

    def _claim(self, size: np.ndarray, yaw: float, origin: np.ndarray) -> bool:
        """Take the floor under a piece if it lies in the room and is free; flat pieces (rugs) need no floor."""
        half = size / 2
        area = _footprint((-half[0], half[0], -half[1], half[1]), yaw, origin)
        width, depth, height = self.size
        if max(-area[0], area[1]) > width / 2 or max(-area[2], area[3]) > depth / 2 or size[2] > height - 0.05:
            return False
        if size[2] < 0.05:
            return True
        taken = self.blocked + self._doorways
        if any(_overlap(area[:2], other[:2]) and _overlap(area[2:], other[2:]) for other in taken):
            return False
        self.blocked.append(area)
        return True

    def _add(self, piece: Piece, size: np.ndarray, yaw: float, origin: np.ndarray) -> None:
        palette = self.palette.variant()
        of_part = piece.thing_of_part()
        numbers = (*self.mesh.new_things(max(of_part, default=-1) + 1), -1)
        for part, thing in zip(piece.parts, of_part, strict=True):
            bounds = np.reshape(part.bounds, (3, 2)) * size[:, None]
            label = part.label or piece.label
            self.mesh.add(part.shape, bounds, palette[part.material], label, yaw, origin, numbers[thing])

    def _add_around(self, piece: Piece, size: np.ndarray, yaw: float, origin: np.ndarray) -> None:
        for name, x, y, turns in piece.around:
            other = PIECES[name]
            other_size = self._draw_size(other)
            z = size[2] if other.place == "on" else 0
            position = turn(np.array([[x * size[0], y * size[1], z]]), yaw)[0] + origin
            other_yaw = yaw + turns * np.pi / 2 + self.rng.normal(0, 0.12)
            if self.rng.random() < 0.9 and (z or self._claim(other_size, other_yaw, position)):
                self._add(other, other_size, other_yaw, position)

    def _add_things(
        self, piece: Piece, size: np.ndarray, yaw: float, origin: np.ndarray, names: list[str], clutter: float
    ) -> None:
        """Stand small things side by side on top of a piece, as many as fit."""
        things = [PIECES[str(name)] for name in self.rng.choice(names, self.rng.poisson(piece.things * clutter))]
        sizes = [self._draw_size(thing) for thing in things]
        ends = np.cumsum([0, *(thing_size[0] for thing_size in sizes)])
        ends = ends[ends <= size[0]]
        gap = (size[0] - ends[-1]) / len(ends)
        top = max(part.bounds[5] for part in piece.parts) * size[2]
        for i, (thing, thing_size) in enumerate(zip(things[: len(ends) - 1], sizes, strict=False)):
            x = (ends[i] + ends[i + 1] - size[0]) / 2 + (i + 1) * gap
            y = self.rng.uniform(-0.5, 0.5) * max(0, size[1] - thing_size[1])
            position = turn(np.array([[x, y, top]]), yaw)[0] + origin
            self._add(thing, thing_size, yaw + self.rng.normal(0, 0.15), position)

    def _add_lamps(self, piece: Piece, count: int) -> None:
        """Hang lamps in a row along the room, each with its light just below."""
        width, depth, height = self.size
        size = self._draw_size(piece)
        intensity = self.rng.uniform(0.8, 3) / count
        shift = self.rng.uniform(-0.2, 0.2, 2)
        for i in range(count):
            x, y = shift + ([(i + 0.5) / count - 0.5, 0] if width > depth else [0, (i + 0.5) / count - 0.5])
            origin = np.array([x * width, y * depth, height - size[2]])
            self._add(piece, size, 0, origin)
            if self.lit:
                below = tuple(origin - [0, 0, 0.05])
                self.lights.append(Light(below, (size[0], size[1], 0), tuple(intensity * self.lamp_colour)))


def _footprint(
    bounds: tuple[float, ...], yaw: float, origin: tuple[float, ...] | np.ndarray = (0.0, 0.0, 0.0)
) -> tuple[float, float, float, float]:
    """The upright rectangle x0, x1, y0, y1 around bounds that are turned and moved."""
    corners = np.array([[x, y, 0] for x in bounds[:2] for y in bounds[2:4]])
    low, high = (extreme(turn(corners, yaw) + origin, axis=0) for extreme in (np.min, np.max))
    return low[0], high[0], low[1], high[1]


def _overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
