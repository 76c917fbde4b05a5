"""What a cell of the table names: images in every mode and shape, rows of array files, and what is broken in either."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, features

from datasets.stored import (
    deep_values,
    file_of,
    is_inside,
    photograph_size,
    read_photograph,
    read_values,
    values_size,
)
from tests.conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # pytest sets aside what the module does itself
RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (6, 9)).astype(np.uint16)
PICTURES = ["a.png", "a.jpg", "a.webp", *["a.avif"] * features.check("avif")]
MODES = ("L", "P", "RGB", "RGBA", "I;16", "I;16B", "I")


def save(folder: Path, image: Image.Image | np.ndarray, name: str = "a.png", **kwargs: object) -> str:
    """The cell of an image that is saved there."""
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(folder / name, **kwargs)
    return name


# Cells


@pytest.mark.parametrize(
    "cell",
    ["rgb/a.png", "a.png", "a b/c,d.JPG", "é/☃.png", "x.npz#train_images/17", "x.bin#0:3x2x2", "..a/b..png", "./a"],
)
def test_cells_lie_inside(cell: str) -> None:
    assert is_inside(cell)


@pytest.mark.parametrize(
    "cell",
    ["", "/etc/passwd", "//a", "../a.png", "a/../b.png", "a/..", "..", "a\\b.png", "a\0b", "a\nb.png", "a\rb.png"],
)
def test_cells_that_lead_elsewhere_do_not(cell: str) -> None:
    assert not is_inside(cell)


@pytest.mark.parametrize(
    "cell, file",
    [
        ("rgb/a.png", "rgb/a.png"), ("x.npy#17", "x.npy"), ("a/x.NPZ#images/3", "a/x.NPZ"),
        ("x.bin#3073:3x32x32", "x.bin"), ("a#b.png", "a#b.png"), ("x.npy", "x.npy"), ("x.npy#", "x.npy#"),
    ],
)  # fmt: skip
def test_file_of_a_cell(cell: str, file: str) -> None:
    assert file_of(cell) == file


# Photographs


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "YCbCr", "HSV", "P", "PA", "L", "LA", "1"])
def test_photograph_of_any_mode_is_rgb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    image = Image.fromarray(COLOURS).convert(mode)
    monkeypatch.setattr(Image, "open", lambda path: image.copy())  # no file format has all of them
    read = read_photograph(tmp_path, "a")
    assert (read.shape, read.dtype) == ((3, 6, 9), np.uint8)
    expected = {"1": image.convert("L"), "LA": image.convert("L"), "L": image}.get(mode)
    if expected is not None:
        assert (read == np.asarray(expected)).all()
    elif mode in ("RGB", "RGBA", "YCbCr", "HSV", "CMYK"):
        assert np.abs(read.transpose(1, 2, 0).astype(int) - COLOURS).max() <= {"YCbCr": 3, "HSV": 12}.get(mode, 1)
    else:
        palette = Image.fromarray(COLOURS).convert("P").convert("RGB")
        np.testing.assert_array_equal(read.transpose(1, 2, 0), palette)


@pytest.mark.parametrize("name, kwargs", [("a.jpg", {"quality": 95, "subsampling": 0}), ("a.tif", {})])
def test_cmyk_of_a_file(tmp_path: Path, name: str, kwargs: dict[str, object]) -> None:
    flat = np.broadcast_to(np.array([200, 40, 90], np.uint8), (16, 16, 3))
    cell = save(tmp_path, Image.fromarray(np.ascontiguousarray(flat)).convert("CMYK"), name, **kwargs)
    with Image.open(tmp_path / cell) as image:
        assert image.mode == "CMYK"
    assert np.abs(read_photograph(tmp_path, cell).transpose(1, 2, 0).astype(int) - flat).max() <= 3


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_photograph_of_16_bits_keeps_its_upper_eight(tmp_path: Path, order: str) -> None:
    image = Image.frombytes("I;16" if order == "<u2" else "I;16B", (9, 6), DEEP.astype(order).tobytes())
    read = read_photograph(tmp_path, save(tmp_path, image, "a.tif"))
    np.testing.assert_array_equal(read, np.repeat((DEEP // 256)[None], 3, axis=0))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_photograph_whose_scale_nobody_knows_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ValueError, match=f"pixel format {mode} where a photograph should be"):
        read_photograph(tmp_path, save(tmp_path, Image.new(mode, (4, 4), 300), "a.tif"))


def turned(image: np.ndarray, orientation: int) -> np.ndarray:
    """An upright image as a camera stores it, by what EXIF says of the first row and column: top, left and so on."""
    mirrored = orientation in (2, 4, 5, 7)
    quarters = {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 1, 7: 3, 8: 3}[orientation]
    stored = np.rot90(image, quarters)
    if mirrored:
        stored = stored[:, ::-1] if quarters % 2 == 0 else stored[::-1]
    return np.ascontiguousarray(stored)


@pytest.mark.parametrize("values", [COLOURS, DEEP], ids=["colours", "16 bits"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photograph_is_turned_as_its_exif_says(tmp_path: Path, orientation: int, values: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = read_photograph(tmp_path, save(tmp_path, values))
    for ending in ("png", "tif"):
        cell = save(tmp_path, turned(values, orientation), f"turned.{ending}", exif=exif)
        np.testing.assert_array_equal(read_photograph(tmp_path, cell), upright)


@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photographs_size_is_that_of_its_pixels(tmp_path: Path, orientation: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    cell = save(tmp_path, turned(COLOURS, orientation), f"a.{ending}", exif=exif)
    assert photograph_size(tmp_path, cell) == read_photograph(tmp_path, cell).shape[1:] == COLOURS.shape[:2]


@pytest.mark.parametrize("ending", ["png", "tif"])
@pytest.mark.parametrize("turn", [2, 6])
def test_masks_and_other_values_are_turned_as_their_own_exif_entry_says(tmp_path: Path, turn: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    cell = save(tmp_path, GREY, f"a.{ending}", exif=exif)
    upright = GREY[:, ::-1] if turn == 2 else np.rot90(GREY, -1)
    np.testing.assert_array_equal(read_values(tmp_path, cell, MODES)[0], upright)
    assert values_size(tmp_path, cell) == upright.shape


def test_directions_that_an_exif_entry_turns_are_refused(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    cell = save(tmp_path, COLOURS, exif=exif)
    with pytest.raises(ValueError, match="its own EXIF entry turns it, and directions cannot be turned with it"):
        read_values(tmp_path, cell, MODES, directions=True)


def test_levels_are_what_is_black_and_white_of_16_bits(tmp_path: Path) -> None:
    values = np.array([[0, 1000, 1500, 3000, 65535]] * 6, np.uint16)
    cell = save(tmp_path, values)
    assert read_photograph(tmp_path, cell)[0, 0].tolist() == [0, 3, 5, 11, 255]
    expected = [0, 0, 64, 255, 255]  # (1500 - 1000) / 2000 of 255 is 63.75
    assert read_photograph(tmp_path, cell, (1000, 3000))[0, 0].tolist() == expected
    np.save(tmp_path / "a.npy", np.stack([values, values]))
    assert read_photograph(tmp_path, "a.npy#1", (1000, 3000))[2, 5].tolist() == expected
    eight = save(tmp_path, COLOURS, "eight.png")
    np.testing.assert_array_equal(read_photograph(tmp_path, eight, (0, 100)), read_photograph(tmp_path, eight))


def test_grey_maps_of_more_than_8_bits(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5\n4 1\n4095\n" + np.array([0, 1024, 2048, 4095], ">u2").tobytes())
    assert read_photograph(tmp_path, "a.pgm")[0, 0].tolist() == [0, 64, 128, 255]


def test_which_photographs_have_16_bits(tmp_path: Path) -> None:
    values = np.full((6, 8), 1234, np.uint16)
    np.save(tmp_path / "a.npy", np.stack([values, values]))
    for cell in (save(tmp_path, values), "a.npy#0"):
        found = deep_values(tmp_path, cell)
        assert found is not None and (found == 1234).all()
    (tmp_path / "broken.png").write_bytes(b"x")
    for cell in (save(tmp_path, COLOURS, "eight.png"), "broken.png", "none.png", "a.npy#7"):
        assert deep_values(tmp_path, cell) is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 200),
    with_byte=st.integers(0, 255),
    cut=st.integers(0, 60),
    kind=st.sampled_from(["PNG", "JPEG", "WEBP"]),
)
def test_a_photograph_with_broken_exif_is_taken_as_it_stands(
    tmp_path: Path, at: int, with_byte: int, cut: int, kind: str
) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0131], exif[0x0112] = "maker", "software", 6
    content = bytearray(exif.tobytes())
    content[at % len(content)] = with_byte
    cell = save(tmp_path, np.zeros((4, 4, 3), np.uint8), "a", format=kind, exif=bytes(content[: len(content) - cut]))
    assert read_photograph(tmp_path, cell).shape == (3, 4, 4)


def test_reading_is_silent(tmp_path: Path) -> None:
    save(tmp_path, Image.fromarray(COLOURS), "exif.png", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09\x01\x12")
    save(tmp_path, Image.fromarray(COLOURS).convert("P"), "palette.png", transparency=bytes(range(200)))
    program = (
        "from pathlib import Path\nfrom datasets.stored import read_photograph\n"
        f"for name in ('exif.png', 'palette.png'):\n    read_photograph(Path({str(tmp_path)!r}), name)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# Values as they are stored


@pytest.mark.parametrize("values", [GREY, DEEP, COLOURS], ids=["8 bits", "16 bits", "colours"])
def test_values_of_an_image_are_as_stored(tmp_path: Path, values: np.ndarray) -> None:
    read = read_values(tmp_path, save(tmp_path, values), MODES)
    np.testing.assert_array_equal(read, np.atleast_3d(values).transpose(2, 0, 1))


def test_pixel_format_that_is_not_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pixel format L where one of I;16, I should be"):
        read_values(tmp_path, save(tmp_path, GREY), ("I;16", "I"))


# Broken images


@pytest.mark.parametrize("read", [read_photograph, lambda *where: read_values(*where, MODES)], ids=["rgb", "values"])
@pytest.mark.parametrize("length", [0, 20, 100, 200])
@pytest.mark.parametrize("name", PICTURES)
def test_truncated_image_is_refused(tmp_path: Path, name: str, length: int, read: Callable) -> None:
    save(tmp_path, np.repeat(np.repeat(COLOURS, 4, 0), 4, 1), name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:length])
    with pytest.raises(ValueError, match="not a readable image"):
        read(tmp_path, name)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*PICTURES, "a.tif", "a.gif", "a.bmp"]),
    changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_flipped_bytes_end_in_an_image_or_a_reason(tmp_path: Path, name: str, changes: list[tuple[int, int]]) -> None:
    buffer = io.BytesIO()
    Image.fromarray(COLOURS).save(buffer, {"jpg": "JPEG", "tif": "TIFF"}.get(name[2:], name[2:].upper()))
    content = bytearray(buffer.getvalue())
    for at, byte in changes:
        content[at % len(content)] = byte
    (tmp_path / name).write_bytes(content)
    try:
        assert read_photograph(tmp_path, name).shape[0] == 3
    except ValueError as error:
        assert str(error)


def test_no_file_no_image_and_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "text.png").write_text("no picture")
    for name in ("missing.png", "folder.png", "text.png", "a" * 300 + ".png"):
        with pytest.raises(ValueError, match="not a readable image"):
            read_photograph(tmp_path, name)


# Rows of array files

ARRAYS = {
    "grey": RNG.integers(0, 256, (5, 6, 9), dtype=np.uint8),
    "colours last": RNG.integers(0, 256, (5, 6, 9, 3), dtype=np.uint8),
    "colours first": RNG.integers(0, 256, (5, 3, 6, 9), dtype=np.uint8),
    "with alpha": RNG.integers(0, 256, (5, 6, 9, 4), dtype=np.uint8),
    "16 bits": RNG.integers(0, 65536, (5, 6, 9)).astype(np.uint16),
    "other end": RNG.integers(0, 65536, (5, 6, 9)).astype(">u2"),
    "in Fortran's order": np.asfortranarray(RNG.integers(0, 256, (5, 6, 9, 3), dtype=np.uint8)),
}


def as_rgb(values: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, C) or (3, H, W) of these arrays as 8-bit RGB, (3, H, W)."""
    values = values // 256 if values.dtype.itemsize == 2 else values
    if values.ndim == 2:
        return np.stack([values] * 3).astype(np.uint8)
    return values if len(values) == 3 else values[..., :3].transpose(2, 0, 1)


