"""Google Landmarks' metadata and splits, made up here in their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets.sources.finding import save_image, select
from utils.errors import UserError

IDS = [f"{number:015x}f" for number in range(0xA00, 0xA06)]


@pytest.fixture
def landmarks(tmp_path: Path) -> Path:
    """Two landmarks of three photographs each, the last one in three levels of folders; the first has no author."""
    (tmp_path / "train_clean.csv").write_text(f"landmark_id,images\n17,{' '.join(IDS[:3])}\n4,{' '.join(IDS[3:])}\n")
    authors = ["", '"Doe, J."', "b", "b", "c", "c"]
    lines = [f"{i},http://x,{author},CC-BY,t\n" for i, author in zip(IDS, authors, strict=True)]
    (tmp_path / "train_attribution.csv").write_text("id,url,author,license,title\n" + "".join(lines))
    for identity in IDS[:5]:
        save_image(tmp_path / "train" / f"{identity}.jpg")
    save_image(tmp_path / "train" / IDS[5][0] / IDS[5][1] / IDS[5][2] / f"{IDS[5]}.jpg")
    return tmp_path


def test_metadata_gives_landmarks_and_authors(landmarks: Path) -> None:
    table = select("landmarks", landmarks, test_fraction=0.34)
    assert table.class_names == ("4", "17") and table.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert table.groups["user_id"].tolist() == ["", "Doe, J.", "b", "b", "c", "c"]
    assert table.image_ids[5] == f"train/0/0/0/{IDS[5]}.jpg" and len(table.test) == 2


def test_published_split_is_checked_against_the_metadata(landmarks: Path) -> None:
    (landmarks / "users.csv").write_text(
        "user_id,image_id,class\n" + "".join(f"u{i % 2},{IDS[i]},{i // 3}\n" for i in range(5))
    )
    (landmarks / "test.csv").write_text(f"image_id,class\n{IDS[5]},1\n{'0' * 16},1\n")
    arguments = {"split_file": "users.csv", "test_file": "test.csv"}
    table = select("landmarks", landmarks, **arguments)
    assert table.class_names == ("17", "4") and table.groups["user_id"].tolist() == ["u0", "u1", "u0", "u1", "u0", ""]
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2, 3, 4], [5])
    assert (landmarks / "missing_files.txt").read_text() == f"train/{'0' * 16}.jpg: there is no such photograph\n"
    (landmarks / "train_clean.csv").unlink()
    assert select("landmarks", landmarks, **arguments).class_names == ("class 0", "class 1")
    (landmarks / "users.csv").write_text("user_id,image_id,class\nu,../../etc/passwd,1\n")
    with pytest.raises(UserError, match="16 hexadecimal digits"):
        select("landmarks", landmarks, **arguments)


def test_broken_metadata_is_one_line(landmarks: Path) -> None:
    (landmarks / "train_clean.csv").write_text("landmark_id,images\nx,a\n")
    with pytest.raises(UserError, match="landmark_id must be a whole number"):
        select("landmarks", landmarks)
    (landmarks / "train_clean.csv").write_text("a,b\n")
    with pytest.raises(UserError, match="cannot read its columns landmark_id, images"):
        select("landmarks", landmarks)
