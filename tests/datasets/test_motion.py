"""Optical flow by depth and poses: planes in closed form, there and back again, and warping by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.motion import Pinhole, flow_by_depth, flow_to, moved

CAMERA = Pinhole(40.0, 50.0, 15.5, 11.5)
H, W = 24, 32


def rotation(x: float, y: float, z: float) -> np.ndarray:
    """About x, then y, then z, in radians."""
    (a, b, c), (d, e, f) = np.cos([x, y, z]), np.sin([x, y, z])
    about = [[1, 0, 0], [0, a, -d], [0, d, a]], [[b, 0, e], [0, 1, 0], [-e, 0, b]], [[c, -f, 0], [f, c, 0], [0, 0, 1]]
    return np.array(about[2]) @ about[1] @ about[0]


def motion(turn: np.ndarray, shift: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, shift
    return matrix


def plane_from(matrix: np.ndarray, normal: np.ndarray, distance: float) -> np.ndarray:
    """Depth in z (H, W) of the plane n X = d of the first camera's axes, in the axes after the motion."""
    turned = matrix[:3, :3] @ normal
    distance += turned @ matrix[:3, 3]
    v, u = np.mgrid[:H, :W]
    rays = np.stack([(u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy, np.ones((H, W))])
    return distance / np.tensordot(turned, rays, 1)


def test_a_wall_ahead_moves_by_focal_length_times_shift_over_depth() -> None:
    still = np.full((H, W), 2.0)
    flow = flow_by_depth(still, still, CAMERA, motion(np.eye(3), (0.1, -0.04, 0.0)), 0.01)
    known = np.isfinite(flow[0])
    np.testing.assert_allclose(flow[:, known], np.array([[40 * 0.1 / 2], [50 * -0.04 / 2]]).repeat(known.sum(), 1))
    v, u = np.mgrid[:H, :W]
    np.testing.assert_array_equal(known, (u + 2 < W - 0.5) & (v - 1 > -0.5))


def test_a_wall_that_comes_nearer_grows_about_the_centre() -> None:
    flow = flow_by_depth(np.full((H, W), 2.0), np.full((H, W), 1.6), CAMERA, motion(np.eye(3), (0, 0, -0.4)), 0.01)
    v, u = np.mgrid[:H, :W]
    known = np.isfinite(flow[0])
    grown = np.stack([u - CAMERA.cx, v - CAMERA.cy]) * (2.0 / 1.6 - 1)
    np.testing.assert_allclose(flow[:, known], grown[:, known], atol=1e-12)
    assert 0.5 < known.mean() < 0.8


@pytest.mark.parametrize("depth", [1.0, 7.0])
def test_under_pure_rotation_the_flow_is_a_homography_whatever_the_depth(depth: float) -> None:
    turn = rotation(0.02, -0.05, 0.03)
    matrix, normal = motion(turn, (0, 0, 0)), np.array([0.2, -0.1, 1.0])
    flow = flow_by_depth(*(plane_from(each, normal, depth) for each in (np.eye(4), matrix)), CAMERA, matrix, 0.1)
    inner = np.array([[CAMERA.fx, 0, CAMERA.cx], [0, CAMERA.fy, CAMERA.cy], [0, 0, 1]])
    v, u = np.mgrid[:H, :W]
    x, y, z = np.tensordot(inner @ turn @ np.linalg.inv(inner), np.stack([u, v, np.ones((H, W))]), 1)
    known = np.isfinite(flow[0])
    np.testing.assert_allclose(flow[:, known], np.stack([x / z - u, y / z - v])[:, known], atol=1e-9)
    assert known.mean() > 0.8


def test_there_and_back_again_is_nowhere() -> None:
    matrix, normal = motion(rotation(0.01, 0.03, -0.02), (0.05, 0.02, -0.08)), np.array([0.3, 0.2, 1.0])
    first, second = (plane_from(each, normal, 2.0) for each in (np.eye(4), matrix))
    there = flow_by_depth(first, second, CAMERA, matrix, 0.05)
    back = flow_by_depth(second, first, CAMERA, np.linalg.inv(matrix), 0.05)
    for v, u in np.argwhere(np.isfinite(there[0]))[::7]:
        x, y = (u, v) + there[:, v, u]
        column, row = int(np.clip(np.floor(x), 0, W - 2)), int(np.clip(np.floor(y), 0, H - 2))
        a, b = x - column, y - row
        corners = back[:, row : row + 2, column : column + 2]
        if np.isfinite(corners).all():
            mixed = (corners * np.outer([1 - b, b], [1 - a, a])).sum((1, 2))
            np.testing.assert_allclose(there[:, v, u] + mixed, 0, atol=0.01)


def test_a_point_counts_where_the_next_map_has_its_depth() -> None:
    """Against pixels one by one: a box before a wall, which covers some of it once the camera has moved."""
    matrix = motion(np.eye(3), (0.2, 0.0, 0.0))
    first, second = np.full((H, W), 4.0), np.full((H, W), 4.0)
    first[8:16, 8:16], second[8:16, 16:24] = 1.0, 1.0  # 8 pixels to the right at 1 m, 2 at 4 m
    first[0, 0] = second[4, 6] = np.nan
    flow = flow_by_depth(first, second, CAMERA, matrix, 0.01)
    for v, u in np.ndindex(H, W):
        shift = 40 * 0.2 / first[v, u]
        x = u + shift
        seen = x < W - 0.5 and second[v, int(x)] == first[v, u]
        assert np.isfinite(flow[0, v, u]) == seen, (v, u)
        assert not seen or np.allclose(flow[:, v, u], (shift, 0))
    assert not np.isfinite(flow[0, 10, 17]) and np.isfinite(flow[0, 10, 8]) and not np.isfinite(flow[0, 0, 0])


def test_what_is_behind_the_camera_or_has_left_the_picture_is_unknown() -> None:
    points = moved(CAMERA.points(np.full((H, W), 1.0)), motion(np.eye(3), (0, 0, -1.5)))
    assert np.isnan(CAMERA.pixels(points)).all()
    there = np.mgrid[:3, :4][::-1].astype(float)
    there[0] += 1.4
    assert np.isfinite(flow_to(there)[0]).tolist() == [[True, True, True, False]] * 3
