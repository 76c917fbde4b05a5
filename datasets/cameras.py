"""What a camera's numbers make of maps of distances: depth in z of distances along the rays, or of disparities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

RAY, Z, DISPARITY = DISTANCES = ("ray", "z", "disparity")


@dataclass(frozen=True)
class Camera:
    """What the maps of a data set hold, and the camera that they are of.

    Args:
        distance: `ray`, the distance from the camera's centre; `disparity`, in pixels; or `z`, what all become that
            have the numbers for it.
        intrinsics: fx, fy, cx and cy in pixels of the maps, the first pixel's centre at 0; empty where not known.
        baseline: between the two cameras of disparities, in metres.

    ValueError where they are not the numbers of a camera.
    """

    distance: str
    intrinsics: tuple[float, ...] = ()
    baseline: float | None = None

    def __post_init__(self) -> None:
        if self.distance not in DISTANCES:
            raise ValueError(f"distance {self.distance!r} is not one of {', '.join(DISTANCES)}")
        if len(self.intrinsics) not in (0, 4) or not all(map(math.isfinite, self.intrinsics)):
            raise ValueError("--intrinsics are four numbers: fx fy cx cy")
        if self.intrinsics and min(self.intrinsics[:2]) <= 0:
            raise ValueError("--intrinsics: fx and fy are above 0")
        is_stereo = self.distance == DISPARITY
        if is_stereo and not (self.intrinsics and self.baseline):
            raise ValueError("--distance disparity needs --intrinsics fx fy cx cy, of which fx is read, and --baseline")
        if (self.baseline is not None and not is_stereo) or (self.intrinsics and self.distance == Z):
            raise ValueError(f"--distance {self.distance} has no use for --intrinsics or --baseline; omit them")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Camera:
        """From what JSON makes of one; ValueError, KeyError or TypeError where it is none."""
        baseline = content["baseline"]
        numbers = tuple(map(float, content["intrinsics"]))
        return cls(str(content["distance"]), numbers, None if baseline is None else float(baseline))

    def depth(self, values: np.ndarray) -> np.ndarray:
        """Depth in z (1, H, W), in metres, of distances or disparities; NaN where a disparity is of no surface.

        A ray through the pixel (u, v) goes on by sqrt(1 + ((u - cx) / fx)² + ((v - cy) / fy)²) for 1 in z, and
        depth is fx · baseline / disparity. Without intrinsics distances along the rays stay what they are.
        """
        if self.distance == DISPARITY:
            assert self.baseline is not None
            shown = values > 0
            return np.divide(self.intrinsics[0] * self.baseline, values, where=shown, out=np.full(values.shape, np.nan))
        if not self.intrinsics:
            return values
        fx, fy, cx, cy = self.intrinsics
        height, width = values.shape[-2:]
        x, y = (np.arange(width) - cx) / fx, (np.arange(height) - cy) / fy
        return values / np.sqrt(1 + x**2 + y[:, None] ** 2)
