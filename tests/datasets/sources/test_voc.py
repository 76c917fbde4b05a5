"""Pascal VOC's folders, written as its tools do, and a real data set where there is one."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.table import read_boxes
from tests.datasets.sources.finding import save_image, select
from utils.errors import UserError

BCCD = Path(__file__).parents[4] / "shared" / "data" / "bccd"
Thing = tuple[str, tuple[float, ...]]


def write(data_path: Path, name: str, *things: Thing, size: tuple[int, int] = (80, 40), **marks: int) -> Path:
    """A photograph of 80 x 40 and its annotation, which says the size and marks all things alike; the latter's path."""
    save_image(data_path / "JPEGImages" / f"{name}.jpg", np.zeros((40, 80, 3), np.uint8))
    objects = "".join(
        f"<object><name>{called}</name>{''.join(f'<{mark}>{value}</{mark}>' for mark, value in marks.items())}"
        f"<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part><bndbox>"
        f"{''.join(f'<{side}>{at}</{side}>' for side, at in zip(('xmax', 'ymin', 'xmin', 'ymax'), sides, strict=True))}"
        "</bndbox></object>"
        for called, sides in [(called, (sides[2], sides[1], sides[0], sides[3])) for called, sides in things]
    )
    width, height = size
    path = data_path / "Annotations" / f"{name}.xml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"<annotation><filename>{name}.jpg</filename><size><width>{width}</width><height>{height}</height>"
        f"<depth>3</depth></size>{objects}</annotation>"
    )
    return path


CAT = "<object><name>cat</name><bndbox><xmin>9</xmin><ymin>5</ymin><xmax>48</xmax><ymax>24</ymax></bndbox></object>"


def lists(data_path: Path, **parts: str) -> None:
    folder = data_path / "ImageSets" / "Main"
    folder.mkdir(parents=True, exist_ok=True)
    for name, photographs in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"{each}\n" for each in photographs))


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    write(tmp_path, "a", ("dog", (1, 1, 80, 40)), ("cat", (9, 5, 48, 24)), ("cat", (41, 21, 41, 21)))
    write(tmp_path, "b", ("dog", (1, 1, 8, 8)))
    write(tmp_path, "c")
    write(tmp_path, "d", ("cat", (1, 1, 8, 8)))
    lists(tmp_path, train="ac", val="b", test="d", trainval="abc", cat_train="d")
    return tmp_path


def test_pixels_are_counted_from_1_and_the_last_belongs_to_the_box(voc: Path) -> None:
    table = select("voc", voc)
    assert table.info.classes["boxes"].names == ("cat", "dog")
    boxes = read_boxes(table)
    assert [Path(cell).stem for cell in boxes["image"]] == ["a", "a", "a", "b", "d"]
    assert boxes["class"].tolist() == [1, 0, 0, 1, 0]
    expected = [[0, 0, 1, 1], [0.1, 0.1, 0.6, 0.6], [0.5, 0.5, 41 / 80, 21 / 40]]
    np.testing.assert_allclose(boxes.iloc[:3, 2:].to_numpy(float), expected)
    labels = {Path(cell).stem: label for cell, label in zip(table.image_ids, table.labels.tolist(), strict=True)}
    assert labels == {"a": 0, "b": 1, "c": -1, "d": 0}  # the commonest; c has none, and stays
    assert not (voc / "missing_files.txt").exists()


