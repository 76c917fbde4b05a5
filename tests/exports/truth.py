"""Twelve photographs with objects at every border, which all tools write and the sources have to read to the pixel."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog", "lorry")
WIDTH, HEIGHT = 40, 30


class Thing(NamedTuple):
    """An object that is a rectangle: its class, and where it begins and ends, in pixels counted from 0."""

    label: int
    left: int
    top: int
    right: int
    bottom: int

    @property
    def polygon(self) -> list[tuple[int, int]]:
        """Its corners."""
        return [
            (self.left, self.top),
            (self.right, self.top),
            (self.right, self.bottom),
            (self.left, self.bottom),
        ]


class Photograph(NamedTuple):
    """A photograph's name without the ending, its part, and what it shows."""

    name: str
    part: str
    things: tuple[Thing, ...]

    @property
    def pixels(self) -> np.ndarray:
        """Its pixels (H, W, 3) uint8, which nobody compares."""
        return np.random.default_rng(len(self.things)).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)

    def save(self, folder: Path) -> Path:
        """Write it as PNG."""
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.pixels).save(path := folder / f"{self.name}.png")
        return path

    def mask(self, thing: Thing | None = None) -> np.ndarray:
        """Where an object is, (H, W) bool; without one, the classes (H, W) uint8 from 1 on, and 0 where none is."""
        picture = np.zeros((HEIGHT, WIDTH), np.uint8)
        for each in self.things if thing is None else (thing,):
            picture[each.top : each.bottom, each.left : each.right] = each.label + 1
        return picture if thing is None else picture > 0


_W, _H = WIDTH, HEIGHT
_AT_BORDERS = (
    (0, 0, 10, 8), (_W - 10, 0, _W, 8), (0, _H - 8, 10, _H), (_W - 10, _H - 8, _W, _H), (0, 5, 7, _H - 5),
    (_W - 7, 5, _W, _H - 5), (5, 0, _W - 5, 6), (5, _H - 6, _W - 5, _H), (0, 0, _W, _H), (0, 0, 1, 1),
    (_W - 1, _H - 1, _W, _H), (1, 1, _W - 1, 11),
)  # fmt: skip
_INSIDE = (15, 12, 22, 19)
PHOTOGRAPHS = [
    Photograph(
        f"photo_{k:02}",
        "train" if k < 9 else "val",
        (Thing(k % 3, *sides), *[Thing((k + 1) % 3, *_INSIDE)] * (sides != (0, 0, _W, _H))),
    )
    for k, sides in enumerate(_AT_BORDERS)
]
