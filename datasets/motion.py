"""Where points of one view are in the next: optical flow by depth and the two cameras' poses.

Axes of a camera, as of most data sets of videos: x right, y down, z ahead; the first pixel's centre is at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

_NEAREST = 1e-6  # ahead of a camera, in metres


@dataclass(frozen=True)
class Pinhole:
    """A camera without distortion: focal lengths and the centre, in pixels."""

    fx: float
    fy: float
    cx: float
    cy: float

    def points(self, depth: np.ndarray) -> np.ndarray:
        """What the pixels of depth in z (H, W) show, (3, H, W) in the depth's unit; NaN where nothing is known."""
        v, u = np.mgrid[: depth.shape[0], : depth.shape[1]]
        return np.stack([(u - self.cx) / self.fx, (v - self.cy) / self.fy, np.ones(depth.shape)]) * depth

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Where points (3, H, W) are in the picture, (2, H, W) in x and y; NaN where they are not ahead."""
        x, y, z = points
        z = np.where(z > _NEAREST, z, np.nan)
        return np.stack([self.fx * x / z + self.cx, self.fy * y / z + self.cy])


def moved(points: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """Points (3, H, W) in the axes of another camera; `motion` (4, 4) leads from the one's axes to the other's."""
    return np.tensordot(motion[:3, :3], points, 1) + motion[:3, 3, None, None]


def flow_to(there: np.ndarray) -> np.ndarray:
    """The flow (2, H, W) of pixels that are `there` (2, H, W) in the next picture; NaN where they have left it."""
    height, width = there.shape[1:]
    with np.errstate(invalid="ignore"):
        inside = (np.abs(there[0] - (width - 1) / 2) < width / 2) & (np.abs(there[1] - (height - 1) / 2) < height / 2)
    return np.where(inside, there - np.mgrid[:height, :width][::-1], np.nan)


def flow_by_depth(
    depth: np.ndarray, depth_next: np.ndarray, camera: Pinhole, motion: np.ndarray, tolerance: float
) -> np.ndarray:
    """The flow (2, H, W) from one map of depth in z (H, W) to the next, by a camera's `motion` (4, 4); see `moved`.

    NaN where nothing is known: no depth, out of the picture, or covered there. A point is seen where one of the
    pixels around its place, four at most, has its depth, to a share of `tolerance`: so what has moved by itself counts
    as covered.
    """
    points = moved(camera.points(depth), motion)
    there = camera.pixels(points)
    flow = flow_to(there)
    known = np.isfinite(flow[0])
    across, down = ([f(position).astype(int) for f in (np.floor, np.ceil)] for position in there[:, known].round(6))
    height, width = depth_next.shape
    seen = np.zeros(known.sum(), bool)
    for x, y in product(across, down):
        measured = depth_next[y.clip(0, height - 1), x.clip(0, width - 1)]
        with np.errstate(invalid="ignore"):
            seen |= np.abs(measured - points[2, known]) <= tolerance * points[2, known]
    known[known] = seen
    return np.where(known, flow, np.nan)
