"""The built-in data set: geometry against closed forms, files against Taskonomy's encodings, determinism, variety."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.captures import encode, principal_curvatures
from datasets.download import CLASS_NAMES
from datasets.packed import read_image, surface
from datasets.rooms import make as sample_rooms
from datasets.rooms.furniture import PIECES
from datasets.rooms.kinds import KINDS, Material, Style
from datasets.rooms.layout import Room, make_room
from datasets.rooms.make import BUILDING_LIST, DOMAINS, MANIFEST, make_sample_rooms
from datasets.rooms.rendering import PATTERNS, Camera, RayCaster, render
from datasets.rooms.scenes import SceneBuilder
from datasets.sources.taskonomy import SEGMENTS, View, list_views, read_buildings, read_class_names, read_scene_class
from datasets.tasks import get_task
from tests.utils.calls import at_most
from utils.errors import UserError

pytest.importorskip("embreex", reason="needs embreex, which renders the rooms")
SMALL = {"n_buildings": 2, "views_per_building": 12, "image_size": 32, "n_workers": 1}
IMAGE_MODES = {
    "rgb": "RGB", "normal": "RGB", "reshading": "RGB", "principal_curvature": "RGB", "segment_semantic": "L",
    "depth_euclidean": "I;16", "keypoints3d": "I;16", "edge_texture": "I;16",
    "instances": "I;16",
}  # fmt: skip


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rooms"
    make_sample_rooms(path, n_buildings=2, views_per_building=90, image_size=32, seed=3, n_workers=1)
    return path


def all_views(path: Path) -> list[View]:
    return [view for building in read_buildings(path / BUILDING_LIST) for view in list_views(path, "rgb", building)]


def read(path: Path, view: View, domain: str) -> np.ndarray:
    return np.asarray(Image.open(path / view.path(domain)))


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# Geometry


def box_room(*openings: str) -> Room:
    """An empty room, 4 × 5 × 2.6 m, of six slabs; the wall named in `openings` is left out."""
    slabs = {
        "west": (-2.1, -2, -3, 3, -1, 3), "east": (2, 2.1, -3, 3, -1, 3), "south": (-3, 3, -2.6, -2.5, -1, 3),
        "north": (-3, 3, 2.5, 2.6, -1, 3), "floor": (-3, 3, -3, 3, -0.1, 0), "ceiling": (-3, 3, -3, 3, 2.6, 2.7),
    }  # fmt: skip
    builder = SceneBuilder()
    for name, bounds in slabs.items():
        if name not in openings:
            builder.add("box", np.array(bounds), Material((0.6, 0.6, 0.6)))
    return Room("closet", (4, 5, 2.6), builder.build(), np.zeros((0, 4)))


def view_box(camera: Camera, size: int, *openings: str) -> dict[str, np.ndarray]:
    return encode(render(RayCaster(box_room(*openings).scene), camera, size, np.random.default_rng(0)))


def ray_box(camera: Camera, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance (H, W) and camera-frame normal (H, W, 3) in the empty room, by the slab method."""
    centre = (np.arange(size) + 0.5) / size * 2 - 1
    x, y = np.meshgrid(centre * np.tan(camera.fov / 2), -centre * np.tan(camera.fov / 2))
    local = np.stack([x, y, -np.ones_like(x)], axis=-1)
    local /= np.linalg.norm(local, axis=-1, keepdims=True)
    # Camera to room: pitch about the camera's x axis, the camera's y axis to the room's z, then yaw about z.
    c, s = np.cos(camera.pitch), np.sin(camera.pitch)
    pitch = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    upright = np.array([[0, 0, -1], [-1, 0, 0], [0, 1, 0]])
    c, s = np.cos(camera.yaw), np.sin(camera.yaw)
    to_room = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ upright @ pitch
    directions = local @ to_room.T
    low, high = np.array([-2, -2.5, 0]), np.array([2, 2.5, 2.6])
    exits = (np.where(directions > 0, high, low) - camera.position) / directions
    side = exits.argmin(axis=-1)
    normals = -np.sign(directions) * np.eye(3)[side]
    return exits.min(axis=-1), normals @ to_room