@pytest.mark.parametrize("compressed", [None, False, True], ids=["npy", "npz", "compressed"])
@pytest.mark.parametrize("kind", ARRAYS)
def test_rows_of_arrays(tmp_path: Path, kind: str, compressed: bool | None) -> None:
    values = ARRAYS[kind]
    if compressed is None:
        np.save(tmp_path / "x.npy", values)
    else:
        (np.savez_compressed if compressed else np.savez)(tmp_path / "x.npz", train_images=values, other=values[:1])
    for row in (0, 3):
        cell = f"x.npy#{row}" if compressed is None else f"x.npz#train_images/{row}"
        np.testing.assert_array_equal(read_photograph(tmp_path, cell), as_rgb(values[row]))
        stored = values[row] if kind == "colours first" else np.atleast_3d(values[row]).transpose(2, 0, 1)
        np.testing.assert_array_equal(read_values(tmp_path, cell, ()), stored)


def test_bytes_of_a_file(tmp_path: Path) -> None:
    # As CIFAR-10's: a label before the planes of each image.
    planes = RNG.integers(0, 256, (4, 3, 6, 9), dtype=np.uint8)
    records = np.concatenate([np.arange(4, dtype=np.uint8)[:, None], planes.reshape(4, -1)], axis=1)
    (tmp_path / "x.bin").write_bytes(records.tobytes())
    for row in range(4):
        cell = f"x.bin#{row * (1 + 3 * 6 * 9) + 1}:3x6x9"
        np.testing.assert_array_equal(read_photograph(tmp_path, cell), planes[row])
    np.testing.assert_array_equal(read_values(tmp_path, "x.bin#1:6x9", ())[0], planes[0, 0])


