"""Photographs with boxes, from instances files and from YOLO's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from datasets.table import read_boxes
from tests.datasets.sources.finding import save_image, select
from utils.errors import UserError


def write_instances(data_path: Path, part: str, images: list[dict], annotations: list[dict]) -> None:
    categories = [{"id": 1, "name": "person"}, {"id": 13, "name": "stop sign"}, {"id": 90, "name": "toothbrush"}]
    path = data_path / "annotations" / f"instances_{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(annotations):
        each.setdefault("id", number)
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    for image in images:
        save_image(
            data_path / "images" / part / image["file_name"], np.zeros((image["height"], image["width"], 3), np.uint8)
        )


def image(number: int, width: int = 80, height: int = 40) -> dict:
    return {"id": number, "file_name": f"{number:012}.jpg", "width": width, "height": height}


def box(number: int, category: int, bbox: list[float], **more: object) -> dict:
    return {"image_id": number, "category_id": category, "bbox": bbox, "iscrowd": 0, **more}


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    train = [
        box(1, 13, [8, 4, 40, 20]), box(1, 1, [0, 0, 80, 40]), box(1, 1, [4, 4, 4, 4]), box(2, 90, [40, 20, 40, 20]),
        box(2, 1, [0, 0, 10, 10], iscrowd=1),
    ]  # fmt: skip
    write_instances(tmp_path, "train2017", [image(1), image(2), image(3)], train)
    write_instances(tmp_path, "val2017", [image(7)], [box(7, 13, [0, 0, 8, 8])])
    return tmp_path


def test_boxes_of_instances_files(coco: Path) -> None:
    table = select("coco", coco)
    assert table.image_ids == tuple(
        f"images/{p}2017/{n:012}.jpg" for p, n in [("train", 1), ("train", 2), ("train", 3), ("val", 7)]
    )
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2], [3])
    assert table.info.classes["boxes"].names == ("person", "stop sign", "toothbrush")
    assert table.info.classes["boxes"].ids == (1, 13, 90)
    boxes = read_boxes(table)
    assert boxes["image"].tolist() == [table.image_ids[i] for i in (0, 0, 0, 1, 3)]  # no crowds
    assert boxes["class"].tolist() == [1, 0, 0, 2, 1]
    np.testing.assert_allclose(boxes.iloc[0, 2:].to_numpy(float), [0.1, 0.1, 0.6, 0.6])
    assert table.labels.tolist() == [0, 2, -1, 1]  # the commonest; the third has none, and stays
    assert not (coco / "missing_files.txt").exists()


def test_class_of_an_image_may_be_its_lowest_category(coco: Path) -> None:
    write_instances(
        coco, "train2017", [image(1)], [box(1, 13, [0, 0, 8, side]) for side in (8, 9)] + [box(1, 1, [0, 0, 8, 8])]
    )
    assert select("coco", coco).labels[0] == 1
    assert select("coco", coco, class_of_image="lowest").labels[0] == 0


@pytest.mark.parametrize(
    "bbox, category, fault",
    [
        ([0, 0, 0, 10], 1, "has no area"), ([10, 10, -5, 10], 1, "has no area"),
        ([float("nan"), 0, 5, 5], 1, "has no area"), ([80, 0, 20, 10], 1, "lies outside its image"),
        ([-5, -20, 20, 10], 1, "lies outside its image"), ([0, 0, 5, 5], 2, "unknown category 2"),
    ],
)  # fmt: skip
def test_bad_boxes_are_named_and_left_out(coco: Path, bbox: list[float], category: int, fault: str) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [0, 0, 8, 8]), box(1, category, bbox)])
    table = select("coco", coco)
    assert (read_boxes(table)["image"] == table.image_ids[0]).sum() == 1
    listing = (coco / "missing_files.txt").read_text()
    assert listing.startswith("images/train2017/000000000001.jpg: box ") and fault in listing


def test_a_box_that_reaches_out_by_rounding_is_cut(coco: Path) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [-0.4, 0, 80.8, 40.2])])
    [found] = read_boxes(select("coco", coco)).iloc[:1, 2:].to_numpy(float).tolist()
    assert found == [0, 0, 1, 1]


def test_a_box_that_reaches_over_the_border_is_cut_and_counted(coco: Path, capsys: pytest.CaptureFixture) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [60, -10, 30, 30]), box(1, 13, [0, 0, 8, 8])])
    [found] = read_boxes(select("coco", coco)).iloc[:1, 2:].to_numpy(float).tolist()
    assert found == [0.75, 0, 1, 0.5]
    assert "cut 1 box that reaches over the border" in capsys.readouterr().out


@pytest.mark.parametrize("lacking", [{"bbox": None}, {"bbox": []}, {"bbox": [1, 2, "x", 4]}, {"category_id": None}])
def test_an_annotation_without_a_box_is_named_and_the_others_stay(coco: Path, lacking: dict) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [0, 0, 8, 8]), box(1, 1, [0, 0, 8, 8]) | lacking])
    assert (read_boxes(select("coco", coco))["image"] == f"images/train2017/{1:012}.jpg").sum() == 1
    assert (coco / "missing_files.txt").read_text() == (
        "instances_train2017.json, annotation 1: without a category, or a bbox of four numbers\n"
    )


@pytest.mark.parametrize("part", ["train2017", "val2017"])
def test_crowds_are_counted_and_can_be_kept(coco: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_instances(coco, part, [image(1), image(2)], [box(n, 13, [8, 4, 40, 20], iscrowd=1 - n // 2) for n in (1, 2)])
    n_left = len(read_boxes(select("coco", coco)))
    out = capsys.readouterr().out
    assert f"left out 1 of 2 annotations in instances_{part}.json marked as crowds (iscrowd 1); --crowds keep" in out
    assert len(read_boxes(select("coco", coco, crowds="keep"))) - n_left == 1 + (part == "val2017")


@pytest.mark.parametrize(("iscrowd", "is_left_out"), [("0", False), ("false", False), ("1", True), (True, True)])
def test_marks_of_crowds_may_be_text(coco: Path, iscrowd: object, is_left_out: bool) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [0, 0, 8, 8], iscrowd=iscrowd)])
    assert len(read_boxes(select("coco", coco))) == 2 - is_left_out


@pytest.mark.parametrize("name", [None, " "])
def test_a_category_without_a_name_is_refused(coco: Path, name: str | None) -> None:
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text("\ufeff" + path.read_text())  # which is read
    select("coco", coco)
    path.write_text(path.read_text().replace('"toothbrush"', json.dumps(name)))
    with pytest.raises(UserError, match="category 90 has no name"):
        select("coco", coco)


def test_shares_in_place_of_pixels_are_refused(coco: Path) -> None:
    for part in ("train2017", "val2017"):
        write_instances(coco, part, [image(1)], [box(1, 1, [0.1, 0.2, 0.3, 0.8])])
    with pytest.raises(UserError, match="no box reaches beyond the first pixel"):
        select("coco", coco)


def test_shares_beside_pixels_are_named_and_left_out(coco: Path) -> None:
    write_instances(coco, "val2017", [image(7)], [box(7, 1, [0.1, 0.2, 0.3, 0.8]), box(7, 13, [0, 0, 8, 8])])
    table = select("coco", coco)
    assert (read_boxes(table)["image"] == table.image_ids[3]).sum() == 1
    fault = f"{table.image_ids[3]}: box 0.1 0.2 0.4 1 lies within the first pixel: in shares of the image's sides?\n"
    assert (coco / "missing_files.txt").read_text() == fault


def test_an_object_may_be_the_first_pixel(coco: Path) -> None:
    write_instances(coco, "val2017", [image(7)], [box(7, 13, [0, 0, 1, 1])])
    boxes = read_boxes(select("coco", coco))
    np.testing.assert_allclose(boxes.iloc[-1, 2:].to_numpy(float), [0, 0, 1 / 80, 1 / 40])


def test_crowds_alone_are_the_reason_of_the_error(coco: Path) -> None:
    for part in ("train2017", "val2017"):
        write_instances(coco, part, [image(1)], [box(1, 1, [0, 0, 8, 8], iscrowd=1)] * 3)
    with pytest.raises(UserError, match="no valid box in 2 photographs; see --crowds: 6 annotations marked as crowds"):
        select("coco", coco)


def test_a_box_that_stands_there_twice_is_taken_once(coco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = [box(1, 1, [0, 0, 8, 8]), box(1, 1, [0, 0, 8, 8.0]), box(1, 13, [0, 0, 8, 8]), box(1, 1, [0, 0, 8, 9])]
    write_instances(coco, "train2017", [image(1)], twice)
    boxes = read_boxes(select("coco", coco))
    assert boxes["class"].tolist()[:-1] == [0, 1, 0]
    assert "left out 1 box that their photographs have already" in capsys.readouterr().out


def test_photographs_that_the_file_does_not_name_are_counted(coco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_image(coco / "images" / "val2017" / "other.jpg")
    select("coco", coco)
    assert "left out 1 photograph that instances_val2017.json does not name: other.jpg" in capsys.readouterr().out


def test_folders_of_no_part_and_other_endings_are_said(coco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_image(coco / "images" / "holdout" / "1.jpg")
    (coco / "images" / "empty").mkdir()
    (coco / "images" / "val2017" / "9.heic").touch()
    select("coco", coco)
    out = capsys.readouterr().out
    assert (
        "left out folders of images/{part} with photographs, called like no split (train, val, test): images/holdout"
        in out
    )
    assert "left out files of images/val2017 whose endings are not read as photographs: 1 .heic" in out


def test_one_id_with_two_names_is_refused(coco: Path) -> None:
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace("toothbrush", "comb"))
    with pytest.raises(UserError, match="category 90 is 'comb' here and 'toothbrush' in another split"):
        select("coco", coco)


def test_photographs_in_sub_folders(coco: Path) -> None:
    places = [image(1) | {"file_name": "a/x.jpg"}, image(2) | {"file_name": "b/x.jpg"}]
    write_instances(coco, "train2017", places, [box(1, 1, [0, 0, 8, 8]), box(2, 13, [8, 8, 8, 8])])
    for cell in ("train2017/a/x", "train2017/b/x", f"val2017/{7:012}"):
        save_image(coco / "masks" / f"{cell}.png", np.full((8, 16), 1, np.uint8))
    table = select("coco", coco, mask_folder="masks/{part}")
    assert table.image_ids[:2] == ("images/train2017/a/x.jpg", "images/train2017/b/x.jpg")
    assert table.cells("mask")[:2] == ("masks/train2017/a/x.png", "masks/train2017/b/x.png")
    assert read_boxes(table)["class"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("file_name", ["train2017/1.jpg", "/elsewhere/1.jpg", "../1.jpg"])
def test_photographs_whose_names_have_folders_that_are_not_there(coco: Path, file_name: str) -> None:
    write_instances(coco, "train2017", [image(1) | {"file_name": "1.jpg"}], [box(1, 1, [0, 0, 8, 8])])
    path = coco / "annotations" / "instances_train2017.json"
    path.write_text(path.read_text().replace("1.jpg", file_name))
    assert select("coco", coco).image_ids[0] == "images/train2017/1.jpg"


def test_a_flat_folder_is_held_out_at_random(coco: Path) -> None:
    for name in ("images", "annotations"):
        for path in (coco / name).glob("train2017/*" if name == "images" else "*train2017.json"):
            path.rename(coco / name / path.name)
    (coco / "annotations" / "instances_train2017.json").rename(coco / "boxes.json")
    with pytest.raises(UserError, match=r"without \{part\} it may be one flat folder"):
        select("coco", coco, image_folder="nothing/{part}")
    table = select("coco", coco, image_folder="images", annotations="boxes.json", test_fraction=0.4)
    assert table.image_ids == tuple(f"images/{number:012}.jpg" for number in (1, 2, 3))
    assert (len(table.train), len(table.test)) == (2, 1)


def test_parts_that_the_files_alone_name(coco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (coco / "images").glob("*/*"):
        path.rename(coco / "images" / path.name)
    save_image(coco / "images" / "other.jpg")
    table = select("coco", coco, image_folder="images")
    assert table.image_ids == tuple(f"images/{number:012}.jpg" for number in (1, 2, 3, 7))
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2], [3])
    line = "1 photograph that none of instances_train2017.json, instances_val2017.json names: other.jpg"
    assert line in capsys.readouterr().out


def test_one_file_of_several_folders_is_refused(coco: Path) -> None:
    (coco / "annotations" / "instances_train2017.json").rename(coco / "all.json")
    with pytest.raises(UserError, match=r"all\.json: the file of several folders, images/train2017, images/val2017"):
        select("coco", coco, annotations="all.json")


def test_folders_and_files_may_spell_a_part_otherwise(coco: Path) -> None:
    (coco / "images" / "train2017").rename(coco / "images" / "Training")
    (coco / "images" / "val2017").rename(coco / "images" / "validation")
    table = select("coco", coco)
    assert [Path(cell).parent.name for cell in table.image_ids] == ["Training"] * 3 + ["validation"]
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2], [3]) and len(read_boxes(table)) == 5


def test_an_address_may_end_with_a_query(coco: Path) -> None:
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text(
        path.read_text().replace(f"{7:012}.jpg", f"http://h/val2017/{7:012}.jpg?x=1").replace("file_name", "coco_url")
    )
    assert select("coco", coco).image_ids[3] == f"images/val2017/{7:012}.jpg"


def test_more_classes_of_outlines_than_a_map_has_are_refused(coco: Path) -> None:
    outline = {"segmentation": [[0, 0, 8, 0, 8, 8]]}
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [0, 0, 8, 8], **outline)])
    for path in (coco / "annotations").iterdir():
        content = json.loads(path.read_text())
        content["categories"] += [{"id": 100 + k, "name": f"class {k}"} for k in range(252)]
        path.write_text(json.dumps(content))
    assert len(select("coco", coco).info.classes["boxes"].names) == 255
    with pytest.raises(UserError, match="255 classes of objects, and a map of objects has at most 254"):
        select("coco", coco, objects="outlines")


def test_names_as_windows_writes_them(coco: Path) -> None:
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace(f"{7:012}.jpg", f"sub\\\\{7:012}.jpg"))
    (coco / "images" / "val2017" / "sub").mkdir()
    photograph = coco / "images" / "val2017" / f"{7:012}.jpg"
    photograph.rename(photograph.parent / "sub" / photograph.name)
    assert select("coco", coco).image_ids[3] == f"images/val2017/sub/{7:012}.jpg"


def test_an_image_without_a_name_and_an_address_is_refused(coco: Path) -> None:
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text().replace("file_name", "name"))
    with pytest.raises(UserError, match="image 7 has neither file_name nor coco_url"):
        select("coco", coco)


@pytest.mark.parametrize(
    ("orientation", "upright"), [*((each, True) for each in range(1, 9)), *((each, False) for each in (1, 5, 6, 7, 8))]
)
def test_boxes_lie_where_the_upright_photograph_shows_them(
    coco: Path, orientation: int, upright: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bright box in 80 x 48 stored ones; annotated as it is shown, or, where sizes tell them apart, as stored."""
    stored = np.zeros((48, 80, 3), np.uint8)
    stored[4:12, 16:32] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    width, height = (48, 80) if orientation > 4 and upright else (80, 48)
    picture = Image.fromarray(stored)
    picture.getexif().update(exif)
    shown = np.asarray(ImageOps.exif_transpose(picture))[:, :, 0]
    y, x = (np.flatnonzero(shown.max(axis=axis)) for axis in (1, 0))
    bbox = [x[0], y[0], x[-1] + 1 - x[0], y[-1] + 1 - y[0]] if upright else [16, 4, 16, 8]
    write_instances(coco, "train2017", [image(1, width, height)], [box(1, 1, [int(each) for each in bbox])])
    Image.fromarray(stored).save(coco / "images" / "train2017" / f"{1:012}.jpg", exif=exif)
    [found] = read_boxes(select("coco", coco)).iloc[:1, 2:].to_numpy(float)
    assert ("no size tells" in capsys.readouterr().out) == (orientation in (2, 3, 4))
    sides = [x[0], y[0], x[-1] + 1, y[-1] + 1] / np.tile(shown.shape[::-1], 2)
    np.testing.assert_allclose(found, sides)


