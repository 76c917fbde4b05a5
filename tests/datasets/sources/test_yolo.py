"""YOLO's label files: boxes, polygons, and key points, which are neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from datasets.sources.annotated import SHARES, Photograph
from datasets.sources.names import key_points_of
from datasets.sources.yolo import are_tracks, key_points_in, read_labels
from datasets.table import read_boxes
from tests.datasets.sources.finding import noise, save_image, select
from utils.errors import UserError

POSE = "0 0.5 0.5 0.25 0.25 0.4 0.4 2 0.6 0.6 2\n"  # a box with two key points of three numbers
TIGER = "0 0.5 0.5 0.4 0.4 " + " ".join(f"{0.4 + 0.01 * k:.2f} {0.6 - 0.01 * k:.2f}" for k in range(12)) + "\n"


def save(folder: Path, rows: str, names: str = "names:\n  0: dog\n") -> Path:
    for number in range(4):
        save_image(folder / "images" / f"{number}.png", noise(number, 48, 64, 3))
        label = folder / "labels" / f"{number}.txt"
        label.parent.mkdir(exist_ok=True)
        label.write_text(rows)
    (folder / "data.yaml").write_text(names)
    return folder


def read(folder: Path, **more: object) -> np.ndarray:
    """The sides of the first photograph's boxes."""
    table = select("coco", folder, image_folder="images", label_folder="labels", categories="data.yaml", **more)
    return read_boxes(table).iloc[:1, 2:].to_numpy(float)


def photograph_of(tmp_path: Path, rows: str, n_key_points: int | None = None) -> tuple[Photograph, list[str]]:
    (tmp_path / "a.txt").write_text(rows)
    found = Photograph("a.png", "", SHARES)
    return found, read_labels(tmp_path / "a.txt", "a.txt", found, n_key_points)


@pytest.mark.parametrize("shape, rows, expected", [("[2, 3]", POSE, 0.125), ("[12, 2]", TIGER, 0.2)])
def test_rows_of_key_points_are_boxes_where_the_yaml_says_so(
    tmp_path: Path, shape: str, rows: str, expected: float
) -> None:
    sides = read(save(tmp_path, rows, f"names:\n  0: dog\nkpt_shape: {shape}\n"))
    np.testing.assert_allclose(sides, [[0.5 - expected] * 2 + [0.5 + expected] * 2])


@pytest.mark.parametrize("rows, shape", [(POSE, "2, 3"), (TIGER, "12, 2")])
def test_rows_of_key_points_are_refused_where_nothing_says_so(tmp_path: Path, rows: str, shape: str) -> None:
    with pytest.raises(UserError, match=rf"not a polygon: name a \.yaml file with `kpt_shape: \[{shape}\]` in --categ"):
        read(save(tmp_path, rows))


def test_rows_of_another_length_than_kpt_shape_are_named(tmp_path: Path) -> None:
    found, faults = photograph_of(tmp_path, POSE + "0 0.5 0.5 0.2 0.2\n" + TIGER, 6)
    assert len(found.boxes) == 2 and len(faults) == 1
    assert faults[0] == "a.txt, line 3: not id, centre, width and height, nor these and 6 numbers of key points"


@pytest.mark.parametrize(
    "rows",
    [
        "0 0.1 0.1 0.3 0.1 0.3 0.3 0.1 0.3\n",  # oriented boxes, of four corners
        "0 0.1 0.1 0.9 0.1 0.9 0.9\n0 0.2 0.2 0.3 0.3 0.2 0.3\n",  # triangles
        POSE + "0 0.1 0.1 0.3 0.1 0.3 0.3 0.1 0.3\n",  # of other lengths
        "0 0.9 0.1 0.95 0.1 0.95 0.3 0.93 0.5 0.91 0.3 0.9 0.2 0.9 0.15\n",
        "0 0.5 0.5 0.1 0.1\n",
        "",
    ],
)
def test_polygons_and_boxes_are_no_key_points(tmp_path: Path, rows: str) -> None:
    found, faults = photograph_of(tmp_path, rows)
    assert key_points_in([found]) is None and not faults


def test_random_polygons_of_one_length_are_no_key_points(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n in range(3, 40):
        rows = "".join(f"0 {' '.join(map(str, rng.random(2 * n).round(3)))}\n" for _ in range(4))
        assert key_points_in([photograph_of(tmp_path, rows)[0]]) is None


def test_rows_of_trackers_are_refused(tmp_path: Path) -> None:
    """A box, its score and the number of its track, as `save_txt` and `save_conf` of Ultralytics' tracking write."""
    with pytest.raises(UserError, match="all rows fit an id, a box, a score and the number of a track"):
        read(save(tmp_path, "0 0.5 0.5 0.25 0.25 0.93 1\n0 0.4 0.4 0.2 0.2 0.51 2\n"))
    few, many = ("0 0.5 0.5 0.25 0.25 0.93 1\n" * n for n in (2, 10))
    assert not are_tracks([photograph_of(tmp_path, few)[0]]) and are_tracks([photograph_of(tmp_path, many)[0]])


@pytest.mark.parametrize(
    "rows",
    [
        "0 0.1 0.1 0.4 0.4 0.3 2\n",
        "0 0.5 0.5 0.25 0.25 0.9 1.5\n",
        "0 0.5 0.5 0.25 0.25 1.2 3\n",
        "0 0.5 0.5 0.25 0.25 0.9 3\n0 0.1 0.1 0.3 0.1 0.3 0.3 0.1 0.3\n",
        "0 0.5 0.5 0.1 0.1\n",
        "",
    ],
)
def test_triangles_are_no_tracks(tmp_path: Path, rows: str) -> None:
    assert not are_tracks([photograph_of(tmp_path, rows)[0]])


def test_random_triangles_are_no_tracks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 3, 30):
        rows = "".join(f"0 {' '.join(map(str, rng.random(6).round(3)))}\n" for _ in range(n))
        assert not are_tracks([photograph_of(tmp_path, rows)[0]])