def test_a_member_that_has_changed_is_read_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "x.npz", a=np.full((2, 4, 4), value, np.uint8))
        assert (read_photograph(tmp_path, "x.npz#a/0") == value).all()


@pytest.mark.parametrize(
    "cell",
    [
        "x.npy#5", "x.npy#-1", "x.npy#1_0", "x.npy# 1", "x.npy#a", "x.npy#" + "9" * 30, "y.npy#0", "x.npz#a/0",
        "x.npz#images", "x.npz#images/5", "x.npz#images/-1", "x.npz#images/" + "9" * 18, "y.npz#images/0",
        "x.npz#flat/0", "x.npz#empty/0", "x.npz#floats/0", "x.npz#text/0", "x.npz#five/0",
        "x.bin#0:3x6x9", "x.bin#99:2x2", "x.bin#0:0x4", "x.bin#0:2", "x.bin#a", "x.bin#0:999999999x999999999x999999999",
        "y.bin#0:2x2",
    ],
)  # fmt: skip
def test_row_that_is_not_there_or_no_photograph_is_refused(tmp_path: Path, cell: str) -> None:
    np.save(tmp_path / "x.npy", ARRAYS["grey"])
    np.savez(
        tmp_path / "x.npz",
        images=ARRAYS["grey"],
        flat=np.zeros(4, np.uint8),
        empty=np.zeros((2, 0, 4), np.uint8),
        floats=np.zeros((2, 4, 4)),
        text=np.full((2, 4, 4), "a"),
        five=np.zeros((2, 6, 6, 5), np.uint8),
    )
    (tmp_path / "x.bin").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"cannot be read|is not an image|where a photograph has"):
        read_photograph(tmp_path, cell)