@pytest.mark.parametrize(
    ("first", "given", "taken", "words"),
    [
        ((0, 9, 20, 20), "auto", 0, "counted from 0: 1 of 5 objects begin before 1, the first at 0 in JPEGImages/a"),
        ((9, 0.5, 20, 20), "auto", 0, "counted from 0: 1 of 5 objects begin before 1, the first at 0.5"),
        ((1, 9, 20, 20), "auto", 1, "counted from 1, as in VOC: 1 of 5 objects begin there and none before"),
        ((9, 9, 20, 20), "auto", 1, "no object begins at the border"),
        ((9, 9, 20, 20), "0", 0, ""), ((0, 9, 20, 20), "1", 1, ""),
    ],
)  # fmt: skip
def test_the_number_of_the_first_pixel_is_told_by_all_files(
    tmp_path: Path, first: tuple[float, ...], given: str, taken: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a", ("dog", first), ("dog", (40, 20, 60, 30)))
    for name in "bcd":
        write(tmp_path, name, ("cat", (40, 20, 60, 30)))
    boxes = read_boxes(select("voc", tmp_path, first_pixel=given)).set_index("image").loc["JPEGImages/d.jpg"]
    expected = np.array([40 - taken, 20 - taken, 60, 30]) / [80, 40, 80, 40]
    np.testing.assert_allclose(boxes.iloc[1:].to_numpy(float), expected)
    out = capsys.readouterr().out
    assert (words in out) if words else "first_pixel" not in out


def test_boxes_in_shares_do_not_tell_where_pixels_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", ("dog", (0.1, 0.1, 0.4, 0.4)))
    for name in "bcd":
        write(tmp_path, name, ("cat", (1, 20, 60, 30)))
    select("voc", tmp_path)
    assert "counted from 1, as in VOC: 3 of 3 objects begin there" in capsys.readouterr().out
    assert "lies within the first pixel" in (tmp_path / "missing_files.txt").read_text()


def test_elements_may_be_in_a_namespace(voc: Path) -> None:
    before = read_boxes(select("voc", voc))
    for path in (voc / "Annotations").iterdir():
        path.write_text(path.read_text().replace("<annotation>", '<annotation xmlns="http://example.org/voc">'))
    assert read_boxes(select("voc", voc)).equals(before)


def test_marks_may_be_words_and_a_side_no_number(tmp_path: Path) -> None:
    for name in "abcd":
        write(tmp_path, name, ("dog", (1, 1, 8, 8)), ("dog", (float("nan"), 1, 8, 8)))
    write(tmp_path, "d", ("dog", (1, 1, 8, 8)), difficult="true")  # type: ignore[arg-type]
    assert len(read_boxes(select("voc", tmp_path))) == 3
    assert (tmp_path / "missing_files.txt").read_text().count("has no area") == 3


def test_parts_are_those_of_the_lists(voc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def parts() -> dict[str, list[str]]:
        table = select("voc", voc)
        named = {"train": table.train, "val": table.val, "test": table.test}
        return {name: [Path(table.image_ids[at]).stem for at in rows] for name, rows in named.items()}

    assert parts() == {"train": ["a", "c"], "val": ["b"], "test": ["d"]}
    (voc / "ImageSets" / "Main" / "train.txt").unlink()
    assert parts() == {"train": ["a", "b", "c"], "val": [], "test": ["d"]}
    assert "in no list" not in capsys.readouterr().out
    lists(voc, train="ac", test="")
    (voc / "ImageSets" / "Main" / "test.txt").unlink()
    assert parts() == {"train": ["a", "c"], "val": [], "test": ["b"]}  # of VOC 2012's test part no boxes are known
    assert "left out 1 annotated photograph in no list of ImageSets/Main" in capsys.readouterr().out
    shutil.rmtree(voc / "ImageSets")
    assert sum(map(len, parts().values())) == 4


def test_folders_of_ones_own_with_words(tmp_path: Path, voc: Path) -> None:
    """Each town has photographs of the same names; one has no annotation, and one annotation no photograph."""
    for town in ("ulm", "bonn"):
        for kind, folder in (("JPEGImages", "photos"), ("Annotations", "xml")):
            shutil.copytree(voc / kind, tmp_path / "towns" / town / folder)
    (tmp_path / "towns" / "ulm" / "xml" / "a.xml").unlink()
    (tmp_path / "towns" / "ulm" / "xml" / "b.xml").rename(tmp_path / "towns" / "ulm" / "xml" / "b.XML")
    (tmp_path / "towns" / "bonn" / "photos" / "b.jpg").unlink()
    table = select("voc", tmp_path, image_folder="towns/{town}/photos", label_folder="towns/{town}/xml")
    assert table.groups["town"].tolist() == ["bonn"] * 3 + ["ulm"] * 3
    assert [Path(cell).stem for cell in table.image_ids] == list("acdbcd")
    assert (tmp_path / "missing_files.txt").read_text().splitlines() == [
        "towns/ulm/xml/a.xml: there is no such annotation",
        "towns/bonn/photos/b.jpg: there is no such photograph",
    ]


def test_difficult_objects_are_left_out_and_truncated_ones_stay(voc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(voc, "a", ("dog", (1, 1, 8, 8)), ("cat", (1, 1, 8, 8)), difficult=1, truncated=0)
    write(voc, "c", ("cat", (1, 1, 8, 8)), difficult=0, truncated=1)

    def left(**more: object) -> Counter:
        return Counter(Path(cell).stem for cell in read_boxes(select("voc", voc, **more))["image"])

    assert left() == Counter("bcd")
    assert "left out 2 objects marked as difficult; see --leave_out" in capsys.readouterr().out
    assert left(leave_out=[]) == Counter("aabcd")
    assert left(leave_out=["truncated", "difficult"]) == Counter("bd")


@pytest.mark.parametrize("size", [(0, 0), (160, 80)])
def test_a_size_that_is_not_said_or_of_another_scale(voc: Path, size: tuple[int, int]) -> None:
    write(voc, "a", ("dog", (9, 5, 48, 24)), size=size)
    [sides] = read_boxes(select("voc", voc)).iloc[:1, 2:].to_numpy(float)
    scale = 1 if size == (0, 0) else 2
    np.testing.assert_allclose(sides, np.array([0.1, 0.1, 0.6, 0.6]) / scale)


def test_a_photograph_on_its_side_has_its_boxes_turned(voc: Path) -> None:
    write(voc, "a", ("dog", (1, 1, 80, 20)))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the upper half is the right one
    Image.new("RGB", (80, 40)).save(voc / "JPEGImages" / "a.jpg", exif=exif)
    [sides] = read_boxes(select("voc", voc)).iloc[:1, 2:].to_numpy(float)
    np.testing.assert_allclose(sides, [0.5, 0, 1, 1])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Annotations/a.xml: not an annotation in Pascal VOC's XML"),
        ("<annotation><object>", "Annotations/a.xml: not an annotation"),
        ("<annotation><size><width>x</width></size></annotation>", "Annotations/a.xml: not an annotation"),
        ('<?xml version="1.0" encoding="no-such"?><a/>', "Annotations/a.xml: not an annotation"),
        (
            "<!DOCTYPE a [<!ENTITY b 'bbbbbbbbbb'>"
            + "".join(f"<!ENTITY {y} '{f'&{x};' * 99}'>" for x, y in ("bc", "cd", "de", "ef", "fg"))
            + "]><annotation>&g;</annotation>",
            "Annotations/a.xml: not an annotation",
        ),
        ("<html>404</html>", "Annotations/a.xml: not an annotation in Pascal VOC's XML (it is of <html>, not of"),
        (
            f"<annotations><annotation>{CAT}</annotation></annotations>",
            "Annotations/a.xml: not an annotation in Pascal VOC's XML (it is of <annotations>",
        ),
        (
            f"<annotation><objects>{CAT}{CAT}</objects></annotation>",
            "Annotations/a.xml: not an annotation in Pascal VOC's XML (2 objects elsewhere than in <annotation>",
        ),
        ("<annotation><Object/></annotation>", "Annotations/a.xml: not an annotation in Pascal VOC's XML (1 object"),
        (
            f"<annotation>{CAT.replace('</name>', '</name><name>dog</name>')}</annotation>",
            "Annotations/a.xml, object 1: it has 2 of <name>, where an object has one",
        ),
        (
            f"<annotation>{CAT.replace('</object>', '<bndbox/></object>')}</annotation>",
            "Annotations/a.xml, object 1: it has 2 of <bndbox>, where an object has one",
        ),
        ("<annotation><object><name> </name></object></annotation>", "Annotations/a.xml, object 1: it has no name"),
        (
            "<annotation><object><name>dog</name></object></annotation>",
            "Annotations/a.xml, object 1: no bndbox of four numbers",
        ),
        (
            "<annotation><object><name>dog</name><bndbox><xmin>9</xmin><xmax>3</xmax><ymin>1</ymin><ymax>2</ymax></bndbox>"
            "</object></annotation>",
            "JPEGImages/a.jpg: box 0.100 0.000 0.037 0.050 has no area",
        ),
        (
            "<annotation><size><width>40</width><height>80</height></size></annotation>",
            "JPEGImages/a.jpg: it is 80 x 40 pixels, and 40 x 80 in its annotations",
        ),
    ],
)
def test_what_is_broken_is_named(voc: Path, text: str, fault: str) -> None:
    (voc / "Annotations" / "a.xml").write_text(text)
    table = select("voc", voc)
    listing = (voc / "missing_files.txt").read_text()
    assert listing.startswith(fault) and listing.count("\n") == 1
    assert Counter(Path(cell).stem for cell in read_boxes(table)["image"]) == Counter("bd")


def test_what_is_missing_is_named(voc: Path) -> None:
    lists(voc, train=["a", "b", "c", "gone", "../x"], val="")
    (voc / "JPEGImages" / "c.jpg").unlink()
    assert len(select("voc", voc)) == 3
    assert (voc / "missing_files.txt").read_text().splitlines() == [
        "Annotations/gone.xml: there is no such annotation",
        "Annotations/../x.xml: there is no such annotation",
        "JPEGImages/c.jpg: there is no such photograph",
    ]


def test_a_list_that_is_no_text_names_what_is_not_there(voc: Path) -> None:
    (voc / "ImageSets" / "Main" / "val.txt").write_bytes(b"\xff\n")
    assert len(select("voc", voc)) == 3
    assert "there is no such annotation" in (voc / "missing_files.txt").read_text()


def test_nothing_to_learn_is_one_line(tmp_path: Path, voc: Path) -> None:
    with pytest.raises(UserError, match=r"0 photographs in Annotations/<name>\.xml .* no object"):
        select("voc", tmp_path / "ImageSets")
    lists(voc, test="a")
    with pytest.raises(UserError, match=r"train\.txt|test\.txt: a is in the list of another split, too"):
        select("voc", voc)
    for path in (voc / "Annotations").iterdir():
        path.write_text("<annotation></annotation>")
    lists(voc, test="d")
    with pytest.raises(UserError, match=r"4 photographs in .* and no object that is not left out"):
        select("voc", voc)


@pytest.mark.skipif(not BCCD.is_dir(), reason="bccd is not in ../shared/data")
def test_bccd(tmp_path: Path) -> None:
    """Against a plain search of its files, which have one tag a line."""
    for name in ("Annotations", "ImageSets", "JPEGImages"):
        (tmp_path / name).symlink_to(BCCD / name)
    table = select("voc", tmp_path)
    lines = [line for path in (BCCD / "Annotations").iterdir() for line in path.read_text().splitlines()]
    names = table.info.classes["boxes"].names
    boxes = read_boxes(table)
    assert {names[label]: n for label, n in Counter(boxes["class"].tolist()).items()} == {
        name: sum(f"<name>{name}</name>" in line for line in lines) for name in ("RBC", "WBC", "Platelets")
    }
    assert [len(part) for part in (table.train, table.val, table.test)] == [205, 87, 72]
    first = boxes[boxes["image"] == "JPEGImages/BloodImage_00000.jpg"].iloc[0, 2:].to_numpy(float)
    np.testing.assert_allclose(first, [259 / 640, 176 / 480, 491 / 640, 376 / 480])
    assert names[table.labels[table.image_ids.index("JPEGImages/BloodImage_00000.jpg")]] == "RBC"