def test_key_points_that_are_not_seen_are_zeros(tmp_path: Path) -> None:
    found, _ = photograph_of(tmp_path, POSE.replace("0.4 0.4 2", "0 0 0"))
    assert key_points_in([found]) == (2, 3)


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.yaml", "names: [dog]\n", None),
        ("a.txt", "kpt_shape: [2, 3]\n", None),
        ("a.yml", "kpt_shape: [17, 3]\n", 51),
        ("a.yaml", "kpt_shape:\n  - 12\n  - 2\n", 24),
    ],
)
def test_kpt_shape(tmp_path: Path, name: str, content: str, expected: int | None) -> None:
    (tmp_path / name).write_text(content)
    assert key_points_of(tmp_path / name, "--categories") == expected


@pytest.mark.parametrize("shape", ["7", "[2]", "[0, 3]", "[2, 4]", "[a, 3]", "{a: 2}", ""])
def test_a_broken_kpt_shape_is_one_line(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.yaml").write_text(f"names: [dog]\nkpt_shape: {shape}\n")
    with pytest.raises(UserError, match=r"a\.yaml: .+; see --categories"):
        key_points_of(tmp_path / "a.yaml", "--categories")


def by_place(
    data_path: Path, photographs: Sequence[str], labels: Mapping[str, float], **more: object
) -> dict[str, float]:
    """The left sides of the boxes of each photograph, of label files whose boxes begin at these shares."""
    for number, cell in enumerate(photographs):
        save_image(data_path / cell, noise(number, 12, 16, 3))
    for name, left in labels.items():
        (data_path / name).parent.mkdir(parents=True, exist_ok=True)
        (data_path / name).write_text(f"0 {left + 0.25} 0.5 0.5 0.5\n")
    (data_path / "names.txt").write_text("dog\n")
    arguments = {
        "image_folder": "images",
        "label_folder": "labels",
        "categories": "names.txt",
        "test_fraction": 0.5,
    } | more
    boxes = read_boxes(select("coco", data_path, **arguments))
    return dict(zip(boxes["image"], boxes["left"], strict=True))


def test_labels_in_one_folder_are_those_of_photographs_in_sub_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photographs = ["images/x/a.png", "images/y/b.png", "images/c.png", "images/y/d.png", "images/e.png"]
    labels = {"labels/a.txt": 0.1, "labels/b.txt": 0.2, "labels/c.txt": 0.3, "labels/z/e.txt": 0.4}
    found = by_place(tmp_path, photographs, labels)
    assert found == pytest.approx(
        {"images/x/a.png": 0.1, "images/y/b.png": 0.2, "images/c.png": 0.3, "images/e.png": 0.4}
    )
    out = capsys.readouterr().out
    assert "3 label files in another folder than the photograph, found by the name: " in out
    assert "labels/a.txt for images/x/a.png" in out
    assert "1 of 5 photographs in images have no label file, and are without objects: y/d.png\n" in out
    assert "of no photograph" not in out


def test_a_label_file_in_the_place_of_its_photograph_is_taken_before_others(tmp_path: Path) -> None:
    labels = {"labels/x/a.txt": 0.1, "labels/a.txt": 0.4, "labels/b.txt": 0.2}
    found = by_place(tmp_path, ["images/x/a.png", "images/b.png"], labels)
    assert found == pytest.approx({"images/x/a.png": 0.1, "images/b.png": 0.2})


@pytest.mark.parametrize(
    "photographs, labels",
    [
        (["images/x/a.png", "images/y/a.png"], ["labels/a.txt"]),
        (["images/a.png"], ["labels/x/a.txt", "labels/y/a.txt"]),
    ],
)
def test_label_files_that_may_be_of_several_photographs_are_named(
    tmp_path: Path, photographs: list[str], labels: list[str]
) -> None:
    own = {f"images/{number}.png": f"labels/{number}.txt" for number in range(3)}
    found = by_place(tmp_path, [*photographs, *own], dict.fromkeys([*labels, *own.values()], 0.1))
    assert set(found) == set(own)
    faults = (tmp_path / "missing_files.txt").read_text().splitlines()
    assert [fault.partition(":")[0] for fault in faults] == photographs
    assert all("which label file is its own is not clear: labels/" in fault for fault in faults)


def test_label_files_with_the_endings_of_photographs(tmp_path: Path) -> None:
    found = by_place(tmp_path, ["images/a.png", "images/b.png"], {"labels/a.png.txt": 0.1, "labels/b.png.txt": 0.2})
    assert found == pytest.approx({"images/a.png": 0.1, "images/b.png": 0.2})


def test_one_folder_of_labels_for_all_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No label file is of no photograph because its photograph is in another part, and none is of two."""
    photographs = ["images/train/a.png", "images/val/b.png", "images/train/c.png"]
    labels = {"labels/a.txt": 0.1, "labels/b.txt": 0.2, "labels/c.txt": 0.3, "labels/d.txt": 0.4}
    found = by_place(tmp_path, photographs, labels, image_folder="images/{part}")
    assert found == pytest.approx(dict(zip(sorted(photographs), [0.1, 0.3, 0.2], strict=True)))
    assert "left out 1 label file of no photograph: labels/d.txt\n" in capsys.readouterr().out
    save_image(tmp_path / "images" / "val" / "a.png", noise(9, 12, 16, 3))
    by_place(tmp_path, photographs, labels, image_folder="images/{part}")
    assert "1 label file for several photographs: labels/a.txt" in capsys.readouterr().out