@pytest.mark.parametrize("name", ["x.npy#0", "x.npz#a/0"])
def test_nothing_is_unpickled(tmp_path: Path, name: str) -> None:
    pickled = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "x.npy", pickled, allow_pickle=True)
    np.savez(tmp_path / "x.npz", a=pickled)
    with pytest.raises(ValueError, match="cannot be read"):
        read_photograph(tmp_path, name)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["x.npy", "x.npz"]), at=st.integers(0, 600), bit=st.integers(0, 7), cut=st.integers(0, 700))
def test_flipped_bits_of_an_array_file_end_in_an_image_or_a_reason(
    tmp_path: Path, name: str, at: int, bit: int, cut: int
) -> None:
    array = np.zeros((2, 4, 4), np.uint8)
    if name == "x.npy":
        np.save(tmp_path / name, array)
    else:
        np.savez_compressed(tmp_path / name, a=array)
    content = bytearray((tmp_path / name).read_bytes())
    content[at % len(content)] ^= 1 << bit
    (tmp_path / name).write_bytes(content[: max(10, len(content) - max(0, cut - 500))])
    try:
        assert read_photograph(tmp_path, "x.npy#1" if name == "x.npy" else "x.npz#a/1").shape[0] == 3
    except ValueError as error:
        assert str(error)


def test_a_header_that_claims_terabytes_takes_none(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1000, 1, 1), np.uint8))
    content = (tmp_path / "x.npy").read_bytes().replace(b"(1000, 1, 1), }          ", b"(1000, 99999, 99999), }  ")
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for cell in ("x.npy#0", "x.npz#a/0"):
        with pytest.raises(ValueError, match="cannot be read"):
            read_photograph(tmp_path, cell)


def test_a_large_photograph_is_read_without_a_word(tmp_path: Path) -> None:
    """Pillow warns of images above a limit, and refuses twice as large ones; here the limit is 30 pixels."""
    save(tmp_path, Image.fromarray(COLOURS), "large.png")
    code = (
        "import sys; from pathlib import Path; from PIL import Image; from datasets.stored import read_photograph; "
        "Image.MAX_IMAGE_PIXELS = 30; print(read_photograph(Path(sys.argv[1]), 'large.png').shape)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(3, 6, 9)\n", "")
