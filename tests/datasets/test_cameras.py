"""Depth in z of distances along the rays and of disparities."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from datasets.cameras import Camera


def test_a_plane_before_the_camera_has_one_depth() -> None:
    """Points of the plane z = 3, projected by the matrix of intrinsics; their distances are those of the points."""
    fx, fy, cx, cy = intrinsics = (50.0, 60.0, 7.0, 4.5)
    v, u = np.mgrid[:10, :16]
    points = (
        3 * np.linalg.inv([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]) @ np.stack([u, v, np.ones((10, 16))]).reshape(3, -1)
    )
    distances = np.linalg.norm(points, axis=0).reshape(1, 10, 16)
    np.testing.assert_allclose(Camera("ray", intrinsics).depth(distances), 3, rtol=1e-12)
    assert distances.max() > 3.04
    assert Camera("ray").depth(distances) is distances  # nobody knows the rays: they stay what they are


def test_depth_of_a_disparity() -> None:
    """The baseline is to the depth as the disparity is to the focal length; without one the surface is at infinity."""
    depth = Camera("disparity", (200.0, 210.0, 3.0, 3.0), 0.5).depth(np.array([[[10.0, 0.0, -1.0]]]))
    np.testing.assert_array_equal(depth, [[[10.0, np.nan, np.nan]]])


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (("far",), "'far' is not one of ray, z, disparity"), (("ray", (1.0, 1.0)), "four numbers"),
        (("ray", (1.0, 0.0, 1.0, 1.0)), "fx and fy are above 0"), (("ray", (1.0, np.nan, 1.0, 1.0)), "four numbers"),
        (("disparity",), "needs --intrinsics"), (("disparity", (1.0, 1.0, 1.0, 1.0)), "--baseline"),
        (("z", (1.0, 1.0, 1.0, 1.0)), "has no use"), (("ray", (1.0, 1.0, 1.0, 1.0), 0.5), "has no use"),
    ],
)  # fmt: skip
def test_what_is_no_camera_is_refused(numbers: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Camera(*numbers)


def test_a_camera_of_json() -> None:
    for camera in (Camera("ray"), Camera("disparity", (1.0, 2.0, 3.0, 4.0), 0.5)):
        assert Camera.of(asdict(camera)) == camera