def test_a_photograph_of_another_size_is_named(coco: Path) -> None:
    write_instances(coco, "train2017", [image(1), image(2), image(3)], [box(i, 1, [0, 0, 40, 40]) for i in (1, 2, 3)])
    save_image(coco / "images" / "train2017" / f"{2:012}.jpg", np.zeros((20, 40, 3), np.uint8))  # a smaller copy
    save_image(coco / "images" / "train2017" / f"{3:012}.jpg", np.zeros((80, 40, 3), np.uint8))
    table = select("coco", coco)
    assert [Path(cell).stem[-1] for cell in table.image_ids] == ["1", "2", "7"]
    assert read_boxes(table)["right"].tolist()[:2] == [0.5, 0.5]
    assert (coco / "missing_files.txt").read_text() == (
        f"images/train2017/{3:012}.jpg: it is 40 x 80 pixels, and 80 x 40 in its annotations\n"
    )


def test_a_turn_that_the_size_does_not_tell_is_said(coco: Path, capsys: pytest.CaptureFixture) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.new("RGB", (80, 40)).save(coco / "images" / "train2017" / f"{1:012}.jpg", exif=exif)
    select("coco", coco)
    assert "1 photograph turned by an EXIF entry, and no size tells" in capsys.readouterr().out


def test_annotation_of_no_photograph_is_named(coco: Path) -> None:
    write_instances(coco, "train2017", [image(1)], [box(1, 1, [0, 0, 8, 8]), box(5, 1, [0, 0, 8, 8])])
    select("coco", coco)
    assert "annotation 1: of no photograph" in (coco / "missing_files.txt").read_text()


