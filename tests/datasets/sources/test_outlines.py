"""Maps of objects from outlines and from two maps: pixels counted by hand, run lengths by COCO's own tools."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from faster_coco_eval.core import mask as coco
from PIL import Image

from datasets.classes import VOID, ClassSet
from datasets.sources.outlines import boxes_in, combine, inside, map_of, paint
from datasets.table import Table, read_boxes
from datasets.task_data import Batch, TaskData
from datasets.tasks import TASKS
from tests.datasets.sources.finding import save_image, select
from tests.datasets.sources.test_masks import save_mask
from utils.errors import UserError

SQUARE = [[2, 2, 6, 2, 6, 6, 2, 6]]


def map_at(data_path: Path, cell: str) -> np.ndarray:
    return np.asarray(Image.open(data_path / map_of(cell)))


# Outlines


def test_polygons_are_filled_as_cocos_tools_do() -> None:
    found = inside([[1, 1, 9, 1, 9, 5], [10, 10, 14, 10, 14, 15, 10, 15]], (20, 16), (16, 20))
    rectangle = np.zeros((16, 20), bool)
    rectangle[10:15, 10:14] = True
    assert np.array_equal(found[8:], rectangle[8:]) and 10 <= found[:8].sum() <= 24
    halved = inside([[1, 1, 9, 1, 9, 5], [10, 10, 14, 10, 14, 15, 10, 15]], (20, 16), (8, 10))
    assert halved.shape == (8, 10) and halved[5:7, 5:7].all()


def test_polygons_inside_and_outside_are_pycocotools() -> None:
    # pycocotools 2.0.11: merge(frPyObjects([polygon], 48, 64)); areas of the first, and the CRC of all 300 masks.
    areas = [135, 1752, 0, 319, 1627, 3001, 329, 0, 0, 547, 1042, 117, 516, 1408, 1848, 640, 464, 3072, 465, 1749]
    rng, masks = np.random.default_rng(0), []
    for number in range(300):
        n, sides = int(rng.integers(3, 9)), np.array([640, 480])
        away = (0, 1, 5)[number % 3]  # sides that corners may be away from the photograph
        corners = rng.integers(-away * sides, (1 + away) * sides + 1, (n, 2)) / 10
        masks.append(inside([corners.ravel().tolist()], (64, 48), (48, 64)))
    assert [int(mask.sum()) for mask in masks[:20]] == areas
    assert zlib.crc32(np.stack(masks).tobytes()) == 2148390122


def test_edges_of_polygons_that_leave_the_photograph_stay_straight() -> None:
    # At y the triangle reaches from 50 - 2.5 (46 - y) on.
    found = inside([[-40, 10, 50, 10, 50, 46]], (64, 48), (48, 64))
    for y in (20, 30, 40):
        assert abs(int(np.flatnonzero(found[y])[0]) - max(0, 50 - 2.5 * (46 - y - 0.5))) <= 1.5
    with pytest.raises(ValueError, match="more than 100 times the photograph's side out of it"):
        inside([[-1e9, 10, 50, 10, 50, 46]], (64, 48), (48, 64))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_run_lengths_are_cocos(seed: int, compressed: bool) -> None:
    mask = np.kron(np.random.default_rng(seed).random((9, 12)) > 0.6, np.ones((1 + 20 * seed, 3), bool))
    if compressed:
        outline = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        outline["counts"] = outline["counts"].decode()
    else:
        flat = np.concatenate([[False], mask.T.ravel(), [not mask.T.ravel()[-1]]])
        ends = np.flatnonzero(np.diff(flat.astype(int)))
        outline = {"size": list(mask.shape), "counts": np.diff(np.concatenate([[0], ends])).tolist()}
    assert np.array_equal(inside(outline, mask.shape[::-1], mask.shape), mask)


@pytest.mark.parametrize(
    "outline",
    [
        [[1, 2, 3, 4]],
        [],
        "x",
        7,
        [[]],
        [{}],
        [[1, 2, float("nan"), 4, 5, 6]],
        [["x", 2, 3, 4, 5, 6]],
        [[1, 2, 3, 4, 5]],
        {"size": [16, 20], "counts": [4, 4]},
        {"size": [16, 20], "counts": "~~~"},
        {"size": [16, 20], "counts": [330, -10]},
        {"size": [20, 16], "counts": [320]},
    ],
)
def test_what_is_no_outline_is_refused(outline: object) -> None:
    with pytest.raises(ValueError) as caught:
        inside(outline, (20, 16), (16, 20))
    assert re.search("polygon|run lengths", str(caught.value))  # in our words, not in Python's


def test_small_objects_stay_whole_and_void_is_beneath_them() -> None:
    wide, small, crowd = (np.zeros((8, 8), bool) for _ in range(3))
    wide[:, :6], small[2:4, 2:4], crowd[:4] = True, True, True
    picture = paint([(1, small), (2, wide), (VOID, crowd)], (8, 8))
    assert (picture[small] == (1, 2, 0)).all() and (picture[wide & ~small] == (2, 1, 0)).all()
    assert (picture[crowd & ~wide] == (VOID, 0, 0)).all() and not picture[4:, 6:].any()
    assert boxes_in(picture) == [(1, 0, 0, 0.75, 1), (0, 0.25, 0.25, 0.5, 0.5)]


def write_photographs(data_path: Path, annotations: list[dict]) -> None:
    """Two photographs for training and one that is held out, each 16 x 8, with these annotations each."""
    for part, names in (("train", "ab"), ("val", "c")):
        for name in names:
            save_image(data_path / "images" / part / f"{name}.png", np.full((8, 16, 3), 90, np.uint8))
        content = {
            "images": [{"id": name, "file_name": f"{name}.png", "width": 16, "height": 8} for name in names],
            "annotations": [
                {"id": i, "image_id": name, "bbox": [2, 2, 4, 4]} | each
                for name in names
                for i, each in enumerate(annotations)
            ],
            "categories": [{"id": 5, "name": "cat"}, {"id": 300, "name": "dog"}],
        }
        (data_path / "annotations").mkdir(exist_ok=True)
        (data_path / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))


GOOD, STRAY = [2, 2, 6, 2, 6, 6, 2, 6], [8, 1, 9, 1]


@pytest.mark.parametrize(
    ("annotation", "of_cat", "void", "fault"),
    [
        ({"segmentation": [GOOD, STRAY]}, "square", "", ""),
        ({"segmentation": [GOOD, []]}, "square", "", ""),
        ({"segmentation": GOOD}, "square", "", ""),
        ({"segmentation": [STRAY]}, "", "square", "no polygon of three points or more"),
        ({"segmentation": [[]]}, "", "square", "no polygon of three points or more"),
        ({"segmentation": [[x / 16 for x in GOOD]]}, "", "square", "a polygon in shares of the sides beside a box in"),
        ({"segmentation": "x"}, "", "square", "neither polygons nor run lengths"),
        ({"segmentation": {"size": [8, 16]}}, "", "square", "run lengths without a size of two numbers and counts"),
        (
            {"segmentation": [GOOD, [9, 1, None, 4, 5, 6]], "bbox": [2, 2, 8, 4]},
            "square",
            "right",
            "a ring that is not",
        ),
        ({"segmentation": [STRAY], "bbox": None}, "", "all", "without a category, or a bbox"),
        ({"segmentation": [GOOD], "bbox": None}, "square", "", ""),
        ({"segmentation": {"size": [8, 16], "counts": "~"}, "iscrowd": 1, "bbox": []}, "", "all", "run lengths"),
        ({"segmentation": [GOOD], "category_id": None}, "", "square", "without a category"),
        ({"segmentation": [[x / 16 for x in GOOD]], "bbox": None}, "", "all", "lies within the first pixel"),
        ({"bbox": [0.2, 0.2, 0.4, 0.4]}, "", "all", "box 0.2 0.2 0.6 0.6 lies within the first pixel: in shares of"),
        ({"segmentation": [GOOD], "bbox": [0.2, 0.2, 0.4, 0.4]}, "square", "", "lies within the first pixel"),
        ({"segmentation": [GOOD], "bbox": [0, 0, 0, 0]}, "square", "", "has no area"),
    ],
)
def test_what_cannot_be_read_of_an_object_counts_nowhere(
    tmp_path: Path, annotation: dict, of_cat: str, void: str, fault: str
) -> None:
    """Beside a dog in the lower right corner, a cat of which something is broken."""
    dog = {"category_id": 300, "bbox": [12, 6, 4, 2], "segmentation": [[12, 6, 16, 6, 16, 8, 12, 8]]}
    write_photographs(tmp_path, [dog, {"category_id": 5} | annotation])
    select("coco", tmp_path, objects="outlines")
    picture = map_at(tmp_path, "images/train/a.png")[..., 0]
    places = {name: np.zeros((8, 16), bool) for name in ("square", "right", "all", "", "dog")}
    places["square"][2:6, 2:6] = places["right"][2:6, 6:10] = places["dog"][6:, 12:] = places["all"][:] = True
    assert np.array_equal(picture == 1, places[of_cat]) and np.array_equal(picture == 2, places["dog"])
    assert np.array_equal(picture == VOID, places[void] & ~places["dog"])
    listing = tmp_path / "missing_files.txt"
    assert (fault in listing.read_text()) if fault else not listing.exists()


@pytest.mark.parametrize(
    "bbox, says",
    [([2, 2, 4, 4], False), ([2, 2, 6, 6], True), ([3, 3, 4, 4], True), ([2.5, 2, 4, 4], False), ([0, 0, 0, 0], True)],
)
def test_polygons_elsewhere_than_their_boxes_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bbox: list[float], says: bool
) -> None:
    dog = {"category_id": 300, "bbox": [12, 6, 4, 2], "segmentation": [[12, 6, 16, 6, 16, 8, 12, 8]]}
    write_photographs(tmp_path, [dog, {"category_id": 5, "segmentation": SQUARE, "bbox": bbox}])
    select("coco", tmp_path)
    line = (
        "1 of 2 objects have a polygon elsewhere than their box, as instances_val.json, annotation 1: 2 2 6 6 beside "
    )
    assert (line in capsys.readouterr().out) == says


def batch_of(table: Table, size: int = 16) -> Batch:
    data = TaskData(table, table.bind(TASKS["instances"]), size, torch.device("cpu"))
    return data.batch(torch.arange(len(table)))


def test_annotations_become_maps(tmp_path: Path) -> None:
    run_lengths = {"size": [8, 16], "counts": [8 * 10, 8 * 2, 8 * 4]}
    write_photographs(
        tmp_path,
        [
            {"category_id": 300, "segmentation": SQUARE},
            {"category_id": 5, "segmentation": run_lengths},
            {"category_id": 5, "segmentation": {"size": [8, 16], "counts": [8 * 14, 16]}, "iscrowd": 1},
            {"category_id": 5, "bbox": [8, 0, 2, 8]},
        ],
    )
    table = select("coco", tmp_path, fit="stretch", objects="outlines")
    assert table.info.domains == ("rgb", "instances") and table.info.classes["boxes"].names == ("cat", "dog")
    batch = batch_of(table)
    classes, numbers = batch.target[0, 0], batch.target[0, 1]  # twice as high as the photograph
    assert (classes[4:12, 2:6] == 2).all() and (classes[:, 10:12] == 1).all() and (classes > 0).sum() == 32 + 32
    assert len(numbers.unique()) == 3
    crowd, without_outline = batch.valid[0, 0, :, 14:], batch.valid[0, 0, :, 8:10]
    assert not crowd.any() and not without_outline.any()
    assert batch.valid[0].sum() == 16 * 12
    assert len(read_boxes(table)) == 9
    packed = tmp_path / "packed" / "16" / "instances.npy"
    before = packed.stat().st_mtime_ns
    batch_of(select("coco", tmp_path, fit="stretch", objects="outlines"))
    assert packed.stat().st_mtime_ns == before  # the same maps are not written again


def test_an_object_without_a_readable_outline_is_named(tmp_path: Path) -> None:
    write_photographs(
        tmp_path, [{"category_id": 300, "segmentation": SQUARE}, {"category_id": 5, "segmentation": [[1, 2, 3, 4]]}]
    )
    select("coco", tmp_path, objects="outlines")
    assert (tmp_path / "missing_files.txt").read_text().count("an object whose outline cannot be read") == 3
    write_photographs(tmp_path, [{"category_id": 5, "segmentation": [[0.1, 0.1, 0.5, 0.1, 0.5, 0.5]]}])
    with pytest.raises(
        UserError, match=r"no outline of an object in 3 photographs; the commonest error, 3 of 3: .*shares"
    ):
        select("coco", tmp_path, objects="outlines")
    write_photographs(tmp_path, [{"category_id": 300}])
    with pytest.raises(UserError, match="no outline of an object in 3 photographs; give --objects boxes"):
        select("coco", tmp_path, objects="outlines")


def test_maps_are_turned_with_photographs(tmp_path: Path) -> None:
    write_photographs(tmp_path, [{"category_id": 5, "segmentation": [[0, 0, 4, 0, 4, 2, 0, 2]]}])
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees clockwise: the upper left corner comes to the upper right
    image = Image.new("RGB", (16, 8))
    image.save(tmp_path / "images" / "train" / "a.png", exif=exif)
    select("coco", tmp_path, objects="outlines")
    found = map_at(tmp_path, "images/train/a.png")[..., 0]
    assert found.shape == (16, 8) and (found[:4, 6:] == 1).all() and found.sum() == 8


def test_polygons_of_label_files(tmp_path: Path) -> None:
    for part, names in (("train", "ab"), ("val", "c")):
        for name in names:
            save_image(tmp_path / "images" / part / f"{name}.png", np.zeros((8, 16, 3), np.uint8))
            text = (
                "" if name == "b" else "7 0.125 0.25 0.375 0.25 0.375 0.75 0.125 0.75\n7 0.75 0.5 0.25 0.5\n7 1 2 3\n"
            )
            path = tmp_path / "labels" / part / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    save_image(tmp_path / "images" / "train" / "d.png", np.zeros((8, 16, 3), np.uint8))
    (tmp_path / "names.txt").write_text("7: cat\n")
    table = select("coco", tmp_path, categories="names.txt", objects="outlines", fit="stretch")
    assert len(table) == 3  # nobody knows what the fourth shows
    found = map_at(tmp_path, "images/train/a.png")[..., 0]
    assert (found[2:6, 2:6] == 1).all() and (found == 1).sum() == 16
    assert (found == VOID).sum() == found.size - 16  # what the third line shows may be anywhere
    assert not map_at(tmp_path, "images/train/b.png").any()
    boxes = read_boxes(table)
    assert boxes.iloc[0, 2:].tolist() == [0.125, 0.25, 0.375, 0.75] and len(boxes) == 4
    listing = (tmp_path / "missing_files.txt").read_text()
    assert "line 3: not id, centre, width and height, nor id and polygon" in listing
    assert "images/train/d.png: no labels/train/d.txt says which objects it shows" in listing


# Two maps


CLASSES = ClassSet(("road", "cat", "dog"), (1, 5, 9), (255,))


def test_two_maps_become_one() -> None:
    ids = np.full((6, 8), 1)
    ids[:3, :3], ids[:3, 4:7], ids[0, 0], ids[5] = 5, 9, 9, 255
    objects = np.zeros((1, 6, 8), np.uint16)
    objects[0, :3, :3], objects[0, :3, 4:7], objects[0, 3, :], objects[0, 5, :4], objects[0, 4, 4:] = 70, 3, 8, 255, 12
    picture = combine(objects, ids, CLASSES, {1: 0, 2: 1}, {12})
    assert (picture[:3, :3] == (1, 2, 0)).all()  # a cat, but for one pixel
    assert sorted({tuple(each) for each in picture[:3, 4:7].reshape(-1, 3)}) == [(2, 1, 0)]
    inside = ids.copy()
    inside[1, 1] = 255  # a pixel in the midst of the cat
    expected = picture.copy()
    expected[1, 1] = (VOID, 0, 0)
    assert np.array_equal(combine(objects, inside, CLASSES, {1: 0, 2: 1}, {12}), expected)
    assert not picture[3].any() and not picture[4, :4].any()  # road, with a number and without
    assert (picture[4, 4:] == (VOID, 0, 0)).all() and (picture[5] == (VOID, 0, 0)).all()
    coloured = np.concatenate([objects % 7, objects // 7, objects * 0])
    coloured[:, 4, 4:] = 0
    assert np.array_equal(combine(coloured, ids, CLASSES, {1: 0, 2: 1}, ())[:4], picture[:4])
    with pytest.raises(ValueError, match="its size differs from that of its mask"):
        combine(objects[:, 1:], ids, CLASSES, {1: 0, 2: 1}, ())


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Photographs with masks of background, cats and a border, and maps of two cats."""
    for part, names in (("train", "ab"), ("test", "c")):
        for name in names:
            ids, objects = np.zeros((8, 8)), np.zeros((8, 8))
            ids[1:7, 1:7], ids[:, 7] = 1, 255
            objects[1:7, 1:4], objects[1:7, 4:7], objects[:, 7] = 1, 2, 255
            save_image(tmp_path / part / "rgb" / f"{name}.jpg", 50)
            save_mask(tmp_path / part / "label" / f"{name}.png", ids)
            save_mask(tmp_path / part / "objects" / f"{name}.png", objects, palette=True)
    (tmp_path / "classes.txt").write_text("background\ncat\n")
    return tmp_path


