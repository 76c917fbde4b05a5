"""Files of several images: counted, and read as one where they are photographs, refused where they are targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.pages import n_images_in
from datasets.sources.listing import say_pages
from datasets.stored import read_photograph, read_values
from tests.datasets.sources.finding import find, noise, save_image, select
from utils.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # as in datasets/stored.py
MODES = ("L", "P", "RGB", "RGBA", "I;16", "F")
SEVERAL = ["a.tif", "a.gif", "a.webp", "a.png"]


def save_pages(path: Path, pages: Sequence[np.ndarray], marks: Sequence[int] = (), **more: object) -> Path:
    """A file of several images; in a TIFF file, pages from the second on may be marked as the format has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = map(Image.fromarray, pages)
    for page, mark in zip(others, marks, strict=False):
        page.encoderinfo = {"tiffinfo": {254: mark}}  # type: ignore[attr-defined]
    first.save(path, save_all=True, append_images=others, **more)
    return path


@pytest.mark.parametrize("name", SEVERAL)
def test_images_are_counted_and_targets_of_several_refused(tmp_path: Path, name: str) -> None:
    pages = [noise(seed, 8, 8) for seed in range(3)]
    assert n_images_in(save_image(tmp_path / "one" / name, pages[0])) == 1
    assert n_images_in(save_pages(tmp_path / name, pages)) == 3
    with pytest.raises(ValueError, match="3 images in one file"):
        read_values(tmp_path, name, MODES)


def test_smaller_copies_and_masks_of_a_page_are_no_images(tmp_path: Path) -> None:
    pages, smaller = [noise(seed, 8, 8) for seed in range(3)], [noise(0, 4, 4)] * 2
    path = save_pages(tmp_path / "pyramid.tif", [pages[0], *smaller, pages[1]], [1, 1, 4])
    assert n_images_in(path) == 1
    np.testing.assert_array_equal(read_values(tmp_path, path.name, MODES)[0], pages[0])
    assert n_images_in(save_pages(tmp_path / "both.tif", [pages[0], *smaller, pages[2]], [1, 1])) == 2


def test_a_thumbnail_in_front_counts(tmp_path: Path) -> None:
    pages = [noise(0, 4, 4), noise(1, 8, 8)]
    assert n_images_in(save_pages(tmp_path / "a.tif", pages, [0], tiffinfo={254: 1})) == 2


def test_the_other_picture_of_a_telephone_is_none(tmp_path: Path) -> None:
    path = save_pages(tmp_path / "a.jpg", [noise(0, 8, 8, 3), noise(1, 8, 8, 3)], format="MPO")
    with Image.open(path) as image:
        assert image.n_frames == 2  # type: ignore[attr-defined]
    assert n_images_in(path) == 1


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"II*\0\x08\0\0\0", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP"])
def test_what_is_no_image_is_left_to_the_readers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    assert n_images_in(tmp_path / "a.png") == 1
    assert n_images_in(tmp_path / "none.png") == 1


def test_a_chain_of_pages_that_breaks_has_those_before(tmp_path: Path) -> None:
    pages = [noise(seed, 8, 8) for seed in range(2)]
    alone = len(save_image(tmp_path / "one.tif", pages[0]).read_bytes())
    whole = save_pages(tmp_path / "a.tif", pages).read_bytes()
    (tmp_path / "cut.tif").write_bytes(whole[: alone + 20])
    assert n_images_in(tmp_path / "cut.tif") == 1
    np.testing.assert_array_equal(read_photograph(tmp_path, "cut.tif")[0], pages[0])


@pytest.mark.parametrize("name", SEVERAL)
def test_the_first_image_of_a_photograph_is_read_and_a_line_says_so(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    grey = [np.full((8, 8), value, np.uint8) for value in (40, 90, 140)]
    for label in ("cat", "dog"):
        for number in range(4):
            save_image(tmp_path / label / f"{number}.png", noise(number, 8, 8, 3))
    save_pages(tmp_path / "dog" / f"x{name}", grey, **{"lossless": True} if "webp" in name else {})
    select("folder", tmp_path)
    assert f"1 photograph with several images in the file, up to 3 in dog/x{name}: the first" in capsys.readouterr().out
    assert (read_photograph(tmp_path, f"dog/x{name}") == 40).all()


def test_photographs_alone_in_their_files_have_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_image(tmp_path / "a.png", noise(0, 8, 8, 3))
    np.savez(tmp_path / "b.npz", x=noise(0, 2, 8, 8, 3))
    say_pages(tmp_path, ["a.png", "b.npz#x/0", "b.npz#x/1"])
    assert "several images" not in capsys.readouterr().out


def test_targets_of_several_images_are_left_out_and_named(tmp_path: Path) -> None:
    """Of ids, of colours, of maps, and of what counts in these."""
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 8, 8, 3))
        mask = (noise(number, 8, 8) % 2).astype(np.uint8)
        deep, picture = np.full((8, 8), 1500, np.uint16), np.stack([mask * 200] * 2 + [mask], axis=-1)
        for folder, values in {"label": mask, "colours": picture, "depth": deep, "counts": mask * 255}.items():
            if number < 3:
                save_image(tmp_path / folder / f"{number}.tif", values)
            else:
                save_pages(tmp_path / folder / f"{number}.tif", [values, values])
    (tmp_path / "names.txt").write_text("ground\ncar\n")
    (tmp_path / "colours.txt").write_text("ground:0,0,0\ncar:200,200,1\n")
    masks = {"image_folder": "rgb", "image_suffix": ".png", "mask_suffix": ".tif"}
    maps = {"image_folder": "rgb", "target": ["depth"], "target_folder": ["depth"], "unit": [0.001]}
    for source, more in (
        ("masks", masks | {"mask_folder": "label", "mask_classes": "names.txt"}),
        ("masks", masks | {"mask_folder": "colours", "mask_classes": "colours.txt"}),
        ("maps", maps),
    ):
        found = find(source, tmp_path, **more)
        assert len(found.rows) == 3
        [fault] = found.errors
        assert "3.tif: 2 images in one file" in fault
    for number in range(4):
        save_image(tmp_path / "depth" / f"{number}.tif", np.full((8, 8), 1500, np.uint16))
    [fault] = find("maps", tmp_path, **maps, valid_folder=["counts"]).errors
    assert "its mask counts/3.tif: 2 images in one file" in fault


def test_where_all_targets_are_such_the_error_says_it(tmp_path: Path) -> None:
    for number in range(3):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 8, 8, 3))
        save_pages(tmp_path / "depth" / f"{number}.tif", [np.full((8, 8), 1500, np.uint16)] * 5)
    with pytest.raises(UserError, match=r"3 of 3: depth/0.tif: 5 images in one file"):
        find("maps", tmp_path, image_folder="rgb", target=["depth"], target_folder=["depth"], unit=[0.001])