@pytest.mark.parametrize("yaw, pitch, fov", [(0.3, -0.2, 1.2), (2.5, 0.15, 0.8), (-1.9, -0.5, 1.39), (4.0, 0.0, 1.0)])
def test_decoded_files_agree_with_the_closed_form(tmp_path: Path, yaw: float, pitch: float, fov: float) -> None:
    camera = Camera((0.4, -0.7, 1.5), yaw, pitch, fov)
    values = view_box(camera, 64)
    decoded = {}
    for domain in ("depth_euclidean", "normal"):
        Image.fromarray(values[domain]).save(tmp_path / f"{domain}.png")
        task = get_task(domain, "metric")
        stored = read_image(tmp_path, f"{domain}.png", task.encoding)
        valid = torch.from_numpy(surface(stored, task.encoding))[None, None]
        target, counted = task.decode(torch.from_numpy(stored.astype(np.int32))[None], valid)
        assert counted.all()
        decoded[domain] = target[0].numpy()
    true_depth, true_normal = ray_box(camera, 64)
    assert np.abs(decoded["depth_euclidean"][0] - true_depth).max() <= 0.5 / 512 + 1e-6
    # At an edge of the room a ray's single-precision hit may be on either side of it. Rounding to 8 bits moves a
    # component by up to half a step, and making the normal unit length again by as much.
    off = np.abs(decoded["normal"].transpose(1, 2, 0) - true_normal).max(axis=-1) > 1 / 127.5
    assert off.mean() < 0.002
    assert (values["segment_semantic"] == 1).all()


def test_no_ray_slips_through_an_edge_between_triangles() -> None:
    """From a box's middle exactly to its edges, and to the diagonals of its sides: two triangles share each."""
    builder = SceneBuilder()
    builder.add("box", np.array((-1, 1, -1, 1, -1, 1)), Material((0.5, 0.5, 0.5)))
    scene = builder.build()
    ends = scene.vertices[np.concatenate([scene.faces[:, [i, (i + 1) % 3]] for i in range(3)])]
    share = np.linspace(0, 1, 257)[:, None, None]
    towards = ((1 - share) * ends[:, 0] + share * ends[:, 1]).reshape(-1, 3)
    distance = np.linalg.norm(towards, axis=1)
    hits = RayCaster(scene).cast(np.zeros_like(towards), towards / distance[:, None])
    np.testing.assert_allclose(hits.distance, distance, rtol=1e-6)


def test_a_wall_that_faces_the_camera_is_blue() -> None:
    values = view_box(Camera((0, 0, 1.3), 0, 0, 0.6), 16)
    assert (values["normal"] == (128, 128, 255)).all()
    assert abs(values["depth_euclidean"][7:9, 7:9].mean() / 512 - 2) < 0.01
    assert (values["principal_curvature"] == (127, 127, 0)).all()
    assert (values["keypoints3d"] == 0).all()


def test_nothing_is_encoded_as_nothing_in_every_domain() -> None:
    values = view_box(Camera((0, 0, 1.3), 0, 0, 1.2), 32, "east")
    nothing = values["depth_euclidean"] == 65535
    assert 0.1 < nothing.mean() < 0.9
    for domain, value in (("normal", 128), ("reshading", 13), ("principal_curvature", 0), ("segment_semantic", 0)):
        assert (values[domain][nothing] == value).all(), domain
    assert (values["principal_curvature"][~nothing][:, :2] > 0).all()
    assert values["rgb"][nothing].mean() > 1.2 * values["rgb"][~nothing].mean()  # a bright sky


@pytest.mark.parametrize("radius", [0.5, 1.0])
def test_curvature_of_a_ball(radius: float) -> None:
    builder = SceneBuilder()
    builder.add("ball", np.array([2, 2 + 2 * radius, -radius, radius, -radius, radius]), Material((0.5, 0.5, 0.5)))
    rendered = render(RayCaster(builder.build()), Camera((0, 0, 0), 0, 0, 0.5), 64, np.random.default_rng(0))
    # A mesh of flat triangles bends at its edges only: compare the mean.
    middle = principal_curvatures(rendered)[16:48, 16:48].mean()
    assert middle == pytest.approx(1 / radius, rel=0.15)


# Scenes


