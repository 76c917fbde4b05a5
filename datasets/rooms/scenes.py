"""A scene as one triangle mesh, put together from primitives, with what each face is of.

Coordinates are metres, z up. Semantic ids are Taskonomy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import trimesh
from numpy.typing import ArrayLike

from datasets.rooms.kinds import Colour, Material
from datasets.sources.taskonomy import SEGMENTS


@dataclass(frozen=True)
class Light:
    """A box-shaped lamp without a body: centre and extent (x, y, z) in metres, radiant intensity per colour."""

    position: tuple[float, float, float]
    extent: tuple[float, float, float]
    intensity: Colour


@dataclass(frozen=True)
class Scene:
    """A triangle mesh with what each face is.

    vertices (V, 3) float64, faces (F, 3) int64, material (F,) int64 into `materials`, semantic (F,) uint8,
    tangent (F, 2) float64: the horizontal direction in which textures of horizontal faces run; thing (F,) int64: the
    number of the thing that a face is of, -1 for what is none (walls, cupboards). Rays that hit
    nothing see the colour `sky`, and `ambient` light reaches every surface that is not close to another.
    """

    vertices: np.ndarray
    faces: np.ndarray
    material: np.ndarray
    semantic: np.ndarray
    tangent: np.ndarray
    thing: np.ndarray
    materials: tuple[Material, ...]
    lights: tuple[Light, ...]
    ambient: Colour = (0.3, 0.3, 0.3)
    sky: Colour = (4.0, 4.5, 5.0)


class SceneBuilder:
    """Collects primitives and joins them to a `Scene`."""

    def __init__(self) -> None:
        self._vertices: list[np.ndarray] = []
        self._faces: list[np.ndarray] = []
        self._attributes: list[tuple[int, int, int, float, int]] = []
        self._materials: dict[Material, int] = {}
        self._n_vertices = 0
        self._n_things = 0

    def new_things(self, n: int) -> range:
        """Numbers for n more things."""
        self._n_things += n
        return range(self._n_things - n, self._n_things)

    def add(
        self,
        shape: str,
        bounds: ArrayLike,
        material: Material,
        label: str = "background",
        yaw: float = 0.0,
        origin: ArrayLike = (0.0, 0.0, 0.0),
        thing: int = -1,
    ) -> None:
        """Add `shape` filling `bounds` (x0, x1, y0, y1, z0, z1), turned by `yaw` radians and moved to `origin`.

        `thing` is its number among the things, -1 for none.
        """
        low, high = np.reshape(bounds, (3, 2)).T
        unit, faces = _unit_shape(shape)
        vertices = turn((unit + 0.5) * (high - low) + low, yaw) + origin
        index = self._materials.setdefault(material, len(self._materials))
        self._attributes.append((len(faces), index, SEGMENTS.names.index(label), yaw, thing))
        self._vertices.append(vertices)
        self._faces.append(faces + self._n_vertices)
        self._n_vertices += len(vertices)

    def build(self, lights: tuple[Light, ...] = (), ambient: Colour = Scene.ambient) -> Scene:
        """The scene of everything added so far."""
        counts, material, semantic, yaw, thing = (np.array(column) for column in zip(*self._attributes, strict=True))
        yaw = np.repeat(yaw, counts)
        return Scene(
            np.concatenate(self._vertices),
            np.concatenate(self._faces),
            np.repeat(material, counts),
            np.repeat(semantic, counts).astype(np.uint8),
            np.stack([np.cos(yaw), np.sin(yaw)], axis=1),
            np.repeat(thing, counts),
            tuple(self._materials),
            lights,
            ambient,
        )


def turn(points: np.ndarray, yaw: float) -> np.ndarray:
    """Points (N, 3) turned by `yaw` radians about the vertical axis, counter-clockwise seen from above."""
    x, y, z = points.T
    return np.stack([np.cos(yaw) * x - np.sin(yaw) * y, np.sin(yaw) * x + np.cos(yaw) * y, z], axis=1)


@cache
def _unit_shape(shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a primitive that fills the cube from -0.5 to 0.5."""
    if shape in ("ball", "cushion"):
        mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.5)
        # A cushion is a superellipsoid: the ball with its vertices drawn towards the cube.
        power = 0.55 if shape == "cushion" else 1.0
        return np.sign(mesh.vertices) * np.abs(2 * mesh.vertices) ** power / 2, np.array(mesh.faces)
    if shape in ("cylinder", "cone", "wheel"):
        mesh = trimesh.creation.cylinder(radius=0.5, height=1, sections=20)
        vertices = np.array(mesh.vertices)
        if shape == "cone":  # cut off at half its height
            vertices[:, :2] *= np.where(vertices[:, 2:] > 0, 0.5, 1.0)
        return (vertices[:, [0, 2, 1]] if shape == "wheel" else vertices), np.array(mesh.faces)
    mesh = trimesh.creation.box(extents=(1, 1, 1))
    vertices = np.array(mesh.vertices)
    if shape == "slope":  # the lower front edge drawn up and back: what is left lies under a roof
        vertices[(vertices[:, 1] > 0) & (vertices[:, 2] < 0), 1] = -0.5
    return vertices, np.array(mesh.faces)