@pytest.mark.parametrize("of_image, of_annotation", [("1", 1), (1, "1"), (1.0, 1), (1, " 1"), ("a7", "a7")])
def test_ids_may_be_text_here_and_numbers_there(coco: Path, of_image: object, of_annotation: object) -> None:
    boxes = [box(1, "13", [0, 0, 8, 8]) | {"image_id": of_annotation}]
    write_instances(coco, "train2017", [image(1) | {"id": of_image}], boxes)
    assert read_boxes(select("coco", coco))["class"].tolist()[0] == 1
    assert not (coco / "missing_files.txt").exists()


@pytest.mark.parametrize("identity", [True, None, [1]])
def test_an_image_id_is_a_number_or_text(coco: Path, identity: object) -> None:
    write_instances(coco, "train2017", [image(1) | {"id": identity}], [])
    with pytest.raises(UserError, match=r"has no id\); see --annotations"):
        select("coco", coco)


def test_names_with_the_folders_of_windows(coco: Path) -> None:
    path = coco / "annotations" / "instances_train2017.json"
    path.write_text(path.read_text().replace(f"{1:012}.jpg", f"C:\\\\images\\\\{1:012}.jpg"))
    assert select("coco", coco).image_ids[0] == f"images/train2017/{1:012}.jpg"