def test_catalogue_is_complete() -> None:
    names = read_class_names(CLASS_NAMES)
    for name, kind in KINDS.items():
        assert {name, *kind.confused_with.split()} <= set(names)
        assert {*kind.furniture, *kind.things.split()} <= set(PIECES)
    parts = [part for piece in PIECES.values() for part in piece.parts]
    assert {part.label for part in parts if part.label} | {piece.label for piece in PIECES.values()} <= set(
        SEGMENTS.names
    )
    assert len(KINDS) == 16


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_furniture_stands_in_the_room_and_apart(kind: str) -> None:
    rng = np.random.default_rng(5)
    room = make_room(kind, Style.draw(rng), rng)
    width, depth, _ = room.size
    x0, x1, y0, y1 = room.blocked.T
    assert x0.min() > -width / 2 - 1e-9 and x1.max() < width / 2 + 1e-9
    assert y0.min() > -depth / 2 - 1e-9 and y1.max() < depth / 2 + 1e-9
    across = np.minimum(x1[:, None], x1) - np.maximum(x0[:, None], x0)
    along = np.minimum(y1[:, None], y1) - np.maximum(y0[:, None], y0)
    shared = np.triu((across > 1e-9) & (along > 1e-9), 1)
    assert not shared.any()
    assert {material.pattern for material in room.scene.materials} <= set(PATTERNS)
    assert room.scene.faces.max() < len(room.scene.vertices)


# Files


def test_every_view_has_every_domain_in_its_encoding(rooms: Path) -> None:
    views = all_views(rooms)
    assert len(views) == 180
    for view in views[::7]:
        for domain, mode in IMAGE_MODES.items():
            with Image.open(rooms / view.path(domain)) as image:
                assert (image.mode, image.size) == (mode, (32, 32)), domain
        logits = np.load(rooms / view.path("class_scene"))
        assert (logits.shape, logits.dtype) == ((365,), np.float32)
    assert all((rooms / view.path(domain)).is_file() for view in views for domain in DOMAINS)


def test_masks_agree(rooms: Path) -> None:
    shares = []
    for view in all_views(rooms):
        nothing = read(rooms, view, "depth_euclidean") == 65535
        np.testing.assert_array_equal(nothing, (read(rooms, view, "normal") == 128).all(axis=-1))
        np.testing.assert_array_equal(nothing, read(rooms, view, "segment_semantic") == 0)
        np.testing.assert_array_equal(nothing, (read(rooms, view, "principal_curvature")[..., :2] == 0).all(axis=-1))
        assert (read(rooms, view, "keypoints3d")[nothing] == 0).all()
        shares.append(nothing.mean())
    assert 0.01 < np.mean(shares) < 0.15
    assert max(shares) < 0.8
    assert np.mean(np.array(shares) > 0) > 0.2


def test_values_lie_where_those_of_taskonomy_do(rooms: Path) -> None:
    views = all_views(rooms)
    stacks = {domain: np.stack([read(rooms, view, domain) for view in views]) for domain in IMAGE_MODES}
    depth = np.where(stacks["depth_euclidean"] == 65535, np.nan, stacks["depth_euclidean"] / 512)
    assert np.nanmin(depth) > 0.25
    assert np.nanmax(depth) < 16
    assert 1.5 < np.nanmedian(depth) < 3.5
    peaks = {
        name: np.median(stacks[name].reshape(len(views), -1).max(axis=1)) for name in ("edge_texture", "keypoints3d")
    }
    assert 9_000 < peaks["edge_texture"] < 45_000
    assert 35_000 < peaks["keypoints3d"] < 64_000
    assert 0.1 < (stacks["keypoints3d"] == 0).mean() < 0.7
    assert (np.ptp(stacks["reshading"], axis=-1) == 0).all()
    assert 60 < stacks["rgb"].mean() < 190
    assert len(np.unique(stacks["segment_semantic"])) >= 12


