"""The built-in data set: procedural rooms, ray-cast to every domain, in Taskonomy's layout and encodings.

    python -m datasets.rooms.make --data_path data/sample_rooms

The command renders 800 views of 4 buildings in less than two minutes on two cores. A building has rooms of several
scene classes, a room has some points (camera positions), and a point has one to three views. The seed sets everything:
each room has a generator of its own, so the files are the same whatever the number of processes. With `--frames 2`
each view has a second frame, by a camera that has moved and turned a little, and the optical flow between the two.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from datasets.captures import encode, to_bytes
from datasets.rooms.kinds import KINDS, Style
from datasets.rooms.layout import Room, make_room
from datasets.rooms.rendering import Camera, RayCaster, render, render_next
from datasets.sources.taskonomy import CLASS_NAMES, N_PLACES, View, read_class_names
from datasets.tasks import INSTANCES, MOTION, RGB_NEXT
from utils import progress
from utils.args import Parser
from utils.errors import UserError, run_script
from utils.files import json_in

VERSION = 2  # of the files: to be raised with every change of what the same arguments render
BUILDINGS = (
    "aspen",
    "birch",
    "cedar",
    "dogwood",
    "elm",
    "fir",
    "ginkgo",
    "hazel",
    "juniper",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
    "spruce",
    "willow",
)
DOMAINS = (
    "rgb",
    "depth_euclidean",
    "normal",
    "reshading",
    "keypoints3d",
    "edge_texture",
    "principal_curvature",
    "segment_semantic",
    INSTANCES,
    "class_scene",
)
FRAMES = (RGB_NEXT.domain, MOTION)  # what a second frame adds
MANIFEST = "sample_rooms.json"
BUILDING_LIST = "rooms.csv"
VIEWS_PER_ROOM = 6  # on average
NEAREST = 0.3  # metres between camera and what it looks at
FARTHEST, YAW, PITCH = 0.15, 6.0, 3.0  # metres, and degrees to either side, that it moves and turns between frames


@dataclass(frozen=True)
class RoomPlan:
    """What one process renders at a time: a room of a building and the number of views at each of its points.

    Rooms count from 1: (seed, building, 0) seeds what the rooms of a building share.
    """

    building: int
    room: int
    kind: str
    style: Style
    first_point: int
    views: tuple[int, ...]


def make_sample_rooms(
    data_path: str | Path,
    n_buildings: int = 4,
    views_per_building: int = 200,
    image_size: int = 96,
    seed: int = 0,
    n_workers: int | None = None,
    frames: int = 1,
    draw: Callable[[Path], object] | None = None,
) -> Path:
    """Render the data set into `data_path`, unless the same one is there; returns the building list's path.

    UserError for arguments out of range, another folder's content, and without the package that casts the rays. The
    folder appears whole or not at all. `n_workers` (default: one per core) does not change the files, nor do two
    `frames` change those of one, beside which they add the second ones and the flow. `draw` is called with the folder
    when all views are in it, to add a picture of them.
    """
    data_path = Path(data_path).resolve()
    arguments = {
        "n_buildings": n_buildings,
        "views_per_building": views_per_building,
        "image_size": image_size,
        "seed": seed,
        **({"frames": frames} if frames > 1 else {}),  # manifests of one are as they were
    }
    _check_arguments(**arguments, n_workers=n_workers)
    if _is_there(data_path, {**arguments, "version": VERSION}):
        print(f"{data_path}: the sample rooms are there")
        return data_path / BUILDING_LIST
    if find_spec("embreex") is None:
        raise UserError(
            "rooms are rendered by embreex, which is not installed: python -m pip install embreex; where it has no "
            f"package, as on Linux on Arm, copy {data_path} from another machine, or take other images (--data)"
        )
    try:
        data_path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".sample_rooms_", dir=data_path.parent) as folder:
            target = Path(folder, "rooms")
            target.mkdir()
            _fill(target, arguments, n_workers or os.cpu_count() or 1)
            if draw is not None:
                draw(target)
            _write_manifest(target, arguments)
            target.rename(data_path)
    except OSError as error:
        raise UserError(f"{data_path}: cannot write the sample rooms ({error}); see --data_path") from error
    print(f"{data_path}: {n_buildings * views_per_building} views in {n_buildings} buildings")
    return data_path / BUILDING_LIST


def _check_arguments(
    n_buildings: int, views_per_building: int, image_size: int, seed: int, n_workers: int | None, frames: int = 1
) -> None:
    for name, value, least, most in (
        ("n_buildings", n_buildings, 1, len(BUILDINGS)),
        ("views_per_building", views_per_building, 1, 100_000),
        ("image_size", image_size, 16, 1024),
        ("seed", seed, 0, 2**63 - 1),
        ("n_workers", 1 if n_workers is None else n_workers, 1, 4096),
        ("frames", frames, 1, 2),
    ):
        if not least <= value <= most:
            raise UserError(f"--{name} {value}: must lie between {least} and {most}")


def _is_there(data_path: Path, arguments: dict[str, int]) -> bool:
    """Whether `data_path` holds the data set that the arguments describe; UserError if it holds anything else."""
    if not data_path.exists() or (data_path.is_dir() and not any(data_path.iterdir())):
        return False
    try:
        there = {"frames": 1} | json_in(data_path / MANIFEST)
        differing = [f"{name}={there[name]}, not {value}" for name, value in arguments.items() if there[name] != value]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{data_path} is there and holds no complete sample rooms ({MANIFEST}): give another --data_path"
        ) from None
    if differing:
        raise UserError(
            f"{data_path} holds sample rooms with {'; '.join(differing)}: delete it or give another --data_path"
        )
    return True


def _fill(target: Path, arguments: dict[str, int], n_workers: int) -> None:
    """Render all rooms into the empty folder `target`, then write the lists."""
    names_source = Path(__file__).parents[1] / CLASS_NAMES
    shutil.copyfile(names_source, target / CLASS_NAMES)
    size, seed, has_next = arguments["image_size"], arguments["seed"], "frames" in arguments
    plans = [
        plan
        for building in range(arguments["n_buildings"])
        for plan in plan_building(seed, building, arguments["views_per_building"])
    ]
    for building in range(arguments["n_buildings"]):
        for domain in DOMAINS + FRAMES * has_next:
            (target / View(BUILDINGS[building], 0, 0).path(domain)).parent.mkdir(parents=True)
    with progress.bar(total=sum(sum(plan.views) for plan in plans), desc="sample rooms", unit="view") as bar:
        for n_views in _map(n_workers, _write_room, [(target, plan, size, seed, has_next) for plan in plans]):
            bar.update(n_views)
    # The official split files end their lines with a bare carriage return.
    rows = ["id,train,val,test", *(f"{name},1,0,0" for name in BUILDINGS[: arguments["n_buildings"]])]
    (target / BUILDING_LIST).write_bytes("".join(row + "\r" for row in rows).encode())


def _write_manifest(target: Path, arguments: dict[str, int]) -> None:
    (target / MANIFEST).write_text(json.dumps({**arguments, "version": VERSION}, indent=2) + "\n", encoding="utf-8")


def _map(n_workers: int, function: Callable[..., int], calls: list[tuple]) -> Iterator[int]:
    """Results of the calls as they come; in this process if one worker is enough."""
    if n_workers == 1:
        yield from (function(*call) for call in calls)
        return
    # Spawned, not forked: the caller may have threads (PyTorch's), and a fork would copy their locks.
    with ProcessPoolExecutor(n_workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from (future.result() for future in as_completed([pool.submit(function, *call) for call in calls]))


def plan_building(seed: int, building: int, n_views: int) -> list[RoomPlan]:
    """The rooms of a building and how its `n_views` views are assigned to them, from (seed, building) alone.

    Scene classes come as often as their shares say: systematic sampling does not leave rare ones to chance.
    """
    rng = np.random.default_rng([seed, building, 0])
    style = Style.draw(rng)
    n_rooms = max(1, round(n_views / VIEWS_PER_ROOM))
    shares = np.cumsum([kind.share for kind in KINDS.values()])
    ticks = (np.arange(n_rooms) + rng.random()) / n_rooms * shares[-1]
    kinds = rng.permutation(np.array(list(KINDS))[np.searchsorted(shares, ticks)])
    room_sizes = 1 + rng.multinomial(n_views - n_rooms, np.full(n_rooms, 1 / n_rooms))
    plans, point = [], 0
    for room, (kind, n_left) in enumerate(zip(kinds, room_sizes, strict=True)):
        views: list[int] = []
        while sum(views) < n_left:
            views.append(int(min(rng.integers(1, 4), n_left - sum(views))))
        plans.append(RoomPlan(building, room + 1, str(kind), style, point, tuple(views)))
        point += len(views)
    return plans


def _write_room(data_path: Path, plan: RoomPlan, size: int, seed: int, has_next: bool = False) -> int:
    """Build one room, render its views and write their files; returns the number of views."""
    of_next = np.random.default_rng([seed, plan.building, plan.room, 1])  # all else is drawn as without it
    rng = np.random.default_rng([seed, plan.building, plan.room])
    names = read_class_names(data_path / CLASS_NAMES)
    room = make_room(plan.kind, plan.style, rng)
    caster = RayCaster(room.scene)
    for i, n_views in enumerate(plan.views):
        position = choose_position(room, caster, rng)
        for number in range(n_views):
            camera = choose_camera(caster, position, rng)
            view = View(BUILDINGS[plan.building], plan.first_point + i, number)
            capture = render(caster, camera, size, rng)
            files = encode(capture)
            if has_next:
                after = move_camera(caster, camera, of_next)
                photograph, flow = render_next(caster, camera, after, capture, of_next)
                files[RGB_NEXT.domain] = to_bytes(255 * photograph)
                np.save(data_path / view.path(MOTION), flow.transpose(1, 2, 0))
            for domain, values in files.items():
                Image.fromarray(values).save(data_path / view.path(domain))
            np.save(data_path / view.path("class_scene"), draw_logits(plan.kind, names, rng))
    return sum(plan.views)


def choose_position(room: Room, caster: RayCaster, rng: np.random.Generator) -> np.ndarray:
    """A camera position (x, y, z) at 0.9 to 2 m over free floor; where a room is full, the freest place found."""
    width, depth, height = room.size
    spots = rng.uniform(-0.5, 0.5, (64, 3)) * (width - 2 * NEAREST, depth - 2 * NEAREST, 0)
    spots[:, 2] = rng.uniform(0.9, min(2.0, height - 0.3), len(spots))
    x, y, _ = spots.T[..., None]
    x0, x1, y0, y1 = room.blocked.T
    outside = np.hypot(
        *(np.maximum(np.maximum(low - at, at - high), 0) for at, low, high in ((x, x0, x1), (y, y0, y1)))
    )
    # Rays all around find what hangs in the air above free floor.
    directions = rng.normal(size=(len(spots), 48, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    origins = np.broadcast_to(spots[:, None], directions.shape)
    nearest = caster.cast(origins.reshape(-1, 3), directions.reshape(-1, 3)).distance.reshape(len(spots), -1)
    clearance = np.minimum(outside.min(axis=1, initial=np.inf) + 0.1, nearest.min(axis=1))
    free = np.flatnonzero(clearance > NEAREST)
    return spots[free[0] if len(free) else clearance.argmax()]


def choose_camera(caster: RayCaster, position: np.ndarray, rng: np.random.Generator) -> Camera:
    """A camera at `position` whose median depth comes closest to one drawn at random, from close-up to whole room.

    So depth varies with the kind of view more than with the kind of room. Views of a blank wall, into something
    closer than `NEAREST` or mostly out of the window are taken only where nothing better is found.
    """
    log_target = np.log(rng.uniform(0.8, 6))
    best: Camera
    best_cost = np.inf
    for _ in range(16):
        camera = Camera(
            tuple(position),
            rng.uniform(0, 2 * np.pi),
            np.deg2rad(rng.triangular(-30, -10, 10)),
            np.deg2rad(rng.uniform(45, 80)),
        )
        directions = camera.rays(12).reshape(-1, 3)
        hits = caster.cast(np.broadcast_to(position, directions.shape), directions)
        cost = abs(np.log(min(np.median(hits.distance), 100)) - log_target)
        cost += 10 * (hits.distance.min() < NEAREST + 0.05) + 3 * ((hits.face < 0).mean() > 0.3)
        n_faces = len(np.unique(hits.face))
        cost += 3 * (n_faces < 6) - 0.3 * np.log(n_faces)
        if cost < best_cost:
            best, best_cost = camera, cost
    return best


def move_camera(caster: RayCaster, camera: Camera, rng: np.random.Generator) -> Camera:
    """The camera at the next frame: moved by up to `FARTHEST`, halfway to what is ahead at most, and turned."""
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    ahead = caster.cast(np.array([camera.position]), direction[None]).distance[0]
    position = camera.position + direction * min(rng.uniform(0, FARTHEST), ahead / 2)
    yaw, pitch = (np.deg2rad(rng.uniform(-most, most)) for most in (YAW, PITCH))
    return replace(camera, position=tuple(position), yaw=camera.yaw + yaw, pitch=camera.pitch + pitch)


def draw_logits(kind: str, names: list[str], rng: np.random.Generator) -> np.ndarray:
    """Scores (365,) float32 as of a scene classifier: largest for the room's class, by a random margin."""
    logits = rng.normal(-3, 1.5, N_PLACES)
    logits[[names.index(name) for name in KINDS]] += 2
    similar = [names.index(name) for name in KINDS[kind].confused_with.split()]
    logits[similar] = rng.normal(3, 1.5, len(similar))
    logits[names.index(kind)] = logits.max() + rng.gamma(2, 1)
    return logits.astype(np.float32)


def main() -> None:
    """Command line."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--data_path", type=Path, default=Path("data/sample_rooms"), help="folder to write")
    parser.add_argument("--n_buildings", type=int, default=4, help=f"1 to {len(BUILDINGS)}")
    parser.add_argument("--views_per_building", type=int, default=200, help="in about a sixth as many rooms")
    parser.add_argument("--image_size", type=int, default=96, help="pixels")
    parser.add_argument("--seed", type=int, default=0, help="everything follows from it")
    parser.add_argument("--frames", type=int, default=1, help="2: a second frame of each view, and the flow to it")
    parser.add_argument("--n_workers", type=int, default=None, help="processes; None: one per core")
    args = parser.parse_args()
    from datasets.rooms.preview_grid import draw_preview_grid

    make_sample_rooms(**vars(args), draw=draw_preview_grid)


if __name__ == "__main__":
    run_script(main)
