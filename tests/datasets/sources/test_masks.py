"""Photographs with id masks, in the layouts in which they come."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.sources.labels import regular_expression
from datasets.sources.masks import VOC_NAMES
from datasets.table import read_boxes
from datasets.task_data import TaskData
from datasets.tasks import get_task
from tests.datasets.sources.finding import find, save_image, select
from utils.errors import UserError

CPU = torch.device("cpu")


def save_mask(path: Path, ids: np.ndarray | int, palette: bool = False) -> None:
    array = np.full((8, 8), ids, np.uint8) if isinstance(ids, int) else ids.astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    if palette:
        image.putpalette([value for i in range(256) for value in (255 - i, i, 7 * i % 256)])
    image.save(path)


@pytest.fixture
def camvid(tmp_path: Path) -> Path:
    """Two photographs for training, one for testing; ids 0 and 1, and 11 for void."""
    for part, name, ids in (("train", "a", 0), ("train", "b", 1), ("test", "c", 1)):
        mask = np.full((8, 8), ids)
        mask[:2] = 11
        save_image(tmp_path / part / "rgb" / f"{name}.jpg", 40 * ids)
        save_mask(tmp_path / part / "label" / f"{name}.png", mask)
    (tmp_path / "classes.txt").write_text("sky\nroad\n")
    return tmp_path


def test_parts_and_masks_of_folders(camvid: Path) -> None:
    table = select("masks", camvid, mask_classes="classes.txt", void_ids=[11])
    assert table.files["rgb"] == ("test/rgb/c.jpg", "train/rgb/a.jpg", "train/rgb/b.jpg")
    assert table.files["mask"] == ("test/label/c.png", "train/label/a.png", "train/label/b.png")
    assert (table.test.tolist(), table.train.tolist(), table.labels.tolist()) == ([0], [1, 2], [1, 0, 1])
    assert table.class_names == ("sky", "road")
    data = TaskData(table, table.bind(get_task("segmentation")), 16, CPU)
    batch = data.batch(torch.tensor([1, 2]))
    assert (batch.target[0] == 0).all() and (batch.target[1][4:] == 1).all()
    assert not batch.valid[:, :4].any() and batch.valid[:, 4:].all()  # the void quarter counts nowhere


def test_without_names_classes_are_the_ids_that_occur(camvid: Path) -> None:
    table = select("masks", camvid)
    assert table.class_names == ("class 0", "class 1", "class 11")
    table = select("masks", camvid, void_ids=[11])
    assert table.class_names == ("class 0", "class 1") and table.info.classes["mask"].void == (11,)


def test_photographs_without_a_mask_and_broken_masks_are_named(camvid: Path) -> None:
    (camvid / "train" / "label" / "a.png").unlink()
    save_image(camvid / "train" / "rgb" / "d.jpg")
    (camvid / "train" / "label" / "d.png").write_bytes(b"no picture")
    save_image(camvid / "train" / "rgb" / "e.jpg")
    save_mask(camvid / "train" / "label" / "e.png", 99)  # an id that nobody knows
    table = select("masks", camvid, mask_classes="classes.txt", void_ids=[11])
    lines = (camvid / "missing_files.txt").read_text().splitlines()
    assert lines[0] == "train/label/a.png: there is no such mask"
    assert lines[1].startswith("train/label/d.png: not a readable image") and len(lines) == 2
    data = TaskData(table, table.bind(get_task("segmentation")), 16, CPU)
    listing = (camvid / "packed" / "16" / "unreadable_mask.txt").read_text()
    assert listing == "train/label/e.png: no pixel has the id of a class\n"
    assert [table.image_ids[i] for i in data.train] == ["train/rgb/b.jpg"]


def test_the_ending_of_a_mask_may_be_in_capitals(camvid: Path) -> None:
    folder = camvid / "train" / "label"
    (folder / "a.png").rename(folder / "a.PNG")
    assert select("masks", camvid, void_ids=[11]).files["mask"][1:] == ("train/label/a.PNG", "train/label/b.png")


def test_no_mask_is_one_line(camvid: Path) -> None:
    with pytest.raises(UserError, match=r"none of 3 photographs has a mask; .* 3 of 3: ids/c\.png: .*--mask_folder"):
        select("masks", camvid, mask_folder="ids")


def test_one_folder_is_split_at_random(tmp_path: Path) -> None:
    for number in range(20):
        save_image(tmp_path / "images" / f"{number}.png", number)
        save_mask(tmp_path / "masks" / f"{number}.png", number % 3)
    table = select("masks", tmp_path, image_folder="images", mask_folder="masks", test_fraction=0.25)
    assert len(table.test) == 5 and len(table.train) == 15
    assert table.labels.tolist() == [int(Path(cell).stem) % 3 for cell in table.image_ids]


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """PASCAL VOC's layout: palette masks with a border of 255; more of them in SegmentationClassAug."""
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("2007_000001\n2007_000002\n")
    (lists / "val.txt").write_text("2007_000003\n")
    (lists / "trainaug.txt").write_text("2007_000001\n2007_000002\n2008_000004\n")
    for stem, thing in (("2007_000001", 15), ("2007_000002", 8), ("2007_000003", 15), ("2008_000004", 3)):
        mask = np.zeros((10, 12))
        mask[2:5, 2:5], mask[1, 1:6] = thing, 255
        save_image(tmp_path / "JPEGImages" / f"{stem}.jpg", np.zeros((10, 12, 3), np.uint8))
        for folder in ("SegmentationClass", "SegmentationClassAug"):
            if folder.endswith("Aug") or stem.startswith("2007"):
                save_mask(tmp_path / folder / f"{stem}.png", mask, palette=True)
    return tmp_path


