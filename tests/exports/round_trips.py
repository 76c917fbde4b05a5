"""What each tool has written of the photographs of `truth.py`, read by stage 1, is the same to the pixel.

`bash tests/exports/run.sh` writes it and calls this; the whole suite does not collect it, as its name says.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.sources import select_images
from datasets.stored import read_values
from datasets.table import Table, read_boxes, read_table
from stages.table import TableStage
from tests.exports.truth import CLASSES, HEIGHT, PHOTOGRAPHS, WIDTH, Photograph

EXPORTS = Path(os.environ["EXPORTS"])
FLAT = "--source coco --image_folder images --annotations annotations.json"
CITYSCAPES = (
    "--source masks --mask_classes classes.txt --image_folder 'leftImg8bit/{part}/{city}' "
    "--image_suffix _leftImg8bit.png --mask_folder 'gtFine/{part}/{city}' --mask_suffix _gtFine_labelIds.png "
    "--instance_folder 'gtFine/{part}/{city}' --instance_suffix _gtFine_instanceIds.png --instance_classes things.txt"
)


def boxes(table: Table, within: float = 1e-3) -> None:
    """All boxes, with their classes, and no other."""
    found = read_boxes(table)
    names = table.info.classes["boxes"].names
    for cell in table.image_ids:
        of_image = found[found["image"] == cell]
        sides = of_image.iloc[:, 2:].to_numpy(float) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
        got = sorted((names[label], *row) for label, row in zip(of_image["class"], sides.tolist(), strict=True))
        expected = sorted((CLASSES[each.label], *map(float, each[1:])) for each in _photograph(cell).things)
        assert [name for name, *_ in got] == [name for name, *_ in expected], cell
        np.testing.assert_allclose([row for _, *row in got], [row for _, *row in expected], atol=within, err_msg=cell)


def objects(table: Table) -> None:
    """The boxes, and every pixel of every object."""
    boxes(table)
    names = table.info.classes["boxes"].names
    for cell, of_objects in zip(table.image_ids, table.cells("instances"), strict=True):
        picture = np.asarray(Image.open(table.data_path / of_objects))
        photograph, seen = _photograph(cell), np.zeros((HEIGHT, WIDTH), bool)
        for number in set(picture[..., 1].ravel().tolist()) - {0}:
            pixels = picture[..., 1] == number
            [label] = {*picture[pixels][:, 0].tolist()}
            [thing] = [each for each in photograph.things if (photograph.mask(each) == pixels).all()]
            assert names[label - 1] == CLASSES[thing.label]
            seen |= pixels
        assert (seen == (photograph.mask() > 0)).all() and not (picture[~seen] == 255).any(), cell


def masks(table: Table) -> None:
    """Every pixel's class."""
    classes = table.info.classes["mask"]
    ids = classes.ids or range(len(classes.names))
    names = dict(zip(ids, classes.names, strict=True))
    known = ("background", *CLASSES)
    for cell, mask in zip(table.image_ids, table.cells("mask"), strict=True):
        [found] = read_values(table.data_path, mask, ("L", "P"))
        expected = _photograph(cell).mask()
        for identity in np.unique(found).tolist():
            where = found == identity
            [number] = set(expected[where].tolist())
            assert names[identity] in (known[number], *["road"] * (number == 0)), (cell, identity)
            assert where.sum() == (expected == number).sum()


def both(table: Table) -> None:
    """Masks and objects."""
    masks(table)
    objects(table)


def _photograph(cell: str) -> Photograph:
    [found] = [each for each in PHOTOGRAPHS if each.name in cell]
    return found


ROUND_TRIPS: dict[str, tuple[str, Callable[[Table], None]]] = {
    "datumaro_coco_boxes": ("--source coco", boxes),
    "datumaro_coco_polygons": ("--source coco --objects outlines", objects),
    "datumaro_coco_masks": ("--source coco --objects outlines --crowds keep", lambda table: _without_background(table)),
    "datumaro_coco_panoptic": (
        "--source panoptic --image_folder 'images/{part}' --instance_classes things.txt",
        both,
    ),
    "datumaro_voc": ("--source voc", boxes),
    "datumaro_voc_masks": ("--source masks --image_folder JPEGImages --mask_folder SegmentationClass", masks),
    "datumaro_voc_masks_without_colours": (
        "--source masks --image_folder JPEGImages --mask_folder SegmentationClass --instance_folder SegmentationObject",
        both,
    ),
    "datumaro_camvid": (
        "--source masks --image_folder '{part}' --mask_folder '{part}annot' --mask_classes label_colors.txt",
        masks,
    ),
    "datumaro_darknet": (
        "--source coco --image_folder 'obj_{part}_data' --label_folder 'obj_{part}_data' --categories obj.names",
        boxes,
    ),
    "datumaro_ultralytics": ("--source coco --categories data.yaml", boxes),
    "supervision_coco": (FLAT, boxes),
    "supervision_yolo": (
        "--source coco --image_folder images --label_folder labels --categories data.yaml",
        boxes,
    ),
    "supervision_voc": ("--source voc", boxes),
    "labelme": ("--source coco --image_folder photos --annotations dataset.json --objects outlines", objects),
    "labelformat_coco": (FLAT, boxes),
    "labelformat_yolo": ("--source coco --image_folder images --label_folder labels --categories data.yaml", boxes),
    "labelformat_voc": ("--source voc", boxes),
    "globox_coco": (FLAT, boxes),
    "globox_yolo": ("--source coco --image_folder images --label_folder labels --categories names.txt", boxes),
    "globox_voc": ("--source voc", boxes),
    "kwcoco": ("--source coco --image_folder images --annotations data.kwcoco.json --objects outlines", objects),
    "label_studio_coco": ("--source coco --image_folder images --annotations result.json", boxes),
    "label_studio_yolo": (
        "--source coco --image_folder images --label_folder labels --categories classes.txt",
        boxes,
    ),
    "label_studio_voc": ("--source voc --image_folder images", lambda table: boxes(table, 1)),  # it cuts fractions off
    "cityscapes": (CITYSCAPES, both),
}


def _without_background(table: Table) -> None:
    """`objects`, of a tool that calls the background an object, which lies below the others."""
    found = read_boxes(table)
    kept = found[found["class"] != table.info.classes["boxes"].names.index("background")]
    assert len(kept) == sum(len(each.things) for each in PHOTOGRAPHS)
    for cell in table.image_ids:
        sides = kept[kept["image"] == cell].iloc[:, 2:].to_numpy(float) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
        expected = [list(each[1:]) for each in _photograph(cell).things]
        np.testing.assert_allclose(sorted(sides.tolist()), sorted(expected), atol=1e-3)


def test_all_exports_are_read() -> None:
    assert sorted(path.name for path in EXPORTS.iterdir()) == sorted(ROUND_TRIPS)


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_tool_and_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, check = ROUND_TRIPS[name]
    root = tmp_path / name
    shutil.copytree(EXPORTS / name, root)
    monkeypatch.setattr("sys.argv", ["stage 1", "--data_path", str(root), *shlex.split(arguments)])
    select_images(**TableStage.from_args(None).config)
    table = read_table(root)
    assert len(table) == len(PHOTOGRAPHS)
    check(table)
