"""YOLO's label files: boxes, polygons, and key points, which are neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.sources.annotated import SHARES, Photograph
from datasets.sources.names import key_points_of
from datasets.sources.yolo import key_points_in, read_labels
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


def test_key_points_that_are_not_seen_are_zeros(tmp_path: Path) -> None:
    found, _ = photograph_of(tmp_path, POSE.replace("0.4 0.4 2", "0 0 0"))
    assert key_points_in([found]) == (2, 3)


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.yaml", "names: [dog]\n", None), ("a.txt", "kpt_shape: [2, 3]\n", None),
        ("a.yml", "kpt_shape: [17, 3]\n", 51), ("a.yaml", "kpt_shape:\n  - 12\n  - 2\n", 24),
    ],
)  # fmt: skip
def test_kpt_shape(tmp_path: Path, name: str, content: str, expected: int | None) -> None:
    (tmp_path / name).write_text(content)
    assert key_points_of(tmp_path / name, "--categories") == expected


@pytest.mark.parametrize("shape", ["7", "[2]", "[0, 3]", "[2, 4]", "[a, 3]", "{a: 2}", ""])
def test_a_broken_kpt_shape_is_one_line(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.yaml").write_text(f"names: [dog]\nkpt_shape: {shape}\n")
    with pytest.raises(UserError, match=r"a\.yaml: .+; see --categories"):
        key_points_of(tmp_path / "a.yaml", "--categories")
