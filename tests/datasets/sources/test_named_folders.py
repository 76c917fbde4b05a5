"""Folders whose names say parts and natural groups, and the files beside photographs."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.sources.named_folders import beside, filled, not_there, photographs, rows_of, words_in
from tests.datasets.sources.finding import find, noise, save_image, select
from utils.errors import UserError

CITYSCAPES = {
    "image_folder": "leftImg8bit/{part}/{city}", "image_suffix": "_leftImg8bit.png",
    "mask_folder": "gtFine/{part}/{city}", "mask_suffix": "_gtFine_labelIds.png", "void_ids": [0],
}  # fmt: skip


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_words_become_parts_and_nested_groups(tmp_path: Path) -> None:
    touch(tmp_path, "train2017/a/s1/x.jpg", "train2017/b/s1/x.jpg", "val/a/s2/y.PNG", "extra/a/s1/z.jpg")
    touch(
        tmp_path, "train2017/a/s1/x.txt", "train2017/a/s1/.hidden.jpg", "train2017/.git/s1/x.jpg", "train2017/loose.jpg"
    )
    found = list(photographs(tmp_path, "{part}/{scene}/{take}", None))
    assert [each.cell for each in found] == ["train2017/a/s1/x.jpg", "train2017/b/s1/x.jpg", "val/a/s2/y.PNG"]
    rows = rows_of(found, "{part}/{scene}/{take}", ())
    assert rows.drop(columns="rgb").to_dict("list") == {
        "part": ["train", "train", "val"], "scene": ["a", "b", "a"], "take": ["a/s1", "b/s1", "a/s2"],
    }  # fmt: skip
    assert list(rows_of(list(photographs(tmp_path, "extra/a/s1", None)), "extra/a/s1", ())) == ["rgb"]


def test_folders_of_no_part_and_other_endings_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touch(
        tmp_path, "train/rgb/x.jpg", "train/rgb/y.HEIC", "train/rgb/z.avif", "train/rgb/notes.txt", "train/rgb/w.heic"
    )
    touch(tmp_path, "holdout/rgb/x.jpg", "packed/64/rgb.npy", "empty/rgb/notes.txt", "train/depth/x.exr")
    assert len(list(photographs(tmp_path, "{part}/rgb", None))) == 1
    assert capsys.readouterr().out.splitlines() == [
        "left out folders of {part}/rgb with photographs, called like no part (train, val, test): holdout/rgb",
        "left out files of {part}/rgb whose endings are not read as photographs: 2 .heic, 1 .avif",
    ]
    list(photographs(tmp_path, "{split}/rgb", ".jpg"))
    assert capsys.readouterr().out == ""


def test_a_word_is_a_piece_of_a_name_and_the_same_wherever_it_stands(tmp_path: Path) -> None:
    touch(tmp_path, "cam_1/run_1/a.jpg", "cam_1/run_2/a.jpg", "cam_2/run_2/a.jpg", "dog/run_1/a.jpg")
    found = list(photographs(tmp_path, "cam_{id}/run_{id}", None))
    assert [(each.cell, each.words) for each in found] == [
        ("cam_1/run_1/a.jpg", {"id": "1"}), ("cam_2/run_2/a.jpg", {"id": "2"}),
    ]  # fmt: skip
    assert words_in("cam_{id}/run_{id}", "cam_1/run_1") == {"id": "1"} and not words_in("cam_{id}/{id}", "cam_1/2")
    assert filled("{part}/{city}/{other}", {"part": "train", "city": "ulm"}) == "train/ulm/{other}"


def test_a_file_that_is_missing_may_have_another_ending(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.npz", "a/2.png")
    assert not_there(tmp_path, "a/1.png", "map") == "a/1.png: there is no such map, but one that ends with .npz"
    assert not_there(tmp_path, "a/3.png", "map") == "a/3.png: there is no such map"
    assert not_there(tmp_path, "b/1.png", "map") == "b/1.png: there is no such map"


def test_the_data_folder_itself_and_suffixes(tmp_path: Path) -> None:
    touch(tmp_path, "1.color.png", "1.depth.png", "2.color.png")
    found = list(photographs(tmp_path, ".", ".color.png"))
    assert [(each.cell, each.stem) for each in found] == [("1.color.png", "1"), ("2.color.png", "2")]
    assert beside(tmp_path, ".", "1", [".npy", ".depth.png"]) == "1.depth.png"
    assert beside(tmp_path, ".", "2", [".npy", ".depth.png"]) == "2.npy"  # none is there: the first


@pytest.fixture
def cityscapes(tmp_path: Path) -> Path:
    for part, city, n in (("train", "aachen", 3), ("train", "ulm", 2), ("val", "lindau", 2)):
        for number in range(n):
            name = f"{part}/{city}/{city}_{number:06}_000019"
            save_image(tmp_path / "leftImg8bit" / f"{name}_leftImg8bit.png", noise(number, 8, 16, 3))
            save_image(tmp_path / "gtFine" / f"{name}_gtFine_labelIds.png", noise(number, 8, 16) % 3)
            save_image(tmp_path / "gtFine" / f"{name}_gtFine_color.png", noise(number, 8, 16, 3))
            save_image(tmp_path / "objects" / part / city / f"{city}_{number:06}_000019_gtFine_labelIds.png",
                       noise(number, 8, 16) % 4)  # fmt: skip
    return tmp_path


def test_cityscapes_folders_are_read_as_they_are(cityscapes: Path) -> None:
    table = select("masks", cityscapes, **CITYSCAPES)
    assert table.groups["city"].tolist() == ["aachen"] * 3 + ["ulm"] * 2 + ["lindau"] * 2
    assert table.files["mask"][3] == "gtFine/train/ulm/ulm_000000_000019_gtFine_labelIds.png"
    assert table.test.tolist() == [5, 6] and table.class_names == ("class 1", "class 2")
    by_name = find("masks", cityscapes, **CITYSCAPES | {"image_folder": "leftImg8bit/train/ulm",
                   "mask_folder": "gtFine/train/ulm"}, group_pattern="(?P<city>[^_]+)_")  # fmt: skip
    assert by_name.rows["city"].tolist() == ["ulm"] * 2 and "part" not in by_name.rows
    with_objects = select("masks", cityscapes, **CITYSCAPES, instance_folder="objects/{part}/{city}")
    assert len(with_objects) == 7 and "instances" in with_objects.about.domains
    assert with_objects.groups["city"].tolist() == table.groups["city"].tolist()


def test_a_group_that_is_called_as_another_column_is_refused(cityscapes: Path) -> None:
    for word in ("mask", "class", "rgb"):
        both = {"image_folder": f"leftImg8bit/train/{{{word}}}", "mask_folder": f"gtFine/train/{{{word}}}"}
        with pytest.raises(UserError, match=rf"\{{{word}\}} would be a natural group called like another column"):
            find("masks", cityscapes, **CITYSCAPES | both)
    for name in ("city", "rgb", "mask", "part"):
        with pytest.raises(UserError, match=rf"--group_pattern: \(\?P<{name}>…\) would be a natural group called like"):
            find("masks", cityscapes, **CITYSCAPES, group_pattern=f"(?P<{name}>[^_]+)_")
