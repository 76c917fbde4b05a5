"""The csv files of published federated splits."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from datasets.sources.split_files import check_classes, numbered, read_split, read_splits
from utils.errors import UserError


def test_train_and_test_are_one_list_without_leaks(tmp_path: Path) -> None:
    # Authors' names may hold commas.
    (tmp_path / "train.csv").write_text('user_id,image_id,class\n"Doe, J.",a,4\n7,b,4\n7,c,1\n')
    (tmp_path / "test.csv").write_text("image_id,class\nd,1\nb,4\n")
    rows = read_splits(tmp_path, "train.csv", "test.csv")
    assert rows["user_id"].tolist() == ["Doe, J.", "7", "7", ""]
    assert rows["part"].tolist() == ["train", "train", "train", "test"]  # b is trained on already
    assert rows["class"].tolist() == [4, 4, 1, 1]
    assert "part" not in read_splits(tmp_path, "train.csv", None)


def test_one_file_of_many_splits_has_a_column_each(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("image_id,class,user_120k,geo_3k\na,4,7,89c2\nb,4,9,NA\n")
    assert read_split(tmp_path / "all.csv", "train", "geo_3k")["user_id"].tolist() == ["89c2", ""]
    assert read_split(tmp_path / "all.csv", "test", "geo_3k")["user_id"].tolist() == ["", ""]
    with pytest.raises(UserError, match=r"all\.csv: not a split file.*geo_1k"):
        read_split(tmp_path / "all.csv", "train", "geo_1k")
    (tmp_path / "users.csv").write_text("user_id,image_id,class\nNA,a,4\n")
    assert read_split(tmp_path / "users.csv", "train")["user_id"].tolist() == ["NA"]  # somebody's name


@pytest.mark.parametrize(
    "text", ["", "image_id\na\n", "image_id,class\na,x\n", "image_id,class\na,1\na,1\n", "image_id,class\na,-1\n"]
)
def test_broken_split_files_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(UserError, match=r"train\.csv: not a split file"):
        read_split(tmp_path / "train.csv", "train")


def test_a_file_of_another_release_gives_itself_away() -> None:
    rows = pd.DataFrame({"image_id": ["a", "b", "c", "d"], "class": [4, 4, 1, 1]})
    assert check_classes(rows, {"a": "cat", "b": "cat", "c": "dog"}, "x.csv") == {4: "cat", 1: "dog"}
    assert check_classes(rows, {}, "x.csv") == {}
    with pytest.raises(UserError, match="class 4 stands for several"):
        check_classes(rows, {"a": "cat", "b": "dog"}, "x.csv")
    with pytest.raises(UserError, match="name cat stands for several"):
        check_classes(rows, {"a": "cat", "c": "cat"}, "x.csv")


def test_classes_are_numbered_without_gaps() -> None:
    names, classes = numbered({7: "cat"}, pd.Series([9, 7, 9]))
    assert names == ("cat", "class 9") and classes.tolist() == [1, 0, 1]
