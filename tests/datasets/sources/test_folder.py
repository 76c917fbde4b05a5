"""Folders of classes: which layouts are read how, and what is left out or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.packed import load_packed
from datasets.sources.folder import find_in_folders
from datasets.tasks import RGB
from tests.datasets.sources.finding import find, rows_of, select, write_image
from utils.errors import UserError


def touch(data_path: Path, *names: str) -> None:
    """Files that are not empty, which is all that is looked at before they are packed."""
    for name in names:
        (data_path / name).parent.mkdir(parents=True, exist_ok=True)
        (data_path / name).write_bytes(b"x")


def test_classes_are_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    touch(tmp_path, "zebra/1.jpg", "ant/2.PNG", "ant/1.jpeg", "cat/notes.txt", "cat/x.webp")
    found = find("folder", tmp_path)
    assert found.info.classes["class"].names == ("ant", "cat", "zebra")
    assert found.rows.values.tolist() == [["ant/1.jpeg", 0], ["ant/2.PNG", 0], ["cat/x.webp", 1], ["zebra/1.jpg", 2]]
    assert (found.info.domains, found.info.groups, found.errors) == (("rgb",), (), [])


def test_classes_called_by_numbers_are_in_their_order(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}/a.png" for number in (10, 9, 0, 100)))
    assert find("folder", tmp_path).info.classes["class"].names == ("0", "9", "10", "100")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("Dog", "dog"), "'Dog' and 'dog' are taken for different classes"),
        (("polar bear", "polar  bear"), "are taken for different classes"),
        (("\u00e9", "e\u0301"), "are taken for different classes"),
        (("Dog", "cat", "dog", "Cat"), "'Cat' and 'cat', 'Dog' and 'dog' are taken for different classes"),
        (("dog", "dogs"), ""),
    ],
)
def test_classes_that_look_alike_are_said(
    tmp_path: Path, names: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, *(f"{name}/1.jpg" for name in names))
    assert len(find("folder", tmp_path).info.classes["class"].names) == len(names)
    printed = capsys.readouterr().out
    assert said in printed and bool(said) == bool(printed)


NAMES = {"part": ["train", "Training", "val", "valid", "test"], "domain": ["photo", "sketch"], "class": ["a", "b", "c"]}
PARTS = {"train": "train", "Training": "train", "val": "val", "valid": "val", "test": "test"}


@settings(max_examples=40, deadline=None)
@given(
    order=st.sampled_from(
        [["class"], ["part", "class"], ["domain", "class"], ["part", "domain", "class"], ["domain", "part", "class"]]
    ),
    picks=st.lists(st.tuples(*(st.integers(0, 4) for _ in range(3))), min_size=1, max_size=12),
)
def test_every_level_is_told_apart(
    tmp_path_factory: pytest.TempPathFactory, order: list[str], picks: list[tuple[int, int, int]]
) -> None:
    data_path = tmp_path_factory.mktemp("tree")
    expected = set()
    for i, pick in enumerate(picks):
        folders = {level: names[at % len(names)] for (level, names), at in zip(NAMES.items(), pick, strict=True)}
        cell = "/".join([*(folders[level] for level in order), f"{i}.jpg"])
        touch(data_path, cell)
        said = {"part": PARTS[folders["part"]], "domain": folders["domain"]}
        expected.add((cell, folders["class"], *(said[level] for level in ("domain", "part") if level in order)))
    found = find("folder", data_path)
    assert rows_of(found, *(level for level in ("domain", "part") if level in order)) == expected
    assert found.info.groups == (("domain",) if "domain" in order else ())
    assert ("part" in found.rows) == ("part" in order)


def test_hidden_and_empty_files_and_images_of_no_class(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/._1.jpg", ".git/b/2.jpg", "a/.thumbs/3.jpg", "preview.png", "a/Thumbs.db", "b/1.jpg")
    (tmp_path / "a/empty.jpg").touch()
    (tmp_path / "nothing/here").mkdir(parents=True)
    (tmp_path / "b/gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    found = find("folder", tmp_path)
    assert rows_of(found) == {("a/1.jpg", "a"), ("b/1.jpg", "b")}
    assert found.errors == [
        "'a/empty.jpg': an empty file",
        "'b/gone.jpg': no such file",
        "'preview.png': is in no folder of a class",
    ]


def test_an_image_beside_the_classes_of_a_part_is_of_no_class(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/2.jpg", "test/a/3.jpg")
    found = find("folder", tmp_path)
    assert rows_of(found, "part") == {("train/a/1.jpg", "a", "train"), ("test/a/3.jpg", "a", "test")}
    assert found.errors == ["'train/2.jpg': is in no folder of a class"]


def test_names_that_the_table_cannot_hold_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/two\nlines.jpg", "a/back\\slash.jpg", "x.npz#a/3.jpg", 'ü/größe 1,5 "m".jpg')
    (tmp_path / "a" / b"\xff.jpg".decode(errors="surrogateescape")).write_bytes(b"x")
    table = select("folder", tmp_path, test_fraction=0.5)
    assert set(table.image_ids) == {"a/1.jpg", 'ü/größe 1,5 "m".jpg'}
    assert (tmp_path / "missing_files.txt").read_text().count("a name that the table cannot hold\n") == 4


@pytest.mark.parametrize(
    "names, reason",
    [
        ([], "no image in the layout"),
        (["a.jpg"], "no image in the layout .* commonest error, 1 of 1: 'a.jpg': is in no folder"),
        (["a/1.jpg", "b/c/2.jpg"], "a/1.jpg and b/c/2.jpg lie at different depths"),
        (["train/a/1.jpg", "test/b/c/2.jpg"], "train/a/1.jpg and test/b/c/2.jpg lie at different depths"),
        (["a/b/c/1.jpg"], "a/b/c/1.jpg lies too deep"),
        (["train/a/b/c/1.jpg"], "train/a/b/c/1.jpg lies too deep"),
        (["train/a/1.jpg", "photo/a/1.jpg"], "train/ is called like a split and photo/ beside it is not"),
        (["train/1.jpg", "test/2.jpg"], "train/1.jpg|test/2.jpg: a class is called like a split"),
        (["dog/train/1.jpg", "cat/test/2.jpg"], "a class is called like a split"),
    ],
)
def test_unclear_folders_are_refused(tmp_path: Path, names: list[str], reason: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(UserError, match=reason):
        find("folder", tmp_path)


def test_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "a/again").symlink_to(tmp_path)
    rows, faults = find_in_folders(tmp_path)
    assert rows["rgb"].tolist() == ["a/1.jpg", "b/1.jpg"]
    assert "'a/again/b/1.jpg': by a link the same file as 'b/1.jpg'" in faults


def test_a_linked_folder_is_no_second_class(tmp_path: Path) -> None:
    touch(tmp_path, "zebra/1.jpg", "zebra/2.jpg", "dog/1.jpg")
    (tmp_path / "cat").symlink_to(tmp_path / "zebra")
    (tmp_path / "dog/2.jpg").symlink_to(tmp_path / "dog/1.jpg")
    found = find("folder", tmp_path)
    assert rows_of(found) == {("dog/1.jpg", "dog"), ("zebra/1.jpg", "zebra"), ("zebra/2.jpg", "zebra")}
    assert found.errors == [
        "'cat/1.jpg': by a link the same file as 'zebra/1.jpg'",
        "'cat/2.jpg': by a link the same file as 'zebra/2.jpg'",
        "'dog/2.jpg': by a link the same file as 'dog/1.jpg'",
    ]


def test_table_and_pixels(tmp_path: Path) -> None:
    write_image(tmp_path / "train/a/grey.png", 90, "L")
    write_image(tmp_path / "train/b/colour.png", (1, 2, 3))
    write_image(tmp_path / "train/b/palette.gif", (9, 9, 9))
    write_image(tmp_path / "test/b/alpha.png", (200, 100, 50, 128), "RGBA")
    touch(tmp_path, "test/a/broken.jpg")
    table = select("folder", tmp_path)
    assert table.class_names == ("a", "b")
    packed, unreadable = load_packed(table, RGB, 4)
    seen = {cell: packed[row, :, 0, 0].tolist() for row, cell in enumerate(table.image_ids) if row not in unreadable}
    assert seen == {
        "train/a/grey.png": [90, 90, 90],
        "train/b/colour.png": [1, 2, 3],
        "train/b/palette.gif": [9, 9, 9],
        "test/b/alpha.png": [200, 100, 50],
    }
    listing = (tmp_path / "packed/4/unreadable_rgb.txt").read_text()
    assert listing.startswith("test/a/broken.jpg: not a readable image") and listing.count("\n") == 1
    assert [len(part) for part in (table.train, table.val, table.test)] == [3, 0, 2]


def test_more_classes_than_a_mask_could_have(tmp_path: Path) -> None:
    touch(tmp_path, *(f"class{i:03}/{j}.jpg" for i in range(300) for j in range(2)))
    table = select("folder", tmp_path)
    assert len(table.class_names) == 300 and table.labels.max() == 299


def test_the_script_takes_a_folder(tmp_path: Path, run_here: Callable, capsys: pytest.CaptureFixture) -> None:
    for i in range(8):
        write_image(tmp_path / f"images/{'photo' if i % 2 else 'sketch'}/{'cat' if i < 4 else 'dog'}/{i}.jpg")
    run_here("extract_datapoints_for_experiments.py --source folder --data_path images --test_fraction 0.25")
    said = capsys.readouterr().out
    assert "8 images (6 train, 2 test); natural groups: 2 of domain" in said
    assert "2 classes of 4 images each" in said


def test_pictures_whose_endings_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.HEIC", "notes.txt", "packed/64/rgb.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found = find("folder", tmp_path)
    assert len(found.rows) == 3 and found.errors == ["'b/2.HEIC': a picture whose ending is not read"]
