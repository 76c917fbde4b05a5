"""Targets of every source against their photographs: turned with them, or left out and named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.packed import load_packed
from datasets.table import Table, read_boxes
from datasets.tasks import TASKS
from tests.datasets.sources.finding import pixels, save_image, select
from tests.datasets.test_frame import save_turned
from utils.errors import UserError

SIZE = (12, 24)  # of the stored pictures


def corner(value: int, dtype: str = "uint8", other: int = 0) -> np.ndarray:
    """A map of the stored picture, with this value in its upper left quarter."""
    values = np.full(SIZE, other, dtype)
    values[:6, :12] = value
    return values


def photographs(data_path: Path, orientation: int = 6, n: int = 4) -> list[str]:
    """Photographs with a bright upper left quarter as they are stored, every second one turned by its EXIF entry."""
    picture = np.stack([corner(200)] * 3, axis=-1)
    for number in range(n):
        save_turned(data_path / "rgb" / f"{number}.png", picture, orientation if number % 2 else 1)
    return [f"{number}" for number in range(n)]


def overlap(table: Table, domain: str, value: float) -> np.ndarray:
    """IoU of what is bright in each packed photograph with one value of a packed target."""
    encoding = next(t.encoding for t in TASKS.values() if t.encoding and t.encoding.files == domain)
    bright = pixels(table, 12)[:, 0] > 100
    there = np.isclose(load_packed(table, encoding, 12)[0][:, 0], value)
    return (bright & there).sum((1, 2)) / (bright | there).sum((1, 2))


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_masks_and_maps_of_objects_are_turned(tmp_path: Path, orientation: int) -> None:
    for name in photographs(tmp_path, orientation):
        save_image(tmp_path / "label" / f"{name}.png", corner(1))
        save_image(tmp_path / "objects_in" / f"{name}.png", corner(7))
    (tmp_path / "names.txt").write_text("background\npatch\n")
    table = select(
        "masks",
        tmp_path,
        fit="stretch",
        image_folder="rgb",
        mask_folder="label",
        mask_classes="names.txt",
        instance_folder="objects_in",
    )
    assert overlap(table, "mask", 1).min() == overlap(table, "instances", 1).min() == 1
    boxes = read_boxes(table).iloc[:, 2:].to_numpy(float)
    upright = {5: [0, 0], 6: [0.5, 0], 7: [0.5, 0.5], 8: [0, 0.5]}[orientation]
    np.testing.assert_allclose(boxes[:2], [[0, 0, 0.5, 0.5], [*upright, *(np.array(upright) + 0.5)]])


def test_depth_is_turned_and_directions_are_named(tmp_path: Path) -> None:
    for name in photographs(tmp_path):
        Image.fromarray(corner(4000, "uint16", 1000)).save(save_image(tmp_path / "depth" / f"{name}.png"))
        save_image(tmp_path / "normals" / f"{name}.png", np.full((*SIZE, 3), (128, 128, 255), np.uint8))
    folders = {"image_folder": "rgb", "unit": [0.001]}
    table = select("maps", tmp_path, fit="stretch", target=["depth"], target_folder=["depth"], **folders)
    assert overlap(table, "depth", 4).min() > 0.8 and len(table) == 4
    table = select(
        "maps", tmp_path, target=["normals"], target_folder=["normals"], image_folder="rgb", test_fraction=0.5
    )
    assert table.image_ids == ("rgb/0.png", "rgb/2.png")
    assert (tmp_path / "missing_files.txt").read_text().count("directions cannot be turned with it") == 2


def test_columns_of_a_csv_file_are_turned_or_named(tmp_path: Path) -> None:
    names = photographs(tmp_path, n=6)
    for name in names:
        save_image(tmp_path / "label" / f"{name}.png", np.ones((12, 16), np.uint8) if name > "3" else corner(1))
    lines = [f"rgb/{name}.png,label/{name}.png" for name in names]
    (tmp_path / "images.csv").write_text("\n".join(["image,mask", *lines]))
    (tmp_path / "names.txt").write_text("background\npatch\n")
    table = select("csv", tmp_path, fit="stretch", mask_classes="names.txt")
    assert overlap(table, "mask", 1).min() == 1 and len(table) == 4
    assert (tmp_path / "missing_files.txt").read_text().splitlines() == [
        "label/4.png: 16 x 12 pixels, another shape than its photograph's 24 x 12",
        "label/5.png: 16 x 12 pixels, another shape than its photograph's 12 x 24",
    ]


def test_masks_beside_boxes_are_turned_and_boxes_leave_with_their_image(tmp_path: Path) -> None:
    names = photographs(tmp_path)
    for name in names:
        save_image(tmp_path / "label" / f"{name}.png", corner(1) if name != "0" else np.ones((12, 12), np.uint8))
    content = {
        "images": [{"id": int(name), "file_name": f"{name}.png", "width": 24, "height": 12} for name in names],
        "annotations": [{"image_id": int(name), "category_id": 1, "bbox": [0, 0, 12, 6]} for name in names],
        "categories": [{"id": 1, "name": "patch"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    table = select(
        "coco",
        tmp_path,
        fit="stretch",
        image_folder="rgb",
        annotations="boxes.json",
        mask_folder="label",
        test_fraction=0.4,
    )
    assert table.image_ids == ("rgb/1.png", "rgb/2.png", "rgb/3.png")
    assert overlap(table, "mask", 0).min() == 1  # the packed number of the first class
    assert read_boxes(table)["image"].tolist() == list(table.image_ids)


def test_a_turn_that_no_size_tells_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in photographs(tmp_path, orientation=3):
        save_image(tmp_path / "label" / f"{name}.png", corner(1))
    folders = {"image_folder": "rgb", "mask_folder": "label"}
    select("masks", tmp_path, **folders)
    assert "2 photographs turned by an EXIF entry without another shape: mask is taken" in capsys.readouterr().out
    for path in (tmp_path / "label").iterdir():
        save_image(path, np.ones((9, 9), np.uint8))
    with pytest.raises(UserError, match=r"label/0\.png: 9 x 9 pixels, another shape than its photograph's 24 x 12"):
        select("masks", tmp_path, **folders)


def test_packed_targets_follow_a_photograph_that_is_turned_later(tmp_path: Path) -> None:
    for name in photographs(tmp_path, orientation=1):
        save_image(tmp_path / "label" / f"{name}.png", corner(1))
    table = select("masks", tmp_path, fit="stretch", image_folder="rgb", mask_folder="label")
    assert overlap(table, "mask", 1).min() == 1
    photographs(tmp_path, orientation=8)
    assert overlap(table, "mask", 1).min() == 1


def test_second_photographs_are_held_against_the_first_as_both_are_seen(tmp_path: Path) -> None:
    """Turned by their EXIF entries, some to the shape of the first one and some not."""
    picture = np.stack([corner(200)] * 3, axis=-1)
    for number, (first, second) in enumerate([(1, 1), (6, 6), (3, 1), (6, 1), (1, 8)]):
        save_turned(tmp_path / f"a{number}.png", picture, first)
        save_turned(tmp_path / f"b{number}.png", picture, second)
    lines = [f"a{number}.png,b{number}.png,x" for number in range(5)]
    (tmp_path / "images.csv").write_text("\n".join(["image,rgb_next,class", *lines]))
    table = select("csv", tmp_path, test_fraction=0.4)
    assert table.image_ids == ("a0.png", "a1.png", "a2.png")
    assert (tmp_path / "missing_files.txt").read_text().splitlines() == [
        "b3.png: 24 x 12 pixels, and the frame before it has 12 x 24",
        "b4.png: 12 x 24 pixels, and the frame before it has 24 x 12",
    ]
