"""Tables of colours, and masks in these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.packed import load_packed
from datasets.sources.colours import colours_in, voc_colour
from datasets.sources.names import read_names
from datasets.tasks import TASKS
from tests.datasets.sources.finding import find, save_image, select
from utils.errors import UserError

FOLDERS = {"image_folder": "images", "mask_folder": "masks", "mask_classes": "table.txt"}
CAR, ROAD = (250, 50, 83), (51, 51, 51)


@pytest.mark.parametrize(
    "text",
    [
        "# label:color_rgb:parts:actions\ncar:250,50,83::\nroad: a:51,51,51:head,tail:run\n",
        "car:250,50,83\nroad: a:51,51,51\n",
        "250 50 83\tcar\n51 51 51\t\troad: a\n",
        "250,50,83,car\n51, 51, 51, road: a\n",
        "name,r,g,b\ncar,250,50,83\nroad: a,51,51,51\n",
        "Class; Red; Green; Blue\ncar;250;50;83\nroad: a;51;51;51\n",
    ],
)
def test_forms_of_tables(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.txt").write_text(text)
    assert colours_in(tmp_path / "table.txt") == {CAR: 0, ROAD: 1}
    assert read_names(tmp_path / "table.txt", "--mask_classes") == {0: "car", 1: "road: a"}


@pytest.mark.parametrize("text", ["car\nroad\n", "0: car\n1: road\n", "0 car\n1 road\n", "id,name\n0,car\n1,road\n"])
def test_other_files_of_names_have_no_colours(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.txt").write_text(text)
    assert not colours_in(tmp_path / "table.txt")
    assert read_names(tmp_path / "table.txt", "--mask_classes") == {0: "car", 1: "road"}


def test_a_table_that_leaves_colours_out_has_names_alone(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("car:250,50,83::\nroad:::\n")
    assert not colours_in(tmp_path / "table.txt")
    assert read_names(tmp_path / "table.txt", "--mask_classes") == {0: "car", 1: "road"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("car:250,50,83::\nroad:250,50,83::\n", "'car' and 'road' have one colour, #fa3253"),
        ("car:250,50,256::\n", "250, 50, 256 is no colour"),
        ("name,r,g,b\ncar,1,2\n", "no cell for each of the col"),
        ("name,r,g,b\ncar,1,2,x\n", "1, 2, x is no colour"),
    ],
)
def test_what_is_no_table_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "table.txt").write_text(text)
    for read in (lambda path: read_names(path, "--mask_classes"), colours_in):
        with pytest.raises(UserError, match=rf"table\.txt: cannot read the names of the classes \(.*{words}"):
            read(tmp_path / "table.txt")


def test_a_table_without_any_colour_has_those_of_pascal_voc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table.txt").write_text("background:::\naeroplane:::\nbicycle:::\nbird:::\nboat:::\n")
    expected = [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128)]  # as VOC's devkit lists them
    assert list(colours_in(tmp_path / "table.txt")) == expected and voc_colour(20) == (0, 64, 128)
    assert "table.txt has no colours: those of Pascal VOC are taken" in capsys.readouterr().out


def data_set(root: Path, *masks: Image.Image, name: str = "{}.png") -> None:
    for k, mask in enumerate(masks):
        save_image(root / "images" / f"{k}.png", k)
        path = root / "masks" / name.format(k)
        path.parent.mkdir(parents=True, exist_ok=True)
        mask.save(path)
    (root / "table.txt").write_text("road:51,51,51::\ncar:250,50,83::\n")


def test_masks_of_every_mode_give_the_same_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = np.zeros((8, 8), np.uint8)
    ids[2:6, 3:7] = 1
    colours = Image.fromarray(np.array([ROAD, CAR], np.uint8)[ids])
    palette = Image.fromarray(ids + 7, "P")
    palette.putpalette([0] * 21 + [*ROAD, *CAR])
    data_set(
        tmp_path, colours, colours.convert("RGBA"), palette, Image.fromarray(ids), Image.fromarray(ids.astype("u2"))
    )
    table = select("masks", tmp_path, **FOLDERS)
    assert table.class_names == ("road", "car") and len(table) == 5
    packed, _ = load_packed(table, TASKS["segmentation"].encoding, 8)
    assert all(np.array_equal(each[0], ids) for each in packed)
    assert "without a name" not in capsys.readouterr().out


def test_colours_without_a_name_are_void_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.full((8, 8, 3), CAR, np.uint8)
    values[0] = 224, 224, 192
    data_set(tmp_path, *[Image.fromarray(values)] * 3, Image.fromarray(np.full((8, 8, 3), (1, 2, 3), np.uint8)))
    found = find("masks", tmp_path, **FOLDERS)
    assert "1 colour without a name, 0.125 of all pixels, count nowhere: #e0e0c0" in capsys.readouterr().out
    assert found.errors == ["masks/3.png: no pixel has a colour of the table; it has #010203"] and len(found.rows) == 3
    ids = np.asarray(Image.open(tmp_path / found.rows["mask"][0]))
    assert (ids[0] == 255).all() and (ids[1:] == 1).all() and 255 in found.info.classes["mask"].void


def test_grey_masks_of_a_table_of_greys(tmp_path: Path) -> None:
    """0 and 255 are black and white where the table has them, and ids otherwise."""
    data_set(tmp_path, *[Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) // 32 * 255)] * 4)
    (tmp_path / "table.txt").write_text("nothing:0,0,0::\nthing:255,255,255::\n")
    found = find("masks", tmp_path, **FOLDERS)
    ids = np.asarray(Image.open(tmp_path / found.rows["mask"][0]))
    assert ids.ravel().tolist() == [0] * 32 + [1] * 32 and set(found.rows["class"]) == {0}


def test_masks_of_a_csv_file_and_of_boxes_may_have_colours(tmp_path: Path) -> None:
    data_set(tmp_path, *[Image.fromarray(np.full((8, 8, 3), CAR, np.uint8))] * 4)
    rows = "".join(f"images/{k}.png,masks/{k}.png\n" for k in range(4))
    (tmp_path / "images.csv").write_text(f"image,mask\n{rows}")
    table = select("csv", tmp_path, mask_classes="table.txt")
    assert set(np.unique(load_packed(table, TASKS["segmentation"].encoding, 8)[0])) == {1}
    for k in range(4):
        (tmp_path / "images" / f"{k}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "names.txt").write_text("thing\n")
    table = select("coco", tmp_path, **FOLDERS, label_folder="images", categories="names.txt")
    assert set(np.unique(load_packed(table, TASKS["segmentation"].encoding, 8)[0])) == {1}