ASKED = {"mask_classes": "classes.txt", "void_ids": [255], "instance_folder": "{part}/objects"}


def test_folders_of_maps(folders: Path) -> None:
    table = select("masks", folders, **ASKED)
    assert table.info.domains == ("rgb", "mask", "instances")
    assert (table.info.classes["boxes"].names, table.info.classes["boxes"].ids) == (("cat",), (1,))
    batch = batch_of(table)
    for target, valid in zip(batch.target, batch.valid[:, 0], strict=True):
        assert [(target[1] == number).sum() for number in (1, 2)] == [72, 72] and (target[0] > 0).sum() == 144
        assert not valid[:, 14:].any() and valid[:, :14].all()
    boxes = read_boxes(table)
    assert len(boxes) == 6 and boxes.iloc[0, 2:].tolist() == [1 / 8, 1 / 8, 4 / 8, 7 / 8]
    assert (
        table.serves(TASKS["instances"]) and table.serves(TASKS["segmentation"]) and not table.serves(TASKS["normal"])
    )


def test_maps_that_are_missing_or_do_not_fit_are_named(folders: Path) -> None:
    (folders / "train" / "objects" / "a.png").unlink()
    table = select("masks", folders, **ASKED)
    assert table.image_ids == ("test/rgb/c.jpg", "train/rgb/b.jpg")
    assert (folders / "missing_files.txt").read_text().startswith("train/objects/a.png: not a readable image")
    (folders / "names.txt").write_text("3: eel\n")
    with pytest.raises(UserError, match=r"names\.txt: 3 is no id of the masks"):
        select("masks", folders, **ASKED, instance_classes="names.txt")
    with pytest.raises(UserError, match=r"no object in the maps of 3 images.*see --instance_folder"):
        select("masks", folders, **ASKED | {"instance_folder": "nowhere"})