def test_photographs_that_are_not_there_are_named(coco: Path) -> None:
    (coco / "images" / "train2017" / f"{2:012}.jpg").unlink()
    table = select("coco", coco)
    assert [Path(cell).stem[-1] for cell in table.image_ids] == ["1", "3", "7"]
    assert set(read_boxes(table)["image"]) == {table.image_ids[0], table.image_ids[2]}
    listing = (coco / "missing_files.txt").read_text()
    assert listing == f"images/train2017/{2:012}.jpg: there is no such photograph\n"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"images": 3, "annotations": [], "categories": []}'])
def test_broken_instances_file_is_one_line(coco: Path, content: str) -> None:
    (coco / "annotations" / "instances_train2017.json").write_text(content)
    with pytest.raises(UserError, match="not a COCO instances file"):
        select("coco", coco)


@pytest.fixture
def yolo(tmp_path: Path) -> Path:
    """Two photographs for training, one without a .txt file, and one to test on."""
    for part, name, lines in (
        ("train", "a", "1 0.5 0.25 0.5 0.5\n0 0.5 0.5 1 1\n"),
        ("train", "b", ""),
        ("val", "c", "0 0.5 0.5 0.2 0.2"),
    ):
        save_image(tmp_path / "images" / part / f"{name}.jpg")
        if lines:
            path = tmp_path / "labels" / part / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(lines)
    (tmp_path / "names.yaml").write_text("names: {0: cat, 1: dog}\n")
    return tmp_path


