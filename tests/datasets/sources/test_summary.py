"""What stage 1 says of what it found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets.packed import load_packed
from datasets.sources import find_images
from datasets.sources.summary import summary_lines
from datasets.tasks import RGB
from tests.datasets.sources.finding import arguments, find, save_image, select
from tests.datasets.sources.test_voc import lists, write
from utils.errors import UserError


def lines(source: str, data_path: Path, **more: object) -> list[str]:
    return list(summary_lines(data_path, find_images(arguments(source, data_path, **more))))


def test_nobody_is_no_natural_group(tmp_path: Path) -> None:
    rows = [f"{i}.png,a,{'' if i % 3 else f'user {i % 2}'},x\n" for i in range(12)]
    for i in range(12):
        save_image(tmp_path / f"{i}.png", i)
    (tmp_path / "images.csv").write_text("image,class,user_id,site\n" + "".join(rows))
    assert lines("csv", tmp_path)[0].endswith("; natural groups: 2 of user_id, 1 of site")


def test_classes_that_nobody_can_learn_or_that_are_not_tested_are_named(tmp_path: Path) -> None:
    for part, names in (("train", "abc"), ("test", "bcde")):
        for name in names:
            save_image(tmp_path / part / name / "1.png")
    assert lines("folder", tmp_path)[2:] == [
        "no training image of 2 classes: d, e",
        "no test image of 1 class: a",
    ]
    for number in range(70):
        save_image(tmp_path / "train" / f"x{number:02}" / "1.png")
    assert lines("folder", tmp_path)[3].startswith("no test image of 71 classes: a, x00, x01, ")
    assert lines("folder", tmp_path)[3].endswith(", x05, x06 and 63 more")


def test_a_class_that_is_in_photographs_without_being_theirs_is_not_missing(tmp_path: Path) -> None:
    """Every photograph shows a sofa, and a larger amount of something else."""
    for name in "abcd":
        write(tmp_path, name, ("chair", (1, 1, 8, 8)), ("chair", (9, 9, 20, 20)), ("sofa", (1, 1, 40, 40)))
    lists(tmp_path, train="abc", test="d")
    assert lines("voc", tmp_path)[2:] == [
        f"no {part} image of 1 class, as --class_of_image chooses, though they may be in some: sofa"
        for part in ("training", "test")
    ]


def test_links_that_lead_out_of_the_data_folder_are_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(4):
        save_image(tmp_path / "elsewhere" / f"{number}.png")
        save_image(data / "a" / f"{number}.png")
    (data / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data link").symlink_to(data)
    said = f"4 files outside the data folder, behind links: b/0.png is {tmp_path / 'elsewhere/0.png'}"
    assert lines("folder", data)[-1] == said
    assert lines("folder", tmp_path / "data link")[-1] == said
    (data / "b").unlink()
    (data / "a").rename(data / "c")
    (data / "a").mkdir()
    (data / "a" / "1.png").symlink_to(data / "c" / "1.png")  # stays within
    assert not any("outside" in line for line in lines("folder", data))


def test_one_is_no_plural(tmp_path: Path, run_here: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        save_image(tmp_path / "images" / "cat" / f"{number}.png")
    (tmp_path / "images" / "cat" / "empty.png").touch()
    run_here("extract_datapoints_for_experiments.py --source folder --data_path images --test_fraction 0.25")
    said = capsys.readouterr().out
    assert "1 class of 4 images each" in said and "left out what has 1 error, listed in" in said


def fifo_among_folders(data_path: Path) -> None:
    for number in range(3):
        save_image(data_path / "a" / f"{number}.png")
    os.mkfifo(data_path / "a" / "9.png")


def fifo_among_masks(data_path: Path) -> None:
    for number in range(4):
        save_image(data_path / "train/label" / f"{number}.png", np.ones((8, 8), np.uint8))
        save_image(data_path / "train/rgb" / f"{number}.png")
    (data_path / "train/rgb/3.png").unlink()
    os.mkfifo(data_path / "train/rgb/3.png")


def fifo_among_arrays(data_path: Path) -> None:
    images = {"x": np.zeros((4, 8, 8, 3), np.uint8), "y": np.arange(4) % 2}
    np.savez(data_path / "train.npz", **images)
    np.savez(data_path / "test.npz", **images)
    os.mkfifo(data_path / "more.npz")


def fifo_among_digits(data_path: Path) -> None:
    (data_path / "MNIST" / "raw").mkdir(parents=True)
    os.mkfifo(data_path / "MNIST" / "raw" / "train-images-idx3-ubyte")


@pytest.mark.parametrize(("source", "write"), [("folder", fifo_among_folders), ("masks", fifo_among_masks)])
def test_a_named_pipe_among_the_images_is_left_out(tmp_path: Path, source: str, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    packed, unreadable = load_packed(select(source, tmp_path, test_fraction=0.5), RGB, 8)
    assert len(packed) - len(unreadable) == 3


@pytest.mark.parametrize(("source", "write"), [("arrays", fifo_among_arrays), ("digits", fifo_among_digits)])
def test_a_named_pipe_among_the_arrays_stops_nothing(
    tmp_path: Path, source: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match=r"(not a readable|cannot be read).*\(no file\)"):
        find(source, tmp_path)


def test_a_photograph_that_becomes_a_named_pipe_is_unreadable(tmp_path: Path) -> None:
    for number in range(4):
        save_image(tmp_path / "a" / f"{number}.png")
    table = select("folder", tmp_path)
    (tmp_path / "a" / "1.png").unlink()
    os.mkfifo(tmp_path / "a" / "1.png")
    assert load_packed(table, RGB, 8)[1] == [1]
