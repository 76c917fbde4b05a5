"""Folders whose names say parts and natural groups, and the files beside photographs."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.sources.named_folders import (
    InFolder,
    beside,
    files,
    filled,
    folders,
    in_folder,
    not_there,
    of_part,
    photographs,
    rows_of,
    say_alone,
)
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
    found = list(photographs(tmp_path, "{part}/{scene}/{take}"))
    assert [each.cell for each in found] == ["train2017/a/s1/x.jpg", "train2017/b/s1/x.jpg", "val/a/s2/y.PNG"]
    rows = rows_of(found, "{part}/{scene}/{take}", ())
    assert rows.drop(columns="rgb").to_dict("list") == {
        "part": ["train", "train", "val"],
        "scene": ["a", "b", "a"],
        "take": ["a/s1", "b/s1", "a/s2"],
    }
    assert list(rows_of(list(photographs(tmp_path, "extra/a/s1")), "extra/a/s1", ())) == ["rgb"]


def test_folders_of_no_part_and_other_endings_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touch(
        tmp_path, "train/rgb/x.jpg", "train/rgb/y.HEIC", "train/rgb/z.avif", "train/rgb/notes.txt", "train/rgb/w.heic"
    )
    touch(tmp_path, "holdout/rgb/x.jpg", "packed/64/rgb.npy", "empty/rgb/notes.txt", "train/depth/x.exr")
    assert len(list(photographs(tmp_path, "{part}/rgb"))) == 1
    assert capsys.readouterr().out.splitlines() == [
        "left out folders of {part}/rgb with photographs, called like no split (train, val, test): holdout/rgb",
        "left out files of {part}/rgb whose endings are not read as photographs: 2 .heic, 1 .avif",
    ]
    list(photographs(tmp_path, "{split}/rgb", suffix=".jpg"))
    assert capsys.readouterr().out == ""


def test_sub_folders_with_pictures_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touch(tmp_path, "rgb/x.jpg", "rgb/day/y.jpg", "rgb/night/deep/z.png", "rgb/notes/a.txt", "rgb/.git/b.jpg")
    assert [each.cell for each in photographs(tmp_path, "rgb", others=())] == ["rgb/x.jpg"]
    line = "left out sub-folders of rgb with pictures, which a word in braces reads: rgb/day, rgb/night\n"
    assert capsys.readouterr().out == line
    touch(tmp_path, "x.jpg", "masks/x.png", "objects/x.png", "depth/low/x.png", "depth/high/x.png")
    list(photographs(tmp_path, ".", others=["masks", "depth/{which}", None, "rgb"]))
    assert capsys.readouterr().out == ""


def test_files_without_a_photograph_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touch(tmp_path, "a/m_1.png", "a/m_2.png", "b/m_1.png", "b/x_1.png", "b/m_1.txt", "b/.m_3.png")
    say_alone(tmp_path, "{scene}", "m_", [".png"], ["a/m_1.png"])
    assert capsys.readouterr().out == "left out 2 files of {scene} without a photograph: a/m_2.png, b/m_1.png\n"
    say_alone(tmp_path, "{scene}", "m_", [".png"], ["a/m_1.png", "a/m_2.png", "b/m_1.png"])
    say_alone(tmp_path, "none", "", [".png"], [])
    assert capsys.readouterr().out == ""


def test_a_word_is_a_piece_of_a_name_and_the_same_wherever_it_stands(tmp_path: Path) -> None:
    touch(tmp_path, "cam_1/run_1/a.jpg", "cam_1/run_2/a.jpg", "cam_2/run_2/a.jpg", "dog/run_1/a.jpg")
    found = list(photographs(tmp_path, "cam_{id}/run_{id}"))
    assert [(each.cell, each.words) for each in found] == [
        ("cam_1/run_1/a.jpg", {"id": "1"}),
        ("cam_2/run_2/a.jpg", {"id": "2"}),
    ]
    mask = in_folder("cam_1/run_1/m_b.1.png", "cam_{id}/run_{id}", "m_", None)
    assert mask == InFolder("cam_1/run_1/m_b.1.png", "b.1", {"id": "1"})
    assert in_folder("cam_1/2/b.png", "cam_{id}/{id}", "", None) is None
    assert filled("{part}/{city}/{other}", {"part": "train", "city": "ulm"}) == "train/ulm/{other}"


def test_a_file_that_is_missing_may_have_another_ending(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.npz", "a/2.png")
    assert not_there(tmp_path, "a/1.png", "map") == "a/1.png: there is no such map, but one that ends with .npz"
    assert not_there(tmp_path, "a/3.png", "map") == "a/3.png: there is no such map"
    assert not_there(tmp_path, "b/1.png", "map") == "b/1.png: there is no such map"


def test_the_data_folder_itself_and_suffixes(tmp_path: Path) -> None:
    touch(tmp_path, "1.color.png", "1.depth.png", "2.color.png")
    found = list(photographs(tmp_path, ".", suffix=".color.png"))
    assert [(each.cell, each.stem) for each in found] == [("1.color.png", "1"), ("2.color.png", "2")]
    assert beside(tmp_path, ".", "1", [".npy", ".depth.png"]) == "1.depth.png"
    assert beside(tmp_path, ".", "2", [".npy", ".depth.png"]) == "2.npy"  # none is there: the first


def test_names_begin_and_end_with_words(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "a/rgb_1.jpg",
        "a/rgb_2.png",
        "a/x_1.jpg",
        "a/sync_1.png",
        "a/rgb_.jpg",
        "b/b_i0_1.jpg",
        "b/b_d0_1.png",
    )
    found = list(photographs(tmp_path, "{scene}", "rgb_"))
    assert [(each.cell, each.stem) for each in found] == [
        ("a/rgb_.jpg", ""),
        ("a/rgb_1.jpg", "1"),
        ("a/rgb_2.png", "2"),
    ]
    assert found[1].beside(tmp_path, "{scene}", "sync_", [".npy", ".png"]) == "a/sync_1.png"
    [found_in_b] = photographs(tmp_path, "{scene}", "{scene}_", "i{view}.jpg")
    assert (found_in_b.stem, found_in_b.words) == ("", {"scene": "b", "view": "0_1"})
    assert found_in_b.beside(tmp_path, "{scene}", "{scene}_", ["d{view}.png"]) == "b/b_d0_1.png"
    touch(tmp_path, "c/train_1.jpg", "c/other_1.jpg")
    assert [(each.cell, each.part) for each in photographs(tmp_path, "c", "{part}_")] == [("c/train_1.jpg", "train")]


def test_parts_may_be_in_capitals(tmp_path: Path) -> None:
    touch(tmp_path, "Training/a.jpg", "VALIDATION/a.jpg", "test_1/a.jpg", "Photos/a.jpg")
    assert [each.part for each in photographs(tmp_path, "{part}")] == ["train", "val", "test"]


def test_files_of_a_name_with_words(tmp_path: Path) -> None:
    touch(tmp_path, "a/instances_train.json", "a/instances_Val.json", "a/captions_train.json", "a/instances_x.json")
    found = list(files(tmp_path, "a/instances_{part}.json"))
    assert [(path.name, words) for path, words in found] == [
        ("instances_Val.json", {"part": "Val"}),
        ("instances_train.json", {"part": "train"}),
    ]
    assert list(files(tmp_path, "a/instances_x.json")) == [(Path("a/instances_x.json"), {})]
    assert not list(files(tmp_path, "a")) and not list(files(tmp_path, "none/{part}"))


def test_what_is_of_the_same_part(tmp_path: Path) -> None:
    touch(tmp_path, "train.json", "val_1.json", "val_2.json", "Training/x", "training_b/x")
    assert of_part(tmp_path, "{part}.json", {"part": "train2017"}, files) == Path("train.json")
    assert of_part(tmp_path, "{part}.json", {"part": "val_2"}, files) == Path("val_2.json")
    assert of_part(tmp_path, "{part}.json", {"part": "val"}, files) == Path("val.json")  # of two: it is not there
    assert of_part(tmp_path, "{part}", {"part": "train", "city": "ulm"}, folders) == Path("train")
    assert of_part(tmp_path, "train.json", {}, files) == Path("train.json")


@pytest.fixture
def cityscapes(tmp_path: Path) -> Path:
    for part, city, n in (("train", "aachen", 3), ("train", "ulm", 2), ("val", "lindau", 2)):
        for number in range(n):
            name = f"{part}/{city}/{city}_{number:06}_000019"
            save_image(tmp_path / "leftImg8bit" / f"{name}_leftImg8bit.png", noise(number, 8, 16, 3))
            save_image(tmp_path / "gtFine" / f"{name}_gtFine_labelIds.png", noise(number, 8, 16) % 3)
            save_image(tmp_path / "gtFine" / f"{name}_gtFine_color.png", noise(number, 8, 16, 3))
            save_image(
                tmp_path / "objects" / part / city / f"{city}_{number:06}_000019_gtFine_labelIds.png",
                noise(number, 8, 16) % 4,
            )
    return tmp_path


def test_cityscapes_folders_are_read_as_they_are(cityscapes: Path) -> None:
    table = select("masks", cityscapes, **CITYSCAPES)
    assert table.groups["city"].tolist() == ["aachen"] * 3 + ["ulm"] * 2 + ["lindau"] * 2
    assert table.files["mask"][3] == "gtFine/train/ulm/ulm_000000_000019_gtFine_labelIds.png"
    assert table.test.tolist() == [5, 6] and table.class_names == ("class 1", "class 2")
    by_name = find(
        "masks",
        cityscapes,
        **CITYSCAPES | {"image_folder": "leftImg8bit/train/ulm", "mask_folder": "gtFine/train/ulm"},
        group_pattern="(?P<city>[^_]+)_",
    )
    assert by_name.rows["city"].tolist() == ["ulm"] * 2 and "part" not in by_name.rows
    for path in (cityscapes / "gtFine").rglob("*_labelIds.png"):
        path.rename(path.with_name(f"m_{path.name}"))
    with_prefix = select("masks", cityscapes, **CITYSCAPES, mask_prefix="m_")
    assert with_prefix.files["mask"][3] == "gtFine/train/ulm/m_ulm_000000_000019_gtFine_labelIds.png"
    for path in (cityscapes / "gtFine").rglob("m_*"):
        path.rename(path.with_name(path.name.removeprefix("m_")))
    with_objects = select("masks", cityscapes, **CITYSCAPES, instance_folder="objects/{part}/{city}")
    assert len(with_objects) == 7 and "instances" in with_objects.info.domains
    assert with_objects.groups["city"].tolist() == table.groups["city"].tolist()


def test_a_group_that_is_called_as_another_column_is_refused(cityscapes: Path) -> None:
    for word in ("mask", "class", "rgb"):
        both = {"image_folder": f"leftImg8bit/train/{{{word}}}", "mask_folder": f"gtFine/train/{{{word}}}"}
        with pytest.raises(UserError, match=rf"\{{{word}\}} would be a natural group called like another column"):
            find("masks", cityscapes, **CITYSCAPES | both)
    for name in ("city", "rgb", "mask", "part"):
        with pytest.raises(UserError, match=rf"--group_pattern: \(\?P<{name}>…\) would be a natural group called like"):
            find("masks", cityscapes, **CITYSCAPES, group_pattern=f"(?P<{name}>[^_]+)_")
