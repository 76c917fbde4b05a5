"""The second frame of a room's view and the flow to it: planes in closed form, warping, and what is covered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets.rooms.kinds import Material
from datasets.rooms.make import make_sample_rooms, move_camera
from datasets.rooms.rendering import Camera, RayCaster, render, render_next
from datasets.rooms.scenes import SceneBuilder
from datasets.sources.taskonomy import View
from datasets.stored import read_photograph
from utils.errors import UserError

pytest.importorskip("embreex", reason="needs embreex, which renders the rooms")
SIZE = 32
CAMERA = Camera((0.0, 0.0, 1.0), 0.0, 0.0, np.deg2rad(60))
FOCAL = SIZE / 2 / np.tan(CAMERA.fov / 2)
WALL = (3.0, 3.1, -9, 9, -9, 9)  # 3 m ahead


def flow_between(after: Camera, *boxes: tuple[float, ...]) -> np.ndarray:
    builder = SceneBuilder()
    for bounds in boxes:
        builder.add("box", bounds, Material((0.6, 0.6, 0.6)))
    caster = RayCaster(builder.build())
    shown = render(caster, CAMERA, SIZE, np.random.default_rng(0))
    photograph, flow = render_next(caster, CAMERA, after, shown, np.random.default_rng(1))
    assert photograph.shape == (SIZE, SIZE, 3)
    return flow


def places() -> np.ndarray:
    """Of the pixels' centres, (2, S, S), from the picture's centre."""
    return np.mgrid[:SIZE, :SIZE][::-1] - (SIZE - 1) / 2


def test_a_wall_moves_against_the_camera_by_focal_length_times_shift_over_depth() -> None:
    flow = flow_between(replace(CAMERA, position=(0.0, -0.2, 1.1)), WALL)  # to the right, which is -y, and up
    known = np.isfinite(flow[0])
    np.testing.assert_allclose(flow[0, known], -FOCAL * 0.2 / 3, rtol=1e-4)
    np.testing.assert_allclose(flow[1, known], FOCAL * 0.1 / 3, rtol=1e-4)
    assert known[2:-2, 3:].all() and not known[:, 0].any() and not known[-1].any()


def test_a_wall_that_comes_nearer_grows_about_the_centre() -> None:
    flow = flow_between(replace(CAMERA, position=(0.5, 0.0, 1.0)), WALL)
    known = np.isfinite(flow[0])
    np.testing.assert_allclose(flow[:, known], places()[:, known] * (3 / 2.5 - 1), atol=1e-3)
    assert known[4:-4, 4:-4].all()


@pytest.mark.parametrize("distance", [1.0, 6.0])
def test_under_pure_rotation_the_flow_does_not_know_the_depth(distance: float) -> None:
    yaw = np.deg2rad(5)
    flow = flow_between(replace(CAMERA, yaw=yaw), (distance, distance + 0.1, -9, 9, -9, 9))
    x, y = places() / FOCAL  # a ray (x, y, 1), turned to the left by yaw, seems to turn to the right
    ahead = np.cos(yaw) - x * np.sin(yaw)
    expected = FOCAL * np.stack([(x * np.cos(yaw) + np.sin(yaw)) / ahead - x, y / ahead - y])
    known = np.isfinite(flow[0])
    np.testing.assert_allclose(flow[:, known], expected[:, known], atol=1e-3)
    assert known[8:-8, 4:-4].all()


def test_what_a_box_covers_is_unknown() -> None:
    """A box 1 m ahead moves three times as far as the wall: what it then covers, in closed form."""
    box = (1.0, 1.05, -0.1, 0.1, 0.9, 1.1)
    flow = flow_between(replace(CAMERA, position=(0.0, -0.2, 1.0)), WALL, box)
    x, y = places() / FOCAL
    on_box = np.maximum(np.abs(x), np.abs(y)) < 0.1
    there = x - 0.2 / np.where(on_box, 1.0, 3.0)  # as rays of the camera that has moved
    covered = ~on_box & (there > -0.3) & (there < -0.1) & (np.abs(y) < 0.1)
    inside = there > -SIZE / 2 / FOCAL
    known = np.isfinite(flow[0])
    assert covered.sum() > 8
    np.testing.assert_array_equal(known, inside & ~covered)
    np.testing.assert_allclose(flow[0, known], FOCAL * (there - x)[known], atol=1e-3)


def test_there_and_back_again_is_nowhere_and_the_next_frame_is_the_first_one_warped(rooms: Path) -> None:
    errors, still = [], []
    for path in sorted((rooms / "motion").rglob("*.npy")):
        view = View.parse(path)
        flow = np.load(path).transpose(2, 0, 1)
        first, second = (read_photograph(rooms, str(view.path(domain))).astype(float) for domain in ("rgb", "rgb_next"))
        for v, u in np.argwhere(np.isfinite(flow[0]))[::11]:
            x, y = (u, v) + flow[:, v, u]
            column, row = (int(np.clip(np.floor(each), 0, SIZE - 2)) for each in (x, y))
            a, b = np.clip([x - column, y - row], 0, 1)
            corners = second[:, row : row + 2, column : column + 2]
            warped = (corners * np.outer([1 - b, b], [1 - a, a])).sum((1, 2))
            errors.append(np.abs(warped - first[:, v, u]).mean())
            still.append(np.abs(second[:, v, u] - first[:, v, u]).mean())
    assert len(errors) > 500 and np.mean(errors) < 0.6 * np.mean(still)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "rooms"
    make_sample_rooms(path, n_buildings=1, views_per_building=12, image_size=SIZE, seed=3, n_workers=1, frames=2)
    return path


def test_second_frames_change_no_other_file(rooms: Path, tmp_path: Path) -> None:
    make_sample_rooms(tmp_path / "one", n_buildings=1, views_per_building=12, image_size=SIZE, seed=3, n_workers=1)
    both = {path.relative_to(rooms): path for path in rooms.rglob("*") if path.is_file()}
    one = {path.relative_to(tmp_path / "one"): path for path in (tmp_path / "one").rglob("*") if path.is_file()}
    more = both.keys() - one.keys()
    assert (
        one.keys() <= both.keys() and len(more) == 2 * 12 and {path.parts[0] for path in more} == {"rgb_next", "motion"}
    )
    for name, path in one.items():
        assert name.name == "sample_rooms.json" or path.read_bytes() == both[name].read_bytes(), name
    with pytest.raises(UserError, match="frames=1, not 2: delete it"):
        make_sample_rooms(tmp_path / "one", n_buildings=1, views_per_building=12, image_size=SIZE, seed=3, frames=2)


def test_a_camera_stays_on_this_side_of_what_is_ahead() -> None:
    builder = SceneBuilder()
    builder.add("box", (0.1, 0.2, -9, 9, -9, 9), Material((0.6, 0.6, 0.6)))
    caster, rng = RayCaster(builder.build()), np.random.default_rng(0)
    moved = [move_camera(caster, CAMERA, rng) for _ in range(200)]
    at = np.array([each.position for each in moved])
    assert at[:, 0].max() <= 0.05 + 1e-6 and np.linalg.norm(at - CAMERA.position, axis=1).max() <= 0.15
    assert np.abs([each.yaw for each in moved]).max() <= np.deg2rad(6) and moved[0].fov == CAMERA.fov