def test_pascal_voc(voc: Path) -> None:
    table = select("masks", voc)
    assert table.class_names == VOC_NAMES and len(VOC_NAMES) == 21
    assert [table.class_names[label] for label in table.labels] == ["person", "cat", "person"]  # not the background
    assert (len(table.train), table.test.tolist()) == (2, [2])  # without test images those for validation are held out
    data = TaskData(table, table.bind(get_task("segmentation")), 16, CPU)
    batch = data.batch(torch.tensor([0]))
    assert set(batch.target.unique().tolist()) == {0, 15} and not batch.valid.all()
    with_more = select("masks", voc, mask_folder="SegmentationClassAug")
    assert len(with_more.train) == 3 and with_more.class_names[with_more.labels[2]] == "bird"


def test_names_in_lists_have_dots_spaces_other_encodings_and_the_form_of_sbd(voc: Path) -> None:
    names = ["a", "a.1", "a 1", "a.2", "first", "é"]
    for label, name in enumerate(names, start=1):
        save_image(voc / "JPEGImages" / f"{name}.jpg", np.zeros((10, 12, 3), np.uint8))
        save_mask(voc / "SegmentationClass" / f"{name}.png", np.full((10, 12), label), palette=True)
    lists = voc / "ImageSets" / "Segmentation"
    of_sbd = "/JPEGImages/a.2.jpg /SegmentationClassAug/a.2.png"
    (lists / "train.txt").write_text(f"first\na.1\na 1.jpg \n{of_sbd}\n", encoding="utf-8-sig")
    (lists / "val.txt").write_bytes("é\na\n".encode("latin-1"))
    table = select("masks", voc)
    found = dict(zip(table.files["rgb"], table.labels.tolist(), strict=True))
    assert found == {"JPEGImages/first.jpg": 5, "JPEGImages/a.1.jpg": 2, "JPEGImages/a 1.jpg": 3,
                     "JPEGImages/a.2.jpg": 4, "JPEGImages/a.jpg": 1}  # fmt: skip
    assert (voc / "missing_files.txt").read_text() == "SegmentationClass/\ufffd.png: there is no such mask\n"


