"""Numbers of pixels, read as they were saved: against files that are written byte by byte."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from datasets.as_saved import check_ids, is_deep_colour
from datasets.maps import read_map
from datasets.packed import read_image
from datasets.stored import read_photograph, read_values
from datasets.tasks import TASKS, Encoding, Scale
from tests.datasets.sources.finding import find, noise, save_image
from tests.datasets.test_pages import save_pages

MODES = ("1", "L", "P", "RGB", "RGBA", "I;16", "I")


def encoding(task: str) -> Encoding:
    found = TASKS[task].encoding
    assert found is not None
    return found


def save_png(path: Path, rows: np.ndarray, bits: int, colour: int) -> str:
    """A PNG of so many bits for a number, of the type of colour that its header has; rows (H, W, C)."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = rows.shape[:2]
    each = rows.reshape(height, -1)[..., None] >> np.arange(bits)[::-1] & 1
    packed = np.packbits(each.reshape(height, -1).astype(np.uint8), axis=1)
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in packed))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path.name


def save_tiff(path: Path, values: np.ndarray, bits: int) -> str:
    """A TIFF file of greys of so many bits, 0 being black; (H, W)."""
    height, width = values.shape
    each = values[..., None] >> np.arange(bits)[::-1] & 1
    data = np.packbits(each.reshape(height, -1).astype(np.uint8), axis=1).tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    start = struct.pack("<2sHI", b"II", 42, 8 + len(data))
    path.write_bytes(start + data + struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0))
    return path.name


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_greys_of_few_bits_are_the_ids_that_were_saved(tmp_path: Path, bits: int) -> None:
    ids = np.arange(16).reshape(2, 8) % 2**bits
    for name in (save_png(tmp_path / "a.png", ids[..., None], bits, 0), save_tiff(tmp_path / "a.tif", ids, bits)):
        for read in (read_values(tmp_path, name, MODES), read_image(tmp_path, name, encoding("segmentation"))):
            assert np.array_equal(read[0], ids)
        assert read_photograph(tmp_path, name).max() == (255 if bits < 8 else 15)


@pytest.mark.parametrize("most", [1, 3, 20, 100, 255, 300, 10_000, 40_001, 65_535])
@pytest.mark.parametrize("plain", [False, True])
def test_numbers_in_a_pgm_file_are_not_stretched_to_its_largest(tmp_path: Path, most: int, plain: bool) -> None:
    values = np.linspace(0, most, 16).astype(np.uint16).reshape(2, 8)
    head = f"P{2 if plain else 5}\n8 2\n{most}\n".encode()
    text = " ".join(map(str, values.ravel())).encode() + b"\n"
    (tmp_path / "a.pgm").write_bytes(head + (text if plain else values.astype(">u2" if most > 255 else "u1").tobytes()))
    assert np.array_equal(read_values(tmp_path, "a.pgm", MODES)[0], values)
    if most > 255:
        read = read_map(tmp_path, "a.pgm", encoding("depth"), Scale(0.001))
        np.testing.assert_allclose(read[0], values * 0.001, rtol=1e-6)


@pytest.mark.parametrize("colour, channels", [(2, 3), (4, 2), (6, 4)])
def test_pngs_of_16_bits_with_colours_or_opacity_are_refused_as_pillow_reads_8(
    tmp_path: Path, colour: int, channels: int
) -> None:
    name = save_png(tmp_path / "a.png", np.full((2, 8, channels), 3), 16, colour)
    assert is_deep_colour(tmp_path / name)
    for task in ("segmentation", "normals", "depth"):
        with pytest.raises(ValueError, match=r"of which 8 would be read; save it as \.npy"):
            read = read_map if task in ("normals", "depth") else read_image
            read(tmp_path, name, encoding(task), *[Scale()] * (read is read_map))
    assert not is_deep_colour(tmp_path / save_png(tmp_path / "b.png", np.full((2, 8, 1), 3), 16, 0))


LOSSY = {"a.jpg": {}, "b.png": {"format": "JPEG"}, "c.webp": {}} | ({"d.avif": {}} if features.check("avif") else {})


@pytest.mark.parametrize("name", LOSSY)
def test_ids_that_a_format_has_changed_are_refused(tmp_path: Path, name: str) -> None:
    Image.fromarray(noise(0, 8, 8)).save(tmp_path / name, **LOSSY[name])
    with pytest.raises(ValueError, match=r"saved with loss .*, which changes ids; save it as PNG"):
        read_image(tmp_path, name, encoding("segmentation"))


def test_webp_without_loss_has_ids(tmp_path: Path) -> None:
    ids = np.repeat(noise(0, 8, 8)[..., None], 3, axis=2)
    Image.fromarray(ids).save(tmp_path / "a.webp", lossless=True)
    assert np.array_equal(read_image(tmp_path, "a.webp", encoding("segmentation"))[0], ids[..., 0])
    Image.fromarray(ids).save(tmp_path / "b.webp", lossless=True, exif=Image.Exif())
    check_ids(tmp_path / "b.webp")
    save_pages(tmp_path / "c.webp", [ids, ids[::-1]], lossless=True)
    check_ids(tmp_path / "c.webp")
    save_pages(tmp_path / "d.webp", [ids, ids[::-1]])
    with pytest.raises(ValueError, match="with loss"):
        check_ids(tmp_path / "d.webp")


def test_masks_with_loss_are_named_of_ids_of_colours_and_of_objects(tmp_path: Path) -> None:
    ids = (noise(0, 8, 8) % 2).astype(np.uint8)
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 8, 8, 3))
        save_image(tmp_path / "label" / f"{number}.png", ids)
        save_image(tmp_path / "things" / f"{number}.png", ids)
        save_image(tmp_path / "colours" / f"{number}.png", np.repeat(ids[..., None] * 200, 3, axis=2))
    for folder in ("things", "colours"):
        Image.fromarray(ids).save(tmp_path / folder / "3.png", format="JPEG")
    (tmp_path / "names.txt").write_text("ground\ncar\n")
    (tmp_path / "colours.txt").write_text("ground:0,0,0\ncar:200,200,200\n")
    for more in (
        {"mask_folder": "colours", "mask_classes": "colours.txt"},
        {"mask_folder": "label", "mask_classes": "names.txt", "instance_folder": "things"},
    ):
        [fault] = find("masks", tmp_path, image_folder="rgb", **more).errors
        assert "/3.png: saved with loss" in fault