def test_photographs_without_a_label_file_are_counted(yolo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    select("coco", yolo, categories="names.yaml")
    line = "1 of 2 photographs in images/train have no label file, and are without objects: b.jpg\n"
    assert line in capsys.readouterr().out


def test_label_files_may_end_in_capitals(yolo: Path) -> None:
    (yolo / "labels" / "train" / "a.txt").rename(yolo / "labels" / "train" / "a.TXT")
    assert len(read_boxes(select("coco", yolo, categories="names.yaml"))) == 3


def test_ids_that_are_counted_from_another_number_are_doubted(yolo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, stem in (("train", "a"), ("val", "c")):
        (yolo / "labels" / part / f"{stem}.txt").write_text("1 0.5 0.5 0.2 0.2\n2 0.5 0.5 0.1 0.1\n")
    select("coco", yolo, categories="names.yaml")
    line = "no box has id 0, and some 2, but names are of 0 to 1: counted from another?"
    assert line in capsys.readouterr().out
    (yolo / "labels" / "train" / "a.txt").write_text("0 0.5 0.5 0.2 0.2\n2 0.5 0.5 0.1 0.1\n")
    select("coco", yolo, categories="names.yaml")
    assert line not in capsys.readouterr().out


def test_words_of_yolos_folders_are_groups(yolo: Path) -> None:
    for name in ("images", "labels"):
        for path in sorted((yolo / name).glob("*/*")):
            target = yolo / name / "ulm" / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    folders = {
        "image_folder": "images/{city}/{part}",
        "label_folder": "labels/{city}/{part}",
        "categories": "names.yaml",
    }
    table = select("coco", yolo, **folders)
    assert table.groups["city"].tolist() == ["ulm"] * 3 and len(table.test) == 1
    with pytest.raises(UserError, match=r"\{class\} would be a natural group called like another column"):
        select("coco", yolo, **{name: path.replace("city", "class") for name, path in folders.items()})


def test_photographs_are_taken_once_and_what_stage_1_writes_is_none(yolo: Path) -> None:
    """In a data folder that is the photographs' own, with a link to a folder around it."""
    for path in (*sorted((yolo / "images").glob("*/*")), *sorted((yolo / "labels").glob("*/*"))):
        path.rename(yolo / path.name)
    (yolo / "b.txt").write_text("0 0.1 0.1 0.9 0.1 0.9 0.9")
    (yolo / "c.txt").write_text("0 0.1 0.1 0.9 0.1 0.9 0.9")
    for name in ("c.jpg", "c.txt"):
        (yolo / "images" / name).parent.mkdir(exist_ok=True)
        (yolo / name).rename(yolo / "images" / name)
    (yolo / "images" / "again").symlink_to(yolo / "images")
    folders = {"image_folder": ".", "label_folder": ".", "categories": "names.yaml", "test_fraction": 0.4}
    for objects in ("outlines", "boxes"):
        assert select("coco", yolo, **folders, objects=objects).image_ids == ("a.jpg", "b.jpg", "images/c.jpg")
    lines = (yolo / "missing_files.txt").read_text()
    assert "'images/again/c.jpg': by a link the same file as 'images/c.jpg'" in lines


def test_parts_that_no_word_names_are_held_out_at_random_with_a_line(
    yolo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = select(
        "coco", yolo, image_folder="images", label_folder="labels", categories="names.yaml", test_fraction=0.4
    )
    assert len(table) == 3
    assert "images has sub-folders train, val; the test split is drawn from all at random" in capsys.readouterr().out


def test_boxes_of_yolo(yolo: Path) -> None:
    table = select("coco", yolo, categories="names.yaml")
    boxes = read_boxes(table)
    assert boxes["class"].tolist() == [1, 0, 0]
    np.testing.assert_allclose(boxes.iloc[0, 2:].to_numpy(float), [0.25, 0, 0.75, 0.5])
    assert table.labels.tolist() == [0, -1, 0]
    (yolo / "labels" / "train" / "a.txt").write_bytes(b"1 0.5 0.25 0.5\n\xff 0.5 0.5 1 1\n0 0.5 0.5 1 1\n")
    assert len(read_boxes(select("coco", yolo, categories="names.yaml"))) == 2
    assert (yolo / "missing_files.txt").read_text().count("not id, centre, width and height") == 2
    with pytest.raises(UserError, match="--categories"):
        select("coco", yolo)


def test_ids_with_a_point_and_a_byte_order_mark(yolo: Path) -> None:
    (yolo / "labels" / "train" / "a.txt").write_text("\ufeff1.0 0.5 0.25 0.5 0.5\n\n0.0 0.5 0.5 1 1\n1.5 0.5 0.5 1 1\n")
    boxes = read_boxes(select("coco", yolo, categories="names.yaml"))
    assert boxes["class"].tolist() == [1, 0, 0]
    assert (yolo / "missing_files.txt").read_text().startswith("labels/train/a.txt, line 4: not id,")


def test_label_files_of_no_photograph_are_counted(yolo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (yolo / "labels" / "train" / "frame_7.txt").write_text("1 0.5 0.5 1 1\n")
    save_image(yolo / "images" / "train" / "a.png")
    select("coco", yolo, categories="names.yaml")
    out = capsys.readouterr().out
    assert "left out 1 label file of no photograph: labels/train/frame_7.txt" in out
    assert "1 label file for several photographs: labels/train/a.txt" in out


def test_no_valid_box_is_one_line(yolo: Path) -> None:
    for path in (yolo / "labels").rglob("*.txt"):
        path.write_text("7 0.5 0.5 1 1\n")
    reason = "no valid box in 3 photographs; the commonest error, 2 of 2: images/train/a.jpg: box .* unknown category 7"
    with pytest.raises(UserError, match=f"{reason}; see --annotations and --label_folder"):
        select("coco", yolo, categories="names.yaml")
    assert not (yolo / "filtered_file_paths.csv").exists()


def test_masks_beside_boxes(yolo: Path) -> None:
    for name in "ac":
        save_image(yolo / "masks" / ("train" if name == "a" else "val") / f"{name}.png", np.full((8, 8), 4, np.uint8))
    (yolo / "stuff.txt").write_text("0: unlabeled\n4: grass\n")
    table = select(
        "coco", yolo, categories="names.yaml", mask_folder="masks/{part}", mask_classes="stuff.txt", void_ids=[0]
    )
    assert table.image_ids == ("images/train/a.jpg", "images/val/c.jpg")
    assert table.info.classes["mask"].names == ("grass",) and table.info.classes["mask"].void == (0,)
    assert "masks/train/b.png: there is no such mask" in (yolo / "missing_files.txt").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "images/train/a.jpg,9,0,0,1,1",
        "images/x.jpg,0,0,0,1,1",
        "images/train/a.jpg,0,0,0,2,1",
        "images/train/a.jpg,0,0.5,0,0.5,1",
        "images/train/a.jpg,0,x,0,1,1",
        "a,b",
    ],
)
def test_broken_file_of_boxes_names_the_stage(yolo: Path, line: str) -> None:
    table = select("coco", yolo, categories="names.yaml")
    (yolo / "filtered_boxes.csv").write_text(f"image,class,left,top,right,bottom\n{line}\n")
    with pytest.raises(UserError, match=r"run extract_datapoints_for_experiments\.py again"):
        read_boxes(table)
    (yolo / "filtered_boxes.csv").unlink()
    with pytest.raises(UserError, match="is missing"):
        read_boxes(table)


def test_no_photograph_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="see --image_folder"):
        select("coco", tmp_path)


@pytest.mark.parametrize("name", ["embedding", "object"])
def test_natural_groups_do_not_take_the_name_of_another_split(coco: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"natural groups cannot be called '{name}'"):
        select("coco", coco, group_pattern=f"(?P<{name}>.)")