def test_lowest_category_is_the_class_if_asked(voc: Path) -> None:
    mask = np.zeros((10, 12))
    mask[2:9, 2:9], mask[0, 0] = 15, 2
    save_mask(voc / "SegmentationClass" / "2007_000001.png", mask, palette=True)
    names = [
        table.class_names[table.labels[0]]
        for table in (select("masks", voc), select("masks", voc, class_of_image="lowest"))
    ]
    assert names == ["person", "bicycle"]


def test_natural_groups_from_the_names_of_files(tmp_path: Path) -> None:
    for name in ("0001TP_1", "0001TP_2", "Seq05VD_f1", "loose"):
        save_image(tmp_path / "images" / f"{name}.png", 1)
        save_mask(tmp_path / "masks" / f"{name}.png", 1)
    folders = {"image_folder": "images", "mask_folder": "masks"}
    table = select("masks", tmp_path, **folders, group_pattern=r"(?P<sequence>[^_]+)_f?(?P<frame>\d+)")
    assert table.groups["sequence"].tolist() == ["0001TP", "0001TP", "Seq05VD", ""]
    assert table.groups["frame"].tolist() == ["1", "2", "1", ""]


@pytest.mark.parametrize("text", ["(", "(a)", "a", ""])
def test_an_expression_without_named_groups_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        regular_expression(text)


def test_no_photograph_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="see --image_folder"):
        select("masks", tmp_path)


def cityscapes(data_path: Path, groups: bool = True) -> dict[str, object]:
    """Four photographs on a road with two cars, in the last two a group of cars as well; returns the arguments."""
    for number in range(4):
        ids = np.full((8, 16), 7, np.uint16)
        ids[2:4, 2:5] = ids[2:4, 8:11] = 26
        objects = ids.copy()
        if number:  # the first has no object of its own
            objects[2:4, 2:5], objects[2:4, 8:11] = 26000, 26001
        ids[6:, 12:] = objects[6:, 12:] = 26 if number > 1 else 7
        name = f"val/aachen/{number}" if number == 3 else f"train/aachen/{number}"
        save_image(data_path / "left" / f"{name}_left.png", np.zeros((8, 16, 3), np.uint8))
        save_image(data_path / "fine" / f"{name}_labelIds.png", ids.astype(np.uint8))
        Image.fromarray(objects).save(data_path / "fine" / f"{name}_instanceIds.png")
    (data_path / "classes.txt").write_text("7: road\n26: car\n")
    (data_path / "things.txt").write_text("26: car\n")
    return {
        "image_folder": "left/{part}/{city}", "image_suffix": "_left.png", "mask_folder": "fine/{part}/{city}",
        "mask_suffix": "_labelIds.png", "instance_folder": "fine/{part}/{city}", "mask_classes": "classes.txt",
        "instance_classes": "things.txt",
    }  # fmt: skip


def test_maps_of_objects_with_an_ending_of_their_own_and_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = cityscapes(tmp_path)
    with pytest.raises(
        UserError, match=r"--instance_folder: fine/.*0_labelIds\.png is the mask itself.*instance_suffix"
    ):
        select("masks", tmp_path, **arguments)
    table = select("masks", tmp_path, **arguments, instance_suffix="_instanceIds.png")
    boxes = read_boxes(table)
    assert [Path(cell).name[0] for cell in boxes["image"]] == ["1", "1", "2", "2", "3", "3"]
    np.testing.assert_allclose(boxes.iloc[0, 2:].to_numpy(float), [0.125, 0.25, 0.3125, 0.5])
    first, *_, last = (np.asarray(Image.open(tmp_path / cell))[..., 0] for cell in table.cells("instances"))
    assert (first == 255).sum() == 12 and not (first == 1).any()  # cars that are not told apart are a group
    assert (last[6:, 12:] == 255).all() and (last == 255).sum() == 8 and (last == 1).sum() == 12
    assert "numbered as in Cityscapes: numbers below 1000 are groups" in capsys.readouterr().out


