"""Files that belong together by the numbers that they are called, such as two cameras' times of exposure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np


def next_frame(cell: str) -> str:
    """The file of the next frame of a video: the last number in its name is one more. The same cell without a number.

    >>> next_frame("alley_1/frame_0009.png")
    'alley_1/frame_0010.png'
    """
    path = PurePosixPath(cell)
    name = re.sub(r"(\d+)(\D*)$", lambda match: f"{int(match[1]) + 1:0{len(match[1])}}{match[2]}", path.stem)
    return path.with_name(name + path.suffix).as_posix()


def by_numbers(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts names by the numbers in them: `2.png` before `10.png`.

    >>> sorted(["10.png", "2.png"], key=by_numbers)
    ['2.png', '10.png']
    """
    pieces = re.split(r"(\d+)", name)
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces]


def nearest_pairs(first: Sequence[float], second: Sequence[float], within: float) -> dict[int, int]:
    """Which of the second numbers belongs to which of the first, as positions: the nearest to each other come first.

    A number belongs to one other at most, and none to one further away than `within`: as `associate.py` of the TUM
    RGB-D benchmark has it (Sturm et al. 2012).

    >>> nearest_pairs([1.00, 1.03], [0.98, 1.02, 1.05], 0.02)
    {1: 1, 0: 0}
    """
    order = np.argsort(second, kind="stable")
    ends = np.asarray(second, np.float64)[order]
    slack = within * (1 + 1e-9) + np.spacing(np.abs([*first, *second, 0.0]).max())  # of rounding
    candidates = [
        (abs(number - ends[at]), i, int(order[at]))
        for i, number in enumerate(first)
        for at in range(np.searchsorted(ends, number - slack), np.searchsorted(ends, number + slack, "right"))
    ]
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(candidates):
        if i not in pairs and j not in taken:
            pairs[i] = j
            taken.add(j)
    return pairs
