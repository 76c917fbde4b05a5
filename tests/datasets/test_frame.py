"""How targets lie in their photographs' frames, against Pillow's own turning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from datasets.frame import SIDEWAYS, Frame, turned_boxes
from datasets.stored import photograph_frame, values_size
from tests.datasets.sources.finding import noise

ORIENTATION = 0x0112


def shown(stored: np.ndarray, orientation: int) -> np.ndarray:
    """The picture as Pillow shows it."""
    picture = Image.fromarray(stored)
    picture.getexif()[ORIENTATION] = orientation
    return np.asarray(ImageOps.exif_transpose(picture))


def save_turned(path: Path, stored: np.ndarray, orientation: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(stored).save(path, exif=exif)
    return path


@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_target_is_turned_as_its_photograph_is(tmp_path: Path, orientation: int, ending: str) -> None:
    stored, expected = noise(0, 6, 9), shown(noise(0, 6, 9), orientation)
    save_turned(tmp_path / f"a.{ending}", noise(1, 12, 18, 3), orientation)
    frame = photograph_frame(tmp_path, f"a.{ending}")
    assert (frame.height, frame.width) == (expected.shape[0] * 2, expected.shape[1] * 2)
    if orientation > 4:
        assert np.array_equal(frame.upright(stored[None])[0], expected)
        assert not frame.leaves_open(9, 6)
    upright = noise(2, *expected.shape)
    assert np.array_equal(frame.upright(upright[None])[0], upright)
    assert frame.leaves_open(*upright.shape[::-1]) == (orientation in (2, 3, 4))


@pytest.mark.parametrize("turn", SIDEWAYS)
def test_boxes_are_turned_as_pixels_are(turn: Image.Transpose) -> None:
    stored = np.zeros((1, 10, 20), bool)
    stored[:, 2:5, 4:14] = True
    [box] = turned_boxes(np.array([[0.2, 0.2, 0.7, 0.5]]), turn)
    y, x = (np.flatnonzero(Frame(20, 10, turn).upright(stored)[0].any(axis)) for axis in (1, 0))
    np.testing.assert_allclose(box, [x[0] / 10, y[0] / 20, (x[-1] + 1) / 10, (y[-1] + 1) / 20])


def test_sizes_that_are_nearly_square_tell_a_turn_when_they_are_exact() -> None:
    frame = Frame(640, 633, Image.Transpose.ROTATE_270)
    assert frame.turn_of(640, 633) == Image.Transpose.ROTATE_270 and frame.turn_of(633, 640) is None
    assert frame.turn_of(64, 63) == Image.Transpose.ROTATE_270 and not frame.leaves_open(640, 633)
    square = Frame(64, 64, Image.Transpose.ROTATE_270)
    assert square.turn_of(32, 32) is None and square.leaves_open(32, 32)


@pytest.mark.parametrize("turn", [None, Image.Transpose.ROTATE_180])
def test_another_shape_is_refused(turn: Image.Transpose | None) -> None:
    with pytest.raises(ValueError, match="64 x 48 pixels, another shape than its photograph's 96 x 54"):
        Frame(54, 96, turn).turn_of(64, 48)
    with pytest.raises(ValueError, match="another shape"):
        Frame(54, 96, turn).turn_of(54, 96)  # no turn on its side explains that
    assert Frame(480, 640, turn).turn_of(320, 242) is None and Frame(4, 6, turn).turn_of(7, 4) is None


def test_a_target_may_be_two_per_cent_wider_than_its_photograph() -> None:
    frame = Frame(200, 200)
    assert frame.turn_of(197, 200) is None and frame.turn_of(203, 200) is None
    for width in (195, 205):
        with pytest.raises(ValueError, match=f"{width} x 200 pixels, another shape"):
            frame.turn_of(width, 200)


def test_directions_are_not_turned() -> None:
    frame = Frame(20, 10, Image.Transpose.ROTATE_90)
    for domain in ("normal", "normals"):
        with pytest.raises(ValueError, match="directions cannot be turned with it; save both upright"):
            frame.upright(np.zeros((3, 10, 20)), domain)
        assert frame.upright(np.zeros((3, 20, 10)), domain).shape == (3, 20, 10)
    assert frame.upright(np.zeros((1, 10, 20)), "depth").shape == (1, 20, 10)


def test_the_header_of_a_file_says_its_size(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 5, 7), np.float32))
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 5, 7), np.uint8))
    Image.new("I;16", (7, 5)).save(tmp_path / "c.png")
    assert {values_size(tmp_path, cell) for cell in ("a.npy", "b.npz#x/1", "c.png")} == {(5, 7)}
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match="not a readable image"):
        values_size(tmp_path, "d.png")
