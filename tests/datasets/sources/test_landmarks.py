"""Google Landmarks' metadata and splits, made up here in their formats."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from datasets.sources.landmarks import large
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


def satisfied(landmark: np.ndarray, user: np.ndarray) -> bool:
    """Whether all four bounds hold, counted image by image."""
    by_landmark, by_user = Counter(landmark.tolist()), Counter(user.tolist())
    pairs = set(zip(landmark.tolist(), user.tolist(), strict=True))
    users, landmarks = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    return all(by_landmark[i] >= 3 and users[i] >= 2 for i in by_landmark) and all(
        by_user[i] >= 3 and landmarks[i] >= 2 for i in by_user
    )


def test_filters_leave_the_most_that_satisfies_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.sources.landmarks._LANDMARK", (3, 2))
    monkeypatch.setattr("datasets.sources.landmarks._USER", (3, 2))
    sizes, differs = [], False
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = 8 + seed // 2
        landmark, user = rng.integers(5, size=n), np.minimum(rng.geometric(0.3, n), 6) - 1
        kept = large(landmark, user)
        assert satisfied(landmark[kept], user[kept])
        # By brute force: the largest sets of landmarks and users that satisfy the bounds among themselves.
        these, those = np.divmod(np.arange(1 << 11)[:, None], 1 << 6)
        chosen = np.unique((these >> landmark & those >> user & 1) == 1, axis=0)
        largest_first = chosen[np.argsort(-chosen.sum(1))]
        best = next(each for each in largest_first if satisfied(landmark[each], user[each]))
        assert (kept == best).all()
        once = large(landmark, user, once=True)
        assert (kept <= once).all()
        differs |= bool((kept != once).any())
        sizes.append(int(kept.sum()))
    assert differs and 0 in sizes and max(sizes) > 10


def test_filtered_landmarks_are_tested_with_others_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.sources.landmarks._LANDMARK", (3, 2))
    monkeypatch.setattr("datasets.sources.landmarks._USER", (3, 2))
    monkeypatch.setattr("datasets.sources.landmarks._TEST_IMAGES", 2)
    of = [(n, author) for author in "ab" for n in (1, 1, 2)] + [(1, "c")] * 4 + [(2, "d")] + [(3, "d"), (1, "")]
    ids = [f"{number:016x}" for number in range(len(of))]
    clean = "".join(f"{n},{' '.join(i for i, (m, _) in zip(ids, of, strict=True) if m == n)}\n" for n in (1, 2, 3))
    (tmp_path / "train_clean.csv").write_text(f"landmark_id,images\n{clean}")
    authors = "".join(f"{i},http://x,{author},CC-BY,t\n" for i, (_, author) in zip(ids, of, strict=True))
    (tmp_path / "train_attribution.csv").write_text("id,url,author,license,title\n" + authors)
    for identity in ids:
        save_image(tmp_path / "train" / f"{identity}.jpg")
    table = select("landmarks", tmp_path, filtering="once")
    # Landmark 2 has three images by three users; a and b have three of two. Of c's four two are left to test with.
    assert table.class_names == ("1", "2")
    assert sorted(table.groups["user_id"][table.train]) == ["a"] * 3 + ["b"] * 3
    assert sorted(table.groups["user_id"][table.test]) == ["c", "c", "d"]


def test_broken_metadata_is_one_line(landmarks: Path) -> None:
    (landmarks / "train_clean.csv").write_text("landmark_id,images\nx,a\n")
    with pytest.raises(UserError, match="landmark_id must be a whole number"):
        select("landmarks", landmarks)
    (landmarks / "train_clean.csv").write_text("a,b\n")
    with pytest.raises(UserError, match="cannot read its columns landmark_id, images"):
        select("landmarks", landmarks)
