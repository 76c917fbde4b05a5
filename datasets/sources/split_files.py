"""The csv files in which the federated splits of Hsu, Qi and Brown (ECCV 2020, arXiv 2003.08082) come."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.table import PART
from datasets.tasks import CLASS
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

USER = "user_id"
# TensorFlow Federated's one file of all iNaturalist splits, a column each, writes this for images of no client.
_NOBODY = "NA"
SPLIT_ARGUMENTS = {
    "split_file": Argument(None, "csv of the training images with the columns user_id, image_id and class"),
    "client_column": Argument(USER, "the column of --split_file that says whose an image is: geo_3k, …"),
    "test_file": Argument(None, "csv of the test images with the columns image_id and class"),
}


def read_split(path: Path, part: str, client_column: str = USER) -> pd.DataFrame:
    """The rows of a split file: `user_id` (empty for nobody's images, as in a test part), `image_id`, `class` (int) and
    `part`.

    UserError if it cannot be read, lacks a column, names an image twice, or has a class that is not a whole number.
    """
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
        users = rows[client_column] if part == "train" else ""
        if client_column != USER and part == "train":
            users = users.replace(_NOBODY, "")
        rows = rows.assign(user_id=users)[[USER, "image_id", CLASS]]
        if not rows[CLASS].str.fullmatch(r"\d{1,9}").all():
            raise ValueError("class must be a whole number")
        if twice := rows["image_id"][rows["image_id"].duplicated()].tolist():
            raise ValueError(f"image {twice[0]} stands there twice")
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a split file with image_id and class ({error})") from error
    return rows.assign(**{CLASS: rows[CLASS].astype(int), PART: part})


def read_splits(data_path: Path, split_file: str, test_file: str | None, client_column: str = USER) -> pd.DataFrame:
    """Both files' rows, without images that are in both (those are trained on: they would leak into the test)."""
    train = read_split(data_path / split_file, "train", client_column)
    if test_file is None:
        return train.drop(columns=PART)
    test = read_split(data_path / test_file, "test")
    both = test["image_id"].isin(train["image_id"])
    if both.any():
        print(f"left out {counted(int(both.sum()), 'test image')} that {split_file} trains on")
    return pd.concat([train, test[~both]], ignore_index=True)


def check_classes(rows: pd.DataFrame, known: Mapping[str, str], split_file: str) -> dict[int, str]:
    """The name of each class number; UserError where the numbers do not fit what is known of the images.

    `known` maps an image id to its class's name by the data set itself. A split file of another release or data set
    gives itself away here: one number would have images of several names.
    """
    pairs = pd.DataFrame({"name": rows["image_id"].map(known), CLASS: rows[CLASS]}).dropna().drop_duplicates()
    for column, other in ((CLASS, "name"), ("name", CLASS)):
        if twice := pairs[column][pairs[column].duplicated()].tolist():
            values = ", ".join(map(str, pairs[other][pairs[column] == twice[0]].tolist()[:3]))
            raise UserError(
                f"{split_file}: its {column} {twice[0]} stands for several of the data's ({values}); "
                "it is of another data set or release"
            )
    return dict(zip(pairs[CLASS].tolist(), pairs["name"].tolist(), strict=True))


def numbered(names: Mapping[int, str], classes: pd.Series) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names in the order of the file's numbers, and each image's class 0, 1, … (gaps closed)."""
    present = sorted(set(classes))
    position = {number: i for i, number in enumerate(present)}
    return tuple(names.get(number, f"class {number}") for number in present), classes.map(position).to_numpy()
