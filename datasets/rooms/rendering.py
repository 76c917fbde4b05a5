"""Views of a scene by ray casting.

Normals always point to the side that is seen, and depth is the distance along the ray. Depth, normals and segmentation
come from the same rays, one through each pixel's centre; where a ray meets nothing there is no surface in any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import trimesh

from datasets.captures import Capture
from datasets.classes import INSTANCES_OF_A_CLASS
from datasets.motion import Pinhole, flow_to
from datasets.rooms.kinds import Material
from datasets.rooms.scenes import Light, Scene
from datasets.sources.taskonomy import SEGMENTS

_EPSILON = 1e-4  # metres by which secondary rays start off the surface
_COVERED = 2e-3  # share of a distance by which what covers a point is nearer; positions are of single precision
_NEAR = 0.05  # metres ahead of the camera, nearer than which nothing is drawn into a picture
LEAST_SIDE, LEAST_SEEN = 1 / 24, 0.4  # of the picture, and of a thing's box, for it to be an instance


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: position in metres; yaw (0 looks along +x), pitch (up is positive) and fov in radians."""

    position: tuple[float, float, float]
    yaw: float
    pitch: float
    fov: float

    def axes(self) -> np.ndarray:
        """The camera frame's x, y and z axis in the room's frame, as rows (3, 3)."""
        ahead = np.array([np.cos(self.yaw), np.sin(self.yaw), 0])
        right = np.array([ahead[1], -ahead[0], 0])
        back = -np.cos(self.pitch) * ahead - [0, 0, np.sin(self.pitch)]
        return np.array([right, np.cross(back, right), back])

    def rays(self, size: int) -> np.ndarray:
        """Unit directions (size, size, 3) in the room's frame through the pixel centres of a square image."""
        steps = np.tan(self.fov / 2) * ((2 * np.arange(size) + 1) / size - 1)
        x, y = np.meshgrid(steps, -steps)
        directions = np.stack([x, y, -np.ones_like(x)], axis=-1) @ self.axes()
        return directions / np.linalg.norm(directions, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Hits:
    """What N rays meet: face or -1 (N,), distance or inf (N,), points and normals to the seen side (N, 3)."""

    face: np.ndarray
    distance: np.ndarray
    points: np.ndarray
    normals: np.ndarray


class RayCaster:
    """A scene made ready for rays."""

    def __init__(self, scene: Scene) -> None:
        from trimesh.ray.ray_pyembree import RayMeshIntersector  # needs embreex, which not every system has

        self.scene = scene
        corners = scene.vertices[scene.faces]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        self._normals = np.divide(normals, lengths, out=np.zeros_like(normals), where=lengths > 0)
        self._offsets = (self._normals * corners[:, 0]).sum(axis=1)
        mesh = trimesh.Trimesh(scene.vertices, scene.faces, process=False)
        self._range = 2 * mesh.scale
        self._intersector = RayMeshIntersector(mesh)
        self.textures = _Textures(scene, self._normals)

    def cast(self, origins: np.ndarray, directions: np.ndarray) -> Hits:
        """The first face along each ray; origins and unit directions (N, 3) float64.

        Embree finds the face, in single precision; the distance is that to the face's plane, in double.
        """
        face = self._intersector.intersects_first(origins, directions)
        normals = self._normals[face]
        facing = (normals * directions).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = (self._offsets[face] - (normals * origins).sum(axis=1)) / facing
        # A ray that grazes a face's plane may be put anywhere along it: count it as a miss.
        hit = (face >= 0) & (distance > 0) & (distance < self._range)
        distance = np.where(hit, distance, np.inf)
        points = origins + np.where(hit, distance, 0)[:, None] * directions
        normals = np.where(facing[:, None] > 0, -normals, normals)
        return Hits(np.where(hit, face, -1), distance, points, normals)


def render(caster: RayCaster, camera: Camera, size: int, rng: np.random.Generator) -> Capture:
    """Render a square view of `size` pixels; `rng` draws light samples, exposure and sensor noise."""
    directions = camera.rays(size).reshape(-1, 3)
    hits = caster.cast(np.broadcast_to(camera.position, directions.shape), directions)
    seen = hits.face >= 0
    axes = camera.axes().T
    semantic = np.where(seen, caster.scene.semantic[hits.face], 0).astype(np.uint8)
    things = np.where(seen, caster.scene.thing[hits.face], -1).reshape(size, size)

    def image(values: np.ndarray) -> np.ndarray:
        """Values of the rays as a picture, NaN where nothing is seen."""
        values = np.where(seen.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)
        return values.reshape(size, size, *values.shape[1:]).astype(np.float32)

    rgb, exposure = _photograph(caster, camera, size, rng)
    return Capture(
        rgb=rgb,
        depth=image(hits.distance),
        normal=image(hits.normals @ axes),
        points=image((hits.points - camera.position) @ axes),
        semantic=semantic.reshape(size, size),
        things=instances(caster.scene, camera, things),
        exposure=exposure,
    )


def render_next(
    caster: RayCaster, camera: Camera, after: Camera, shown: Capture, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What a camera shows that has moved on to `after`, of the same fov: its photograph, and the way there.

    The photograph (S, S, 3) in [0, 1] is exposed as the one before, `shown`. The flow (2, S, S) float32 in pixels is
    that of the surfaces `shown`, NaN where there is none, and where it leaves the picture or is covered in the next.
    """
    size = len(shown.rgb)
    scale = size / 2 / np.tan(camera.fov / 2)
    pinhole = Pinhole(scale, scale, (size - 1) / 2, (size - 1) / 2)
    to_vision = np.diag([1.0, -1.0, -1.0])  # from axes with y up and z behind, which turn into themselves
    world = shown.points.astype(np.float64) @ camera.axes() + camera.position
    points = np.moveaxis((world - after.position) @ (to_vision @ after.axes()).T, -1, 0)
    flow = flow_to(pinhole.pixels(points))
    towards = (world - after.position).reshape(-1, 3)
    distance = np.linalg.norm(towards, axis=1)
    known = np.flatnonzero(np.isfinite(flow[0]))
    rays = towards[known] / distance[known, None]
    hits = caster.cast(np.broadcast_to(after.position, rays.shape), rays)
    covered = known[hits.distance < distance[known] * (1 - _COVERED)]
    flow.reshape(2, -1)[:, covered] = np.nan
    return _photograph(caster, after, size, rng, shown.exposure)[0], flow.astype(np.float32)


def instances(scene: Scene, camera: Camera, things: np.ndarray) -> np.ndarray:
    """The things (H, W) that a view shows, -1 for none, as instances: 1000 times the class and a number, uint16.

    Of a thing that is hardly seen nobody can say where it ends. It is none, 0, where the box around what is seen of it
    is narrower or lower than `LEAST_SIDE` of the picture, or less than `LEAST_SEEN` of the box that all of it would
    have in the picture.
    """
    size = len(things)
    id_map = np.zeros_like(things, np.uint16)
    numbers = np.zeros(len(SEGMENTS.names), np.int64)
    for thing in np.unique(things[things >= 0]):
        shown = things == thing
        rows, columns = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
        height, width = rows[-1] + 1 - rows[0], columns[-1] + 1 - columns[0]
        full_extent = _extent(scene.vertices[np.unique(scene.faces[scene.thing == thing])], camera, size)
        if min(height, width) >= LEAST_SIDE * size and height * width >= LEAST_SEEN * full_extent:
            label = int(scene.semantic[scene.thing == thing][0])
            numbers[label] += 1
            id_map[shown] = INSTANCES_OF_A_CLASS * label + numbers[label]
    return id_map


def _extent(points: np.ndarray, camera: Camera, size: int) -> float:
    """The area in pixels of the box that points (N, 3) have in the picture; of those behind the camera nothing."""
    x, y, z = camera.axes() @ (points - camera.position).T
    ahead = -z > _NEAR
    scale = size / 2 / np.tan(camera.fov / 2)
    sides = [(size / 2 + scale * coordinate[ahead] / -z[ahead]).clip(0, size) for coordinate in (x, -y)]
    return float(np.prod([np.ptp(side) for side in sides]))


# Colour


def _photograph(
    caster: RayCaster, camera: Camera, size: int, rng: np.random.Generator, exposure: float | None = None
) -> tuple[np.ndarray, float]:
    """The rgb image (size, size, 3), and its exposure, which is drawn unless it is given.

    Four rays per pixel, exposure, tone curve and sensor noise.
    """
    fine = 2 * size
    directions = camera.rays(fine).reshape(-1, 3)
    hits = caster.cast(np.broadcast_to(camera.position, directions.shape), directions)
    seen = hits.face >= 0
    radiance = caster.scene.sky * (0.75 + 0.5 * np.clip(directions[:, 2:], -0.4, 0.4))
    quadrant = (2 * (np.arange(fine)[:, None] % 2) + np.arange(fine) % 2).reshape(-1)
    visible = Hits(*(values[seen] for values in (hits.face, hits.distance, hits.points, hits.normals)))
    footprint = visible.distance * camera.fov / fine
    light = _irradiance(caster, visible, quadrant[seen], rng)
    albedo, emission = caster.textures(visible, footprint)
    radiance[seen] = albedo * (light + emission[:, None])
    image = radiance.reshape(size, 2, size, 2, 3).mean(axis=(1, 3))
    if exposure is None:
        exposure = rng.uniform(0.2, 0.8) / max(np.median(image), 0.02) ** 0.85
    image = (1 - np.exp(-exposure * image)) ** (1 / 1.8)
    image += rng.normal(0, rng.uniform(0.003, 0.015), image.shape)
    return np.clip(image, 0, 1).astype(np.float32), exposure


def _irradiance(caster: RayCaster, hits: Hits, quadrant: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Light (N, 3) that falls on the points: lamps with soft shadows, and ambient light less what is close by.

    The four sub-pixels of a pixel (`quadrant`) sample different parts of a lamp and of the hemisphere.
    """
    start = hits.points + _EPSILON * hits.normals
    total = np.asarray(caster.scene.ambient) * _openness(caster, hits, start, quadrant, rng)[:, None]
    for light in caster.scene.lights:
        total += _lamp_light(caster, light, start, hits.normals, quadrant)
    return total


def _lamp_light(
    caster: RayCaster, light: Light, start: np.ndarray, normals: np.ndarray, quadrant: np.ndarray
) -> np.ndarray:
    """Light (N, 3) from one lamp: as from its centre, but shadowed as from one of four points of its extent."""
    middle = light.position - start
    square = (middle**2).sum(axis=1)
    cosine = (normals * middle).sum(axis=1) / np.sqrt(square)
    lit = np.flatnonzero(cosine > 0)
    corner = quadrant[lit]
    cells = np.stack([corner % 2, corner // 2, (corner % 2) ^ (corner // 2)], axis=1)
    towards = middle[lit] + (cells / 2 - 0.25) * light.extent
    distance = np.linalg.norm(towards, axis=1)
    lit = lit[caster.cast(start[lit], towards / distance[:, None]).distance >= distance]
    received = np.zeros_like(start)
    softness = np.dot(light.extent, light.extent) / 12
    received[lit] = np.outer(cosine[lit] / (square[lit] + softness + 0.05), light.intensity)
    return received


def _openness(
    caster: RayCaster, hits: Hits, start: np.ndarray, quadrant: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Mean openness (N,) of the hemisphere above each point: t / (t + 0.4 m) towards a surface at distance t."""
    helper = np.where(np.abs(hits.normals[:, 2:]) > 0.9, [[1.0, 0, 0]], [[0, 0, 1.0]])
    tangent = np.cross(helper, hits.normals)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    bitangent = np.cross(hits.normals, tangent)
    total = np.zeros(len(start))
    for sample in range(2):
        azimuth = 2 * np.pi * (2 * quadrant + sample + rng.random(len(start))) / 8
        square = ((2 * quadrant + 5 * sample) % 8 + rng.random(len(start))) / 8
        across = np.sqrt(square) * np.cos(azimuth), np.sqrt(square) * np.sin(azimuth)
        basis = zip((*across, np.sqrt(1 - square)), (tangent, bitangent, hits.normals), strict=True)
        distance = caster.cast(start, sum(share[:, None] * axis for share, axis in basis)).distance
        total += 1 - 0.4 / (distance + 0.4)
    return total / 2


def _value_noise(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Smooth noise in [0, 1] with lattice constant 1."""
    iu, iv = np.floor(u), np.floor(v)
    fu, fv = ((f * f * (3 - 2 * f)) for f in (u - iu, v - iv))
    near, far = (_hash(iu, iv + j) * (1 - fu) + _hash(iu + 1, iv + j) * fu for j in (0, 1))
    return near * (1 - fv) + far * fv


def _hash(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.modf(np.abs(np.sin(u * 127.1 + v * 311.7) * 43758.5453))[0]


def _joints(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return ((u % 1 < 0.06) | (v % 1 < 0.06)).astype(float)


def _planks(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Boards of width 1 along v, each with its own tone and grain."""
    board = np.floor(u)
    grain = _value_noise(12 * u, 0.8 * v + 17 * board)
    return np.clip(0.7 * _hash(board, np.floor(0.15 * v + _hash(board, 0 * v))) + 0.5 * grain - 0.1, 0, 1)


# Share of the second colour at texture coordinates (u, v), in periods.
PATTERNS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "plain": lambda u, v: np.zeros_like(u),
    "stripes": lambda u, v: (u % 1 < 0.5).astype(float),
    "checker": lambda u, v: (np.floor(u) + np.floor(v)) % 2,
    "tiles": _joints,
    "brick": lambda u, v: _joints(u + 0.5 * (np.floor(3 * v) % 2), 3 * v),
    "wood": _planks,
    "noise": lambda u, v: 0.6 * _value_noise(u, v) + 0.4 * _value_noise(4 * u, 4 * v),
    "dots": lambda u, v: ((u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2 < 0.07).astype(float),
}


class _Textures:
    """Albedo and emission of a scene's faces."""

    def __init__(self, scene: Scene, normals: np.ndarray) -> None:
        self._scene = scene
        materials: tuple[Material, ...] = scene.materials
        self._colours = np.array([(m.colour, m.second) for m in materials])
        self._periods = np.array([m.period for m in materials])
        self._emission = np.array([m.emission for m in materials])
        self._patterns = np.array([m.pattern for m in materials])
        samples = np.random.default_rng(0).uniform(0, 50, (2, 4096))
        self._means = {name: pattern(*samples).mean() for name, pattern in PATTERNS.items()}
        # Texture axes of a face: u is horizontal, v up the face; flat faces follow the piece they belong to.
        flat = np.abs(normals[:, 2]) > 0.9
        level = np.stack([-normals[:, 1], normals[:, 0]], axis=1)
        level /= np.maximum(np.linalg.norm(level, axis=1, keepdims=True), 1e-9)
        self._u = np.concatenate([np.where(flat[:, None], scene.tangent, level), np.zeros((len(flat), 1))], axis=1)
        self._v = np.cross(normals, self._u)

    def __call__(self, hits: Hits, footprint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Albedo (N, 3) and emission (N,); patterns finer than the pixel `footprint` (N,) fade to their mean."""
        material = self._scene.material[hits.face]
        period = self._periods[material]
        u, v = ((hits.points * axes[hits.face]).sum(axis=1) / period for axes in (self._u, self._v))
        share = np.zeros(len(material))
        for name, pattern in PATTERNS.items():
            of_name = self._patterns[material] == name
            sharp = np.clip(period[of_name] / (3 * footprint[of_name]) - 0.5, 0, 1)
            share[of_name] = (1 - sharp) * self._means[name] + sharp * pattern(u[of_name], v[of_name])
        colour, second = self._colours[material].swapaxes(0, 1)
        return colour + share[:, None] * (second - colour), self._emission[material]