def test_scene_classes_are_those_of_the_rooms(rooms: Path) -> None:
    names = read_class_names(rooms / "places_class_names.txt")
    planned = [
        (View(sample_rooms.BUILDINGS[plan.building], plan.first_point + i, view), plan.kind)
        for building in range(2)
        for plan in sample_rooms.plan_building(3, building, 90)
        for i, count in enumerate(plan.views)
        for view in range(count)
    ]
    assert sorted(view for view, _ in planned) == all_views(rooms)
    for view, kind in planned:
        assert names[read_scene_class(rooms / view.path("class_scene"))] == kind


def test_building_list_has_bare_carriage_returns(rooms: Path) -> None:
    content = (rooms / BUILDING_LIST).read_bytes()
    assert content.startswith(b"id,train,val,test\r") and b"\n" not in content
    assert read_buildings(rooms / BUILDING_LIST) == ["aspen", "birch"]


def test_manifest(rooms: Path) -> None:
    manifest = json.loads((rooms / MANIFEST).read_text())
    assert manifest == {
        "n_buildings": 2, "views_per_building": 90, "image_size": 32, "seed": 3, "version": sample_rooms.VERSION,
    }  # fmt: skip


def test_class_says_little_about_depth(rooms: Path) -> None:
    """Between-class share of the variance of a view's mean depth: partitions by class and by depth must differ."""
    views = all_views(rooms)
    classes = np.array([read_scene_class(rooms / view.path("class_scene")) for view in views])
    depths = [read(rooms, view, "depth_euclidean").astype(float) for view in views]
    mean_depth = np.array([depth[depth < 65535].mean() / 512 for depth in depths])
    between = sum(
        (classes == c).sum() * (mean_depth[classes == c].mean() - mean_depth.mean()) ** 2 for c in np.unique(classes)
    )
    assert between / ((mean_depth - mean_depth.mean()) ** 2).sum() < 0.5
    assert mean_depth.std() > 0.4
    counts = np.unique(classes, return_counts=True)[1]
    assert len(counts) == 16
    assert counts.max() > 3 * counts.min()


# The command


def test_bytes_depend_on_the_seed_and_not_on_the_workers(tmp_path: Path) -> None:
    for name, changes in (("one", {}), ("two", {"n_workers": 2}), ("other", {"seed": 1})):
        make_sample_rooms(tmp_path / name, **{**SMALL, "views_per_building": 6, **changes})
    one, two, other = (files(tmp_path / name) for name in ("one", "two", "other"))
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    images = [name for name in one.keys() & other.keys() if "/taskonomy/" in name and "/rgb" not in name]
    assert sum(one[name] != other[name] for name in images) > 0.9 * len(images)


def test_second_call_renders_nothing_and_other_arguments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {**SMALL, "n_buildings": 1, "views_per_building": 2}
    path = tmp_path / "rooms"
    first = make_sample_rooms(path, **arguments)
    before = files(path)
    with at_most(10_000):
        assert make_sample_rooms(path, **arguments) == first
    assert "are there" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"image_size=32, not 64.*delete it or give another --data_path"):
        make_sample_rooms(path, **{**arguments, "image_size": 64})
    assert files(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["rooms"]


def test_a_folder_with_other_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UserError, match="another --data_path"):
        make_sample_rooms(tmp_path, **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("wrong", [{"n_buildings": 0}, {"n_buildings": 99}, {"image_size": 4}, {"n_workers": 0}])
def test_arguments_out_of_range_are_named(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"--{next(iter(wrong))}"):
        make_sample_rooms(tmp_path / "rooms", **{**SMALL, **wrong})
    assert not (tmp_path / "rooms").exists()


def test_without_what_casts_the_rays_one_line_says_so_and_rooms_that_are_there_are_taken(
    rooms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Linux on Arm, for which embreex has no package."""
    monkeypatch.setitem(sys.modules, "embreex", None)
    with pytest.raises(UserError, match=rf"by embreex, which is not installed.* copy {tmp_path}/rooms from another"):
        make_sample_rooms(tmp_path / "rooms", **SMALL)
    assert not list(tmp_path.iterdir())
    assert make_sample_rooms(rooms, n_buildings=2, views_per_building=90, image_size=32, seed=3).parent == rooms


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sample_rooms, "_write_room", fail)
    with pytest.raises(KeyboardInterrupt):
        make_sample_rooms(tmp_path / "rooms", **SMALL)
    assert not list(tmp_path.iterdir())
