"""A photograph's frame: its sides when it is upright, and how what was drawn on it lies in it.

Boxes, outlines, masks and maps may be of the upright picture, or of the stored one, before its EXIF entry turns it, and
of another scale. Their width and height say which, unless the picture is square or only mirrored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from datasets.tasks import DIRECTIONS

# Turns that exchange width and height: x and y change places, and then run the other way or not.
SIDEWAYS = {
    Image.Transpose.TRANSPOSE: (False, False),
    Image.Transpose.ROTATE_270: (True, False),
    Image.Transpose.TRANSVERSE: (True, True),
    Image.Transpose.ROTATE_90: (False, True),
}
_OTHER_SHAPE = 0.02  # by which the ratio of sides may differ: a camera's depth sensor is not exactly as wide


@dataclass(frozen=True)
class Frame:
    """Height and width of an upright photograph, and what makes the stored one so; None where nothing does."""

    height: int
    width: int
    turn: Image.Transpose | None = None

    def turn_of(self, across: float, down: float, domain: str = "") -> Image.Transpose | None:
        """What turns a target of this width and height with its photograph; None where it is of the upright one.

        ValueError where it can be of neither, as it has another shape, and where its values are directions, which are
        others in the turned picture; how they are depends on what their axes mean.
        """
        upright = _deviation(across, down, self.width, self.height)
        stored = _deviation(across, down, self.height, self.width) if self.turn in SIDEWAYS else np.inf
        if min(upright, stored) > _OTHER_SHAPE:
            raise ValueError(
                f"{across:g} x {down:g} pixels, another shape than its photograph's {self.width} x {self.height}"
            )
        if stored < upright and domain in DIRECTIONS:
            raise ValueError(
                "of the picture before its EXIF entry turns it, and directions cannot be turned with it; "
                "save both upright"
            )
        return self.turn if stored < upright else None

    def leaves_open(self, across: float, down: float) -> bool:
        """Whether a target of this width and height could be of the picture before its turn, and none can tell."""
        return self.turn is not None and (self.turn not in SIDEWAYS or across == down)

    def upright(self, values: np.ndarray, domain: str = "") -> np.ndarray:
        """A target (…, H, W), turned with its photograph where it is of the stored one; ValueError as of `turn_of`."""
        down, across = values.shape[-2:]
        turn = self.turn_of(across, down, domain)
        if turn is None:
            return values
        mirrors_x, mirrors_y = SIDEWAYS[turn]
        swapped = values.swapaxes(-1, -2)
        return np.ascontiguousarray(swapped[..., :: -1 if mirrors_y else 1, :: -1 if mirrors_x else 1])


def turned_boxes(boxes: np.ndarray, turn: Image.Transpose) -> np.ndarray:
    """Boxes (n, 4) as shares of a stored picture's sides, as those of the picture on its side that is made of it."""
    turned = boxes[:, [1, 0, 3, 2]]
    for is_mirrored, sides in zip(SIDEWAYS[turn], ([0, 2], [1, 3]), strict=True):
        if is_mirrored:
            turned[:, sides] = 1 - turned[:, sides[::-1]]
    return turned


def _deviation(width: float, height: float, other_width: float, other_height: float) -> float:
    """How far the ratio of sides is from another one, as a share; a pixel too much is within the allowance."""
    difference = abs(width * other_height - height * other_width)
    share = difference / (height * other_width) if height * other_width else np.inf
    is_a_pixel = difference <= max(width, height, other_width, other_height)
    return min(share, _OTHER_SHAPE) if is_a_pixel else share
