"""Boxes of a table, packed as its photographs are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.boxes import place
from datasets.packed import square
from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import TASKS
from tests.datasets.sources.finding import select

SIZE = 32
CPU = torch.device("cpu")


def photograph(path: Path, height: int, width: int, boxes: list[tuple[int, ...]], turned: bool = False) -> None:
    """A dark photograph with bright boxes (class, left, top, right, bottom), and its YOLO file.

    If `turned`, it is stored on its side, and its EXIF entry says so.
    """
    picture = np.zeros((height, width), np.uint8)
    lines = []
    for label, left, top, right, bottom in boxes:
        picture[top:bottom, left:right] = 255
        centre = (left + right) / 2 / width, (top + bottom) / 2 / height
        lines.append(f"{label} {centre[0]} {centre[1]} {(right - left) / width} {(bottom - top) / height}")
    image, exif = Image.fromarray(picture).convert("RGB"), Image.Exif()
    if turned:
        image, exif[0x0112] = image.transpose(Image.Transpose.ROTATE_90), 6
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, exif=exif)
    label_file = path.parents[2] / "labels" / path.parent.name / f"{path.stem}.txt"
    label_file.parent.mkdir(parents=True, exist_ok=True)
    label_file.write_text("\n".join(lines))


def table_of(data_path: Path, fit: str, **photographs: list[tuple[int, ...]]) -> Table:
    for name, boxes in photographs.items():
        height, width = (64, 128) if name.startswith("wide") else (128, 64)
        photograph(data_path / "images" / "train" / f"{name}.png", height, width, boxes, turned="turned" in name)
    photograph(data_path / "images" / "val" / "z.png", 64, 64, [(1, 8, 8, 40, 40)])
    (data_path / "names.txt").write_text("cat\ndog\n")
    return select("coco", data_path, categories="names.txt", fit=fit)


def data_of(table: Table) -> TaskData:
    return TaskData(table, table.bind(TASKS["detection"]), SIZE, CPU)


@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
@pytest.mark.parametrize("name", ["wide", "high", "high_turned", "wide_turned"])
def test_box_lies_where_the_packed_photograph_shows_it(tmp_path: Path, fit: str, name: str) -> None:
    corners = (40, 16, 88, 48) if name.startswith("wide") else (16, 40, 48, 88)
    data = data_of(table_of(tmp_path, fit, **{name: [(1, *corners)]}))
    batch = data.batch(torch.tensor([0]))
    rows, columns = np.nonzero(batch.images[0, 0].numpy() > 0.5)
    seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert batch.valid.tolist() == [[True]]
    np.testing.assert_allclose(batch.target[0, 0], [*seen, 1], atol=0.51)


def test_images_have_as_many_places_as_the_fullest_and_may_be_empty(tmp_path: Path) -> None:
    two = [(0, 8, 8, 40, 40), (1, 60, 10, 100, 60)]
    data = data_of(table_of(tmp_path, "pad", wide1=two, wide2=[], wide3=two[:1]))
    batch = data.batch(torch.arange(4))
    assert batch.valid.tolist() == [[True, True], [False, False], [True, False], [True, False]]
    assert batch.target.shape == (4, 2, 5) and batch.target.dtype == torch.float32
    assert data.train.tolist() == [0, 1, 2]  # an image without boxes is trained on


def test_what_a_square_does_not_show_is_left_out() -> None:
    # Of a picture of 100 x 50 the middle 50 columns are shown, from 25 on, at 2 pixels a column.
    def crop(left: float, right: float) -> list[list[float]]:
        box = np.array([[left / 100, 0.2, right / 100, 0.6, 3]])
        return place(box, 50, 100, "crop", 100).tolist()

    assert crop(35, 45) == [[20, 20, 40, 60, 3]]
    assert crop(15, 45) == [[0, 20, 40, 60, 3]]  # two thirds of it
    assert crop(0, 32) == [] and crop(80, 100) == []  # 7 of 32 columns, and none
    assert crop(35, 35.4) == []  # less than a pixel wide


def test_boxes_follow_the_geometry_of_the_pictures() -> None:
    # A pixel's own square, through `square` as picture and through `place` as box, for odd sizes too.
    for height, width in ((7, 12), (12, 7), (9, 9), (5, 10)):
        for fit in ("crop", "pad"):
            picture = np.zeros((1, height, width), np.uint8)
            picture[0, height // 2, width // 2] = 1
            seen, _ = square(picture, fit)
            _, row, column = np.argwhere(seen)[0]
            box = np.array([[width // 2, height // 2, width // 2 + 1, height // 2 + 1, 0]]) / [
                width,
                height,
                width,
                height,
                1,
            ]
            found = place(box, height, width, fit, seen.shape[1])
            np.testing.assert_allclose(found, [[column, row, column + 1, row + 1, 0]], atol=1e-12)


def test_of_too_many_boxes_the_largest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.boxes.MOST_BOXES", 2)
    boxes = [(0, 0, 0, 40, 40), (1, 0, 0, 10, 10), (1, 60, 10, 100, 60)]
    data = data_of(table_of(tmp_path, "pad", wide=boxes))
    assert data.batch(torch.tensor([0])).target[0, :, 4].tolist() == [0, 1]
    assert data.batch(torch.tensor([0])).target[0, 1].tolist() == [15, 10.5, 25, 23, 1]


def test_boxes_that_are_left_out_are_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("datasets.boxes.MOST_BOXES", 2)
    # Of a picture of 128 x 64 the middle 64 columns are shown, from 32 on, at half a pixel a column.
    hidden, thin, shown = (0, 0, 0, 34, 40), (1, 60, 0, 61, 40), [(1, x, 10, x + 9, 40) for x in (40, 50, 60)]
    boxes = {"wide1": [hidden, thin, *shown], "wide2": [shown[0], hidden], "wide3": [], "wide4": shown[:2]}
    table = table_of(tmp_path, "crop", **boxes)
    (tmp_path / "images" / "train" / "wide4.png").write_text("no picture")
    data_of(table)
    manifest = json.loads((tmp_path / "packed" / str(SIZE) / "boxes.json").read_text())
    counts = {name: manifest[name] for name in ("boxes", "boxes_hidden", "boxes_beyond_most")}
    assert counts == {"boxes": 8, "boxes_hidden": 3, "boxes_beyond_most": 1}
    told = [line for line in capsys.readouterr().out.splitlines() if " boxes at " in line]
    assert len(told) == 1 and ", 1 beyond the 2 largest" in told[0]
    assert told[0].startswith("left out 4 of 8 boxes at 32 px: 3 of which less than a quarter")
    data_of(table_of(tmp_path / "all", "pad", wide=shown[:2]))
    assert "left out" not in capsys.readouterr().out


def test_boxes_that_no_point_of_the_detector_can_learn_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of 128 x 64 pixels four by two are one of 32 x 32, at every fourth of which the finest points lie.
    between, around = (1, 68, 52, 78, 62), (1, 60, 44, 70, 54)
    data_of(table_of(tmp_path, "stretch", wide1=[between, around], wide2=[(0, 68, 4, 78, 14), (0, 0, 0, 128, 64)]))
    assert "at 32 px, 2 of 5 boxes are never learnt (1 of 2 cat, 1 of 3 dog)" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "packed" / str(SIZE) / "boxes.json").read_text())
    assert manifest["boxes_unlearnable"] == 2


def test_other_boxes_are_packed_anew(tmp_path: Path) -> None:
    first = data_of(table_of(tmp_path, "pad", wide=[(1, 8, 8, 40, 40)]))
    again = data_of(table_of(tmp_path, "pad", wide=[(0, 8, 8, 40, 40)]))
    assert first.version != again.version
    assert again.batch(torch.tensor([0])).target[0, 0, 4] == 0
