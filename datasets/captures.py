"""What a camera captures of a place, and its encoding as Taskonomy's domains.

Camera frame, as in Taskonomy's normals: x right, y up, z towards the viewer, so that a wall that faces the camera
has the normal (0, 0, 1). Depth is the distance along the ray.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from datasets.decoding import DEPTH_METRE, FLAT
from datasets.tasks import INSTANCES, NO_DEPTH, NO_NORMAL

NO_SHADING = 13


@dataclass(frozen=True)
class Capture:
    """One view. Shapes (H, W) or (H, W, 3); NaN where there is no surface, semantic id 0.

    rgb float32 in [0, 1]; depth float32 metres along the ray; normal float32 unit vectors and points float32
    metres, both in the camera frame; semantic uint8 Taskonomy ids; things uint16 as in `INSTANCES`, None where they
    are not known; exposure: by which the light was multiplied for rgb.
    """

    rgb: np.ndarray
    depth: np.ndarray
    normal: np.ndarray
    points: np.ndarray
    semantic: np.ndarray
    things: np.ndarray | None = None
    exposure: float = 1.0


def encode(capture: Capture) -> dict[str, np.ndarray]:
    """The file values of every image domain, uint8 or uint16, (H, W) or (H, W, 3)."""
    seen = ~np.isnan(capture.depth)
    rgb = to_bytes(255 * capture.rgb)
    depth = np.where(seen, np.round(DEPTH_METRE * capture.depth), NO_DEPTH)
    curvature = FLAT + np.clip(4 * principal_curvatures(capture), 1 - FLAT, FLAT)
    channels = np.concatenate([curvature, np.zeros_like(curvature[..., :1])], axis=-1)
    shading = np.where(seen, 255 * reshading(capture), NO_SHADING)
    files = {
        "rgb": rgb,
        "depth_euclidean": np.clip(depth, 0, NO_DEPTH).astype(np.uint16),
        "normal": np.where(seen[..., None], to_bytes(127.5 * (capture.normal + 1)), np.uint8(NO_NORMAL)),
        "reshading": np.repeat(to_bytes(shading)[..., None], 3, axis=-1),
        "keypoints3d": np.round(65535 * interest(capture)).astype(np.uint16),
        "edge_texture": np.round(65535 * texture_edges(rgb)).astype(np.uint16),
        "principal_curvature": np.where(seen[..., None], to_bytes(channels), np.uint8(0)),
        "segment_semantic": capture.semantic,
    }
    return files if capture.things is None else files | {INSTANCES: capture.things}


def to_bytes(values: np.ndarray) -> np.ndarray:
    """Values from 0 to 255, rounded, as uint8; 0 for NaN."""
    return np.clip(np.round(np.nan_to_num(values)), 0, 255).astype(np.uint8)


def reshading(capture: Capture) -> np.ndarray:
    """White matte geometry (H, W) in [0, 1] lit from the camera: cosine to the ray, fading over some metres."""
    cosine = -(capture.normal * capture.points).sum(axis=-1) / capture.depth
    return cosine / (1 + (capture.depth / 6) ** 2)


def principal_curvatures(capture: Capture) -> np.ndarray:
    """Larger and smaller principal curvature (H, W, 2) in 1/m, positive where the surface bulges to the viewer.

    Eigenvalues of the shape operator I⁻¹ II, with the fundamental forms I = (P_a · P_b) and II = (N_a · P_b) from
    central differences of points P and normals N along image rows and columns. Zero at the rim of holes.
    """
    points, normals = (
        np.stack([*np.gradient(values.astype(np.float64), axis=(0, 1))], axis=-2)
        for values in (capture.points, capture.normal)
    )
    first = points @ points.swapaxes(-1, -2)
    second = normals @ points.swapaxes(-1, -2)
    second = (second + second.swapaxes(-1, -2)) / 2
    is_finite = np.isfinite(first).all(axis=(-1, -2))
    first[~is_finite], second[~is_finite] = np.eye(2), 0
    first += 1e-9 * np.eye(2)
    operator = np.linalg.solve(first, second)
    mean = np.trace(operator, axis1=-2, axis2=-1) / 2
    spread = np.sqrt(np.maximum(mean**2 - np.linalg.det(operator), 0))
    return np.stack([mean + spread, mean - spread], axis=-1)


def interest(capture: Capture) -> np.ndarray:
    """How much of a 3-D key point each pixel is, (H, W) in [0, 1): zero on planes, along straight edges, in holes.

    The root of the smaller eigenvalue of the smoothed structure tensor of (normal, 2 · log depth), like the corner
    measure of Shi and Tomasi but on geometry: large where the surface turns in two directions at once, as the
    points that NARF looks for. Holes count as far away.
    """
    seen = ~np.isnan(capture.depth)
    log_depth = np.log(np.nan_to_num(capture.depth, nan=10.0))
    features = np.concatenate([np.nan_to_num(capture.normal), 2 * log_depth[..., None]], axis=-1)
    # Without this the pixel steps of an oblique edge would count as corners.
    features = ndimage.gaussian_filter(features, (1, 1, 0))
    gradients = np.gradient(features, axis=(0, 1))
    yy, yx, xx = (
        ndimage.gaussian_filter((gradients[a] * gradients[b]).sum(axis=-1), 1.5) for a, b in ((0, 0), (0, 1), (1, 1))
    )
    smaller = (yy + xx) / 2 - np.sqrt(((yy - xx) / 2) ** 2 + yx**2)
    return np.where(seen, 0.95 * np.tanh(5 * np.maximum(np.sqrt(np.maximum(smaller, 0)) - 0.006, 0)), 0)


def texture_edges(rgb: np.ndarray) -> np.ndarray:
    """Canny's edge strength without thinning, (H, W) in [0, 1]: the smoothed luminance's Sobel gradient."""
    luminance = ndimage.gaussian_filter(rgb @ np.array([0.299, 0.587, 0.114]) / 255, 1)
    strength = np.hypot(*(ndimage.sobel(luminance, axis=axis) for axis in (0, 1))) / 4
    return np.clip(1.2 * (strength - 0.001), 0, 1)
