"""Tables that anyone can write: columns, encodings, quotation marks, and rows that are left out or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import s2cell
from PIL import Image

from datasets.classes import VOID
from datasets.packed import load_packed
from datasets.tasks import get_task
from tests.datasets.flows import flow_of, write_flo
from tests.datasets.sources.finding import find, noise, rows_of, save_image, select, write_image
from utils.errors import UserError


def write(data_path: Path, text: str | bytes, *images: str) -> None:
    """The csv file, and images that are not empty."""
    content = text.encode() if isinstance(text, str) else text
    (data_path / "images.csv").write_bytes(content)
    for name in images:
        (data_path / name).parent.mkdir(parents=True, exist_ok=True)
        (data_path / name).write_bytes(b"x")


FOUR = [f"{i}.jpg" for i in range(4)]


def test_columns_are_classes_parts_and_natural_groups(tmp_path: Path) -> None:
    write(
        tmp_path,
        "image,user_id,class,lat,split,lon\n0.jpg,ann,dog,1.50,train,-7\n./1.jpg,bob,cat,,Validation,\n"
        "a//2.jpg,,cat,3,TEST,8\n",
        "0.jpg",
        "1.jpg",
        "a/2.jpg",
    )
    found = find("csv", tmp_path)
    assert found.info.groups == ("user_id", "lat", "lon") and found.info.classes["class"].names == ("cat", "dog")
    assert rows_of(found, "user_id", "lat", "lon", "part") == {
        ("0.jpg", "dog", "ann", "1.50", "-7", "train"),
        ("1.jpg", "cat", "bob", "", "", "val"),
        ("a/2.jpg", "cat", "", "3", "8", "test"),
    }
    table = select("csv", tmp_path)
    assert table.groups["user_id"].tolist() == ["ann", "bob", ""]
    assert [part.tolist() for part in (table.train, table.val, table.test)] == [[0], [1], [2]]


@pytest.mark.parametrize(
    "cells, names, labels",
    [
        (["10", "9", "10", "0"], ("0", "9", "10"), [2, 1, 2, 0]),
        (["3.0", "1.0", "3.0", "2.00"], ("1", "2", "3"), [2, 0, 2, 1]),
        (["3.5", "1.0", "3.5", "1.0"], ("1.0", "3.5"), [1, 0, 1, 0]),
        (["b", "1", "a", "b"], ("1", "a", "b"), [2, 0, 1, 2]),
    ],
)
def test_classes_are_names_or_numbers(
    tmp_path: Path, cells: list[str], names: tuple[str, ...], labels: list[int]
) -> None:
    write(tmp_path, "image,class\n" + "".join(f"{i}.jpg,{cell}\n" for i, cell in enumerate(cells)), *FOUR)
    found = find("csv", tmp_path)
    assert found.info.classes["class"].names == names and found.rows["class"].tolist() == labels


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_whatever_a_spreadsheet_writes(tmp_path: Path, separator: str, line_end: str, encoding: str) -> None:
    rows = [["image", "class"], ["größe 1.jpg", '"a ""big"" one"'], ["1.jpg", f' "x{separator} y"'], ["2.jpg", " é "]]
    text = line_end.join([separator.join(row) for row in rows] + ["", ""])
    write(tmp_path, text.encode(encoding), "größe 1.jpg", "1.jpg", "2.jpg")
    assert rows_of(find("csv", tmp_path)) == {
        ("größe 1.jpg", 'a "big" one'),
        ("1.jpg", f"x{separator} y"),
        ("2.jpg", "é"),
    }


def test_it_reads_what_pandas_writes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"image": FOUR, "class": [1, 2, None, 1], "note": ['a "b", c', None, "d", " e"]})
    write(tmp_path, "", *FOUR)
    frame.to_csv(tmp_path / "images.csv")  # with its index, a column without a name, and classes as 1.0 and 2.0
    found = find("csv", tmp_path)
    assert rows_of(found, "note") == {("0.jpg", "1", 'a "b", c'), ("1.jpg", "2", ""), ("3.jpg", "1", "e")}
    assert found.errors == ["images.csv, line 4: no class"]


def test_rows_that_are_left_out_are_named_by_line(tmp_path: Path) -> None:
    write(
        tmp_path,
        "image,class,split\n0.jpg,a,train\ngone.jpg,a,train\n1.jpg,,train\n2.jpg,a,\n,a,train\n0.jpg,b,test\n"
        '1.jpg,a\n1.jpg,"two\nlines",test\n\nempty.jpg,a,train\nfolder,a,train\n3.jpg,a,test\n',
        *FOUR,
        "folder/x.jpg",
    )
    (tmp_path / "empty.jpg").touch()
    found = find("csv", tmp_path)
    assert rows_of(found) == {("0.jpg", "a"), ("3.jpg", "a")}
    assert [fault.removeprefix("images.csv, line ") for fault in found.errors] == [
        "8: not a cell for each of the 3 columns",
        "10: not a cell for each of the 3 columns",
        "3: gone.jpg: no such file",
        "4: no class",
        "5: no split",
        "6: no image",
        "7: the image stands there twice",
        "12: empty.jpg: an empty file",
        "13: folder: no file",
    ]


def test_words_that_may_stand_for_nothing_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "image,class,site\n0.jpg,a,NULL\n1.jpg,None,NULL\n2.jpg,b,x\n3.jpg,nan,y\n", *FOUR)
    assert rows_of(find("csv", tmp_path), "site") == {
        ("0.jpg", "a", "NULL"),
        ("1.jpg", "None", "NULL"),
        ("2.jpg", "b", "x"),
    }
    line = "taken for names, where a cell without a value is to be empty: 2 × 'NULL' in site, 1 × 'None' in class\n"
    assert f"images.csv: {line}" in capsys.readouterr().out


def test_letters_that_are_guessed_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "images.csv is not in UTF-8: read in Windows' Latin letters (cp1252)"
    for encoding, says in (("gbk", True), ("utf-8", False), ("utf-16", False)):
        write(tmp_path, "image,class\n0.jpg,狗\n1.jpg,b\n".encode(encoding), *FOUR)
        find("csv", tmp_path)
        assert (line in capsys.readouterr().out) == says


def test_numbers_that_are_written_in_two_ways_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "image,class\n0.jpg,01\n1.jpg,1\n2.jpg,10\n3.jpg,2\n", *FOUR)
    assert find("csv", tmp_path).info.classes["class"].names == ("01", "1", "2", "10")
    assert "'01' and '1' are taken for different classes" in capsys.readouterr().out


def test_nan_is_an_empty_cell(tmp_path: Path) -> None:
    write(tmp_path, "image,class,site\n0.jpg,1.0,nan\n1.jpg,nan,x\n2.jpg,NaN,x\n3.jpg,0.0,<NA>\n", *FOUR)
    found = find("csv", tmp_path)
    assert rows_of(found, "site") == {("0.jpg", "1", ""), ("3.jpg", "0", "")}
    assert found.errors == ["images.csv, line 3: no class", "images.csv, line 4: no class"]


@pytest.mark.parametrize("cell", ["../0.jpg", "/etc/passwd", "a/../../0.jpg", "a\\0.jpg", "C:\\0.jpg"])
def test_a_path_outside_the_data_folder_is_refused(tmp_path: Path, cell: str) -> None:
    write(tmp_path, f"image,class\n0.jpg,a\n{cell},a\n", "0.jpg")
    with pytest.raises(UserError, match=r"images\.csv, line 3: .* is not a path within the data folder"):
        find("csv", tmp_path)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "no column image among none"),
        ("path,label\n0.jpg,a\n", "no column image among path, label"),
        ("image,user\n0.jpg,a\n", r"no column class, and none of files \(depth_euclidean, normal.*mask\)"),
        ("image,class,class\n0.jpg,a,b\n", "two columns have the same name"),
        ("image,class,rgb\n0.jpg,a,b\n", "cannot be called 'rgb'"),
        ("image,class,embedding\n0.jpg,a,b\n1.jpg,a,b\n", "natural groups cannot be called 'embedding'"),
        ("image,class\n", "no row under the names of its columns"),
        ("image,class\n0.jpg,-1\n1.jpg,0\n2.jpg,1\n", "class '-1': classes are numbered from 0 on"),
        ("image,class\n0.jpg,0.0\n1.jpg,-1.0\n", r"class '-1\.0': classes are numbered from 0 on"),
        ("image,class,split\n0.jpg,a,train\n1.jpg,a,dev\n", "line 3: 'dev' is not one of train, val and test"),
        ('image,class\n0.jpg,"a\n1.jpg,b\n', r"images\.csv, line 3: .* a quotation mark not closed"),
        (b"image,class\n0.jpg,\x81\x8d\n", "no text in UTF-8"),
        ("image,mask\n0.jpg,1.jpg\n", "the column mask holds ids of classes: give --mask_classes"),
        ("image,class\n7.jpg,a\n", "no image is left; the commonest error, 1 of 1: images.csv, line 2: 7.jpg"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    write(tmp_path, text, *FOUR)
    with pytest.raises(UserError, match=reason) as caught:
        select("csv", tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named_with_their_argument(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"other\.csv: cannot be read .* see --table_file"):
        find("csv", tmp_path, table_file="other.csv")
    write(tmp_path, "image,mask\n0.jpg,1.png\n", *FOUR, "1.png")
    with pytest.raises(UserError, match=r"names\.txt: cannot read the names"):
        find("csv", tmp_path, mask_classes="names.txt")
    (tmp_path / "names.txt").write_text("\n".join(map(str, range(256))))
    with pytest.raises(UserError, match=r"none of 1 mask can be read; the commonest error, 1 of 1: 1\.png: not a read"):
        find("csv", tmp_path, mask_classes="names.txt")
    save_image(tmp_path / "1.png", np.zeros((8, 8), np.uint8))
    with pytest.raises(UserError, match=r"256 classes.*where masks can have 1 to 255"):
        find("csv", tmp_path, mask_classes="names.txt")


def test_masks_and_depth_reach_the_packed_arrays(tmp_path: Path) -> None:
    ids, depth = np.array([[0, 1], [3, 255]], np.uint8), np.array([[512, 1024], [2048, 65535]], np.uint16)
    for i in range(4):
        write_image(tmp_path / f"{i}.jpg")
        Image.fromarray(ids).save(tmp_path / f"mask{i}.png")
        Image.fromarray(depth).save(tmp_path / f"depth{i}.png")
    (tmp_path / "depth3.png").unlink()
    (tmp_path / "names.txt").write_text("road\n sky \n\ncar\n")
    rows = [f"{i}.jpg,mask{i}.png,{'ab'[i % 2]},depth{i}.png,{'' if i else 'x'}\n" for i in range(4)]
    (tmp_path / "images.csv").write_text("image,mask,place,depth_euclidean,class\n" + "".join(rows))
    table = select("csv", tmp_path, mask_classes="names.txt", void_ids=[255, 1], test_fraction=0.4)
    assert table.info.domains == ("rgb", "mask", "depth_euclidean") and table.info.groups == ("place",)
    assert table.class_set(get_task("segmentation")).names == ("road", "car")
    assert table.labels.tolist() == [0, -1, -1] and table.class_names == ("x",)
    masks, _ = load_packed(table, get_task("segmentation").encoding, 2)
    assert masks[0, 0].tolist() == [[0, VOID], [1, VOID]]
    packed, _ = load_packed(table, get_task("depth_euclidean").encoding, 2)
    assert packed[2, 0].tolist() == depth.tolist()
    assert "line 5: depth3.png: no such file" in (tmp_path / "missing_files.txt").read_text()


@pytest.mark.parametrize("names", ["lat,lon", "Latitude,lng"])
def test_places_become_cells(tmp_path: Path, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["46.5,6.6", "46.6,6.6", ",", "-33,151"]
    rows = [f"{i}.jpg,{i % 2},{place},{'test' if i == 1 else 'train'}\n" for i, place in enumerate(places)]
    write(tmp_path, f"image,class,{names},split\n" + "".join(rows), *FOUR)
    assert find("csv", tmp_path).info.groups == tuple(names.split(","))
    said = f"{names.replace(',', ' and ')} are natural groups like others; --max_cell makes cells of places"
    assert said in capsys.readouterr().out
    found = find("csv", tmp_path, max_cell=[1, 100])
    assert found.info.groups == ("cell_1", "cell_100")
    cells = found.rows["cell_1"].tolist()
    assert cells[1] == cells[2] == ""  # held out, and without a place
    for cell, place in ((cells[0], (46.5, 6.6)), (cells[3], (-33, 151))):
        assert s2cell.lat_lon_to_token(*place, s2cell.token_to_level(cell)) == cell
    assert "cell_1: 2 cells; 0 images are in cells of too few and 1 have no place" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image,class,lat,lon\n0.jpg,a,5,6\n1.jpg,a,north,6\n", r"images\.csv, line 3: lat 'north' is no number"),
        ("image,class,lat,lon\n0.jpg,a,inf,6\n", "latitude inf is beyond 90 degrees"),
        ("image,class,lat,cell_10\n0.jpg,a,5,6\n", "--max_cell needs a column lat and one lon"),
        ("image,class,lat,lon,cell_10\n0.jpg,a,5,6,x\n", "a column is called cell_10"),
    ],
)
def test_places_that_are_none_are_one_line(tmp_path: Path, text: str, reason: str) -> None:
    write(tmp_path, text, *FOUR)
    with pytest.raises(UserError, match=reason):
        find("csv", tmp_path, max_cell=[10])


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (1700, None),  # 3.3 m; millimetres without a hole cannot be told from 1/512 m
        ([0] * 10 + [1700] * 54, "16% of it is 0, at the camera itself: depth_euclidean in another encoding?"),
        (20 * 512 + 1, "its median 10241 is above 10240: depth_euclidean in another unit?"),
    ],
)
def test_depth_in_another_encoding_is_refused(tmp_path: Path, stored: int | list[int], fault: str | None) -> None:
    """As RGB-D cameras write it, in millimetres, with 0 where nothing was measured."""
    for i in range(4):
        write_image(tmp_path / f"{i}.jpg")
        depth = np.full((8, 8), 1024, np.uint16)
        if i == 3:
            depth.flat = stored
        Image.fromarray(depth).save(tmp_path / f"depth{i}.png")
    rows = [f"{i}.jpg,depth{i}.png\n" for i in range(4)]
    (tmp_path / "images.csv").write_text("image,depth_euclidean\n" + "".join(rows))
    table = select("csv", tmp_path)
    _, unreadable = load_packed(table, get_task("depth_euclidean").encoding, 4)
    assert unreadable == ([] if fault is None else [3])
    if fault is not None:
        assert fault in (tmp_path / "packed/4/unreadable_depth_euclidean.txt").read_text()
    table = select("csv", tmp_path, max_median_depth=30.0)
    assert table.info.limits == {"depth_euclidean": 30 * 512}


def test_ids_of_masks_without_a_name_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        save_image(tmp_path / f"{number}.jpg")
        mask = np.zeros((8, 8), np.uint8)
        mask[:4], mask[0, : 2 * number] = 255, 7
        save_image(tmp_path / f"{number}.png", mask)
    (tmp_path / "images.csv").write_text("image,mask\n" + "".join(f"{n}.jpg,{n}.png\n" for n in range(4)))
    (tmp_path / "names.txt").write_text("background\npolyp\n")
    select("csv", tmp_path, mask_classes="names.txt")
    line = "ids 255, 7, 0.5 of all pixels, in 4 of 4 masks: have no name and count nowhere; name them in --mask_classes"
    assert line in capsys.readouterr().out
    select("csv", tmp_path, mask_classes="names.txt", void_ids=[255])
    assert "id 7, 0.0469 of all pixels, in 3 of 4 masks: has no name and counts nowhere" in capsys.readouterr().out
    select("csv", tmp_path, mask_classes="names.txt", void_ids=[255, 7])
    assert "no name" not in capsys.readouterr().out


def test_pairs_of_photographs_with_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns of the second photograph and of the flow; a pair of two sizes, or of one alone, is left out and named."""
    for i in range(5):
        save_image(tmp_path / f"a{i}.png", noise(i, 12, 12, 3))
        save_image(tmp_path / f"b{i}.png", noise(i, 12 + (i == 3), 12, 3))
        write_flo(tmp_path / f"{i}.flo", flow_of(i, 12, 12))
    (tmp_path / "b4.png").write_bytes(b"no picture")
    rows = [f"a{i}.png,b{i}.png,{i}.flo,{'xy'[i % 2]}\n" for i in range(5)]
    (tmp_path / "images.csv").write_text("image,rgb_next,motion,video\n" + "".join(rows))
    table = select("csv", tmp_path, test_fraction=0.4)
    assert table.info.domains == ("rgb", "rgb_next", "motion") and table.info.groups == ("video",)
    assert table.files["rgb_next"] == ("b0.png", "b1.png", "b2.png") and table.serves(get_task("motion"))
    assert (tmp_path / "missing_files.txt").read_text().splitlines()[0] == (
        "b3.png: 12 x 13 pixels, and the frame before it has 12 x 12"
    )
    assert "b4.png: not a readable image" in (tmp_path / "missing_files.txt").read_text()
    packed, _ = load_packed(table, get_task("motion").encoding, 12)
    np.testing.assert_allclose(packed[1], np.nan_to_num(flow_of(1, 12, 12), nan=-np.inf))
    assert "motion: median" in capsys.readouterr().out
    (tmp_path / "images.csv").write_text("image,motion\na0.png,0.flo\n")
    with pytest.raises(UserError, match=r"images\.csv: the column motion needs one of second photographs, rgb_next"):
        find("csv", tmp_path)
