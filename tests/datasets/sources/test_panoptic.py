"""COCO's panoptic annotations that are broken; `test_layouts.py` reads whole ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datasets.table import read_boxes
from tests.datasets.sources.finding import find, save_image, select
from utils.errors import UserError

ARGUMENTS = {"image_folder": "photos", "annotations": "panoptic.json", "mask_folder": "segments"}


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    """Four photographs of a road, number 1, with a car, number 300."""
    segments = np.zeros((8, 16, 3), np.uint8)
    segments[..., 0] = 1
    segments[2:4, 3:9] = 300 % 256, 300 // 256, 0
    info = [{"id": 1, "category_id": 7}, {"id": 300, "category_id": 26}]
    for k in range(4):
        save_image(tmp_path / "photos" / f"{k}.jpg", np.zeros((8, 16, 3), np.uint8))
        save_image(tmp_path / "segments" / f"{k}.png", segments)
    return {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(4)],
        "categories": [{"id": 7, "name": "road", "isthing": 0}, {"id": 26, "name": "car", "isthing": 1}],
        "annotations": [
            {"image_id": k, "file_name": f"{k}.png", "segments_info": [dict(each) for each in info]} for k in range(4)
        ],
    }


def write(root: Path, content: dict[str, Any]) -> None:
    (root / "panoptic.json").write_text(json.dumps(content))


def test_segments_that_are_not_listed_are_void(tmp_path: Path, content: dict[str, Any]) -> None:
    content["annotations"][0]["segments_info"].pop(0)
    write(tmp_path, content)
    table = select("panoptic", tmp_path, **ARGUMENTS)
    boxes = read_boxes(table)
    np.testing.assert_allclose(boxes.iloc[0, 2:].to_numpy(float) * [16, 8, 16, 8], [3, 2, 9, 4])
    first, second = (np.asarray(Image.open(tmp_path / cell)) for cell in table.cells("mask")[:2])
    assert (first == 255).sum() == (second == 0).sum() == 116 and (first == 1).sum() == (second == 1).sum() == 12


def test_photographs_without_their_files_are_named(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "photos" / "0.jpg").unlink()
    (tmp_path / "segments" / "1.png").unlink()
    save_image(tmp_path / "segments" / "2.png", np.zeros((16, 8, 3), np.uint8))
    write(tmp_path, content)
    assert find("panoptic", tmp_path, **ARGUMENTS).errors == [
        "photos/0.jpg: there is no such file",
        "segments/1.png: there is no such file",
        "segments/2.png: 8 x 16 pixels, another shape than its photograph's 16 x 8",
    ]


def test_what_is_no_panoptic_file_is_one_line(tmp_path: Path, content: dict[str, Any]) -> None:
    def refused(words: str, **changed: object) -> None:
        write(tmp_path, content | changed)
        with pytest.raises(UserError, match=words):
            find("panoptic", tmp_path, **ARGUMENTS)

    first = content["annotations"][0]
    refused("no list 'annotations'", annotations=None)
    refused("annotation of no image 9", annotations=[first | {"image_id": 9}])
    refused("no 'file_name'", annotations=[{"image_id": 0, "segments_info": []}])
    refused("image_id of annotations 0 stands there twice", annotations=[first, first | {"file_name": "1.png"}])
    refused(
        "a segment of 0.png is of the unknown category 8",
        annotations=[first | {"segments_info": [{"id": 1, "category_id": 8}]}],
    )
    refused(r"image_id \[1\] and file_name '0.png'", annotations=[first | {"image_id": [1]}])
    refused("None is no id", annotations=[first | {"segments_info": [{"id": None, "category_id": 7}]}])
    refused("no category is a thing", categories=[each | {"isthing": 0} for each in content["categories"]])
    with pytest.raises(UserError, match=r"no file .*none\.json; see --annotations"):
        find("panoptic", tmp_path, **ARGUMENTS | {"annotations": "none.json"})


def test_ids_may_be_text_here_and_numbers_there(tmp_path: Path, content: dict[str, Any]) -> None:
    write(tmp_path, content)
    expected = find("panoptic", tmp_path, **ARGUMENTS).boxes
    for change in (str, float, lambda identity: f" {identity} "):
        changed = [each | {"image_id": change(each["image_id"])} for each in content["annotations"]]
        write(tmp_path, content | {"annotations": changed})
        assert find("panoptic", tmp_path, **ARGUMENTS).boxes.equals(expected)


def test_parts_in_folders_of_other_names(tmp_path: Path, content: dict[str, Any]) -> None:
    for part, folder, numbers in (("train", "training", (0, 1, 2)), ("val", "validation", (3,))):
        of_part = {
            name: [each for each in content[name] if each.get("image_id", each.get("id")) in numbers]
            for name in ("images", "annotations")
        }
        (tmp_path / f"panoptic_{part}.json").write_text(json.dumps(content | of_part))
        (tmp_path / "images" / folder).mkdir(parents=True)
        for number in numbers:
            (tmp_path / "photos" / f"{number}.jpg").rename(tmp_path / "images" / folder / f"{number}.jpg")
    names = {"image_folder": "images/{part}", "annotations": "panoptic_{part}.json", "mask_folder": "segments"}
    table = select("panoptic", tmp_path, **names)
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2], [3])
    assert table.image_ids[3] == "images/validation/3.jpg"


def test_things_that_no_file_marks_are_named(tmp_path: Path, content: dict[str, Any]) -> None:
    write(tmp_path, content | {"categories": [each | {"isthing": 0} for each in content["categories"]]})
    (tmp_path / "things.txt").write_text("car\n")
    table = select("panoptic", tmp_path, **ARGUMENTS, instance_classes="things.txt")
    assert table.info.classes["boxes"].names == ("car",) and len(read_boxes(table)) == 4
    (tmp_path / "things.txt").write_text("lorry\n")
    with pytest.raises(UserError, match=r"things\.txt: 'lorry' is no category of panoptic\.json"):
        find("panoptic", tmp_path, **ARGUMENTS, instance_classes="things.txt")


def test_images_without_segments_are_counted(
    tmp_path: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    content["annotations"].pop()
    write(tmp_path, content)
    assert len(find("panoptic", tmp_path, **ARGUMENTS).rows) == 3
    assert "left out 1 photograph without segments in panoptic.json" in capsys.readouterr().out