def test_numbers_of_ones_own_are_no_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = cityscapes(tmp_path)
    for path in (tmp_path / "fine").rglob("*_instanceIds.png"):
        values = np.asarray(Image.open(path))
        numbers = np.where(values > 999, values - 25974, 0).astype(np.uint16)  # 26 and 27, of which one is an id, too
        Image.fromarray(numbers).save(path)
    assert len(read_boxes(select("masks", tmp_path, **arguments, instance_suffix="_instanceIds.png"))) == 6
    assert "Cityscapes" not in capsys.readouterr().out
    for path in (tmp_path / "fine").rglob("*_instanceIds.png"):
        mask = np.asarray(Image.open(str(path).replace("instanceIds", "labelIds")))
        Image.fromarray(mask).save(path)
    select("masks", tmp_path, **arguments, instance_suffix="_instanceIds.png")
    assert "the maps of objects are equal to the masks" in capsys.readouterr().out


def test_own_classes_and_folders_in_the_layout_of_voc(tmp_path: Path) -> None:
    for number in range(4):
        save_image(tmp_path / "photos" / f"{number}.png", np.zeros((8, 8, 3), np.uint8))
        save_image(tmp_path / "JPEGImages" / f"{number}.png", np.zeros((8, 8, 3), np.uint8))
        for folder in ("SegmentationClass", "ids"):
            save_image(tmp_path / folder / f"{number}.png", np.full((8, 8), 1 + (folder == "ids"), np.uint8))
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("0\n1\n2\n")
    (lists / "val.txt").write_text("3\n")
    (tmp_path / "names.txt").write_text("background\nzebra\napple\n")

    def named(**more: object) -> tuple[str, str, tuple[str, ...]]:
        """The first photograph and mask, and the classes of the images."""
        table = select("masks", tmp_path, **more)
        assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2], [3])
        classes = sorted({table.class_names[label] for label in table.labels})
        return table.image_ids[0], table.cells("mask")[0], tuple(classes)

    assert named() == ("JPEGImages/0.png", "SegmentationClass/0.png", ("aeroplane",))
    assert named(mask_classes="names.txt") == ("JPEGImages/0.png", "SegmentationClass/0.png", ("zebra",))
    own = {"image_folder": "photos", "mask_folder": "ids", "mask_classes": "names.txt"}
    assert named(**own) == ("photos/0.png", "ids/0.png", ("apple",))
    with pytest.raises(UserError, match="--image_folder"):
        select("masks", tmp_path, image_folder="{part}/photos")


def test_masks_in_colours_without_a_table_are_left_out(tmp_path: Path) -> None:
    for number in range(4):
        save_image(tmp_path / "images" / f"{number}.png", np.zeros((8, 8, 3), np.uint8))
        colours = np.zeros((8, 8, 3), np.uint8)
        colours[: 2 * number, :, 0] = 200
        save_image(tmp_path / "masks" / f"{number}.png", colours)
    folders = {"image_folder": "images", "mask_folder": "masks"}
    found = find("masks", tmp_path, **folders)
    assert list(found.rows["mask"]) == ["masks/0.png"]
    assert sorted(found.errors) == [f"masks/{n}.png: a colour picture where mask has one channel" for n in (1, 2, 3)]
    (tmp_path / "masks" / "0.png").unlink()
    with pytest.raises(UserError, match=r"none of 3 masks can be read; .* --mask_classes takes a table of colours"):
        find("masks", tmp_path, **folders)


def test_lists_that_name_no_part_are_held_out_at_random(voc: Path) -> None:
    lists = voc / "ImageSets" / "Segmentation"
    for path in lists.iterdir():
        path.unlink()
    (lists / "default.txt").write_text("2007_000001\n2007_000002\n2007_000003\n")
    table = select("masks", voc, test_fraction=0.4)
    assert (len(table.train), len(table.test)) == (2, 1) and table.class_names == VOC_NAMES
