"""Google Landmarks v2 from its official metadata, with authors as users, or one of its published federated splits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.classes import ClassSet
from datasets.sources.keyed import by_key
from datasets.sources.source import Source
from datasets.sources.split_files import SPLIT_ARGUMENTS, check_classes, numbered, read_splits
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

_ID = re.compile(r"[0-9a-f]{16}")
_LANDMARK, _USER = (30, 10), (30, 5)  # least numbers: a landmark's images and users, a user's images and landmarks
_TEST_IMAGES = 10  # of a landmark


class Landmarks(Source):
    """The clean part of the training set, `train_clean.csv`, with the `author` of `train_attribution.csv` as user.

    Photographs lie in `--image_folder` as `<id>.jpg`, or in three levels of folders by the id's first three digits.
    With `--split_file` (Landmarks-User-160k, gld23k) images, users and classes are those of the file; its classes are
    checked against `train_clean.csv` where that is there.

    With `--filtering` it is as Landmarks-User-160k was made (Hsu, Qi and Brown 2020, arXiv 2003.08082, section 4.2):
    landmarks of 30 images by 10 users and users with 30 images of 5 landmarks to train on, and at most 10 images of
    each landmark by other users to test with. Whether the authors' filters were run once or until nothing changes is
    not said; their numbers are 1,262 users, 2,028 landmarks and 164,172 images, and 19,526 to test with.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument("train", "folder of the photographs, flat or in three levels"),
        "clean_file": Argument("train_clean.csv", "csv of the columns landmark_id and images"),
        "attribution_file": Argument("train_attribution.csv", "csv of the columns id and author"),
        "filtering": Argument(
            "none",
            "keep large landmarks and users only, by filters run until nothing changes, or once",
            choices=("none", "fixed_point", "once"),
        ),
    } | SPLIT_ARGUMENTS
    image_folder: str
    clean_file: str
    attribution_file: str
    filtering: str
    split_file: str | None
    client_column: str
    test_file: str | None

    def find(self) -> Listing:
        """The photographs that are there; the others are named."""
        landmark_of = self._clean() if self.split_file is None or (self.data_path / self.clean_file).is_file() else {}
        if self.split_file is None:
            rows = pd.DataFrame({"image_id": list(landmark_of), CLASS: [int(label) for label in landmark_of.values()]})
            rows["user_id"] = rows["image_id"].map(self._authors()).fillna("")
            if self.filtering != "none":
                n_before, rows = len(rows), self._filtered(rows)
                print(f"left out {counted(n_before - len(rows), 'image')} by --filtering {self.filtering}")
            names = {number: str(number) for number in set(rows[CLASS])}
        else:
            rows = read_splits(self.data_path, self.split_file, self.test_file, self.client_column)
            names = check_classes(rows, landmark_of, self.split_file)
        if strange := [image_id for image_id in rows["image_id"] if not _ID.fullmatch(image_id)]:
            raise UserError(f"{strange[0]!r} is no id of a landmark's photograph: 16 hexadecimal digits")
        class_names, classes = numbered(names, rows[CLASS])
        rows = rows.assign(**{RGB.domain: [self._cell(image_id) for image_id in rows["image_id"]], CLASS: classes})
        there = rows[RGB.domain] != ""
        errors = [f"{self._places(image_id)[0]}: there is no such photograph" for image_id in rows["image_id"][~there]]
        columns = [RGB.domain, CLASS, "user_id", *([PART] if PART in rows else [])]
        info = self.dataset_info(domains=(RGB.domain,), groups=("user_id",), classes={CLASS: ClassSet(class_names)})
        return Listing(rows[there][columns].reset_index(drop=True), info, errors)

    def _filtered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The large landmarks' images by large users to train on, and some by others to test with."""
        known = rows[rows["user_id"] != ""]
        landmark, user = (np.unique(known[column], return_inverse=True)[1] for column in (CLASS, "user_id"))
        train = known[large(landmark, user, once=self.filtering == "once")]
        rest = known[known[CLASS].isin(set(train[CLASS])) & ~known["user_id"].isin(set(train["user_id"]))]
        order = np.random.default_rng(self.rand_seed).permutation(len(rest))
        test = rest.iloc[order].groupby(CLASS).head(_TEST_IMAGES)
        return pd.concat([train.assign(**{PART: "train"}), test.assign(**{PART: "test"})], ignore_index=True)

    def _places(self, identity: str) -> tuple[str, str]:
        name = f"{identity}.jpg"
        return f"{self.image_folder}/{name}", f"{self.image_folder}/{'/'.join(identity[:3])}/{name}"

    def _cell(self, identity: str) -> str:
        """Where a photograph lies; empty where it is not there."""
        return next((place for place in self._places(identity) if (self.data_path / place).is_file()), "")

    def _clean(self) -> dict[str, str]:
        """The landmark of each clean image."""
        rows = self._csv(self.clean_file, ["landmark_id", "images"])
        if not rows["landmark_id"].str.fullmatch(r"\d{1,9}").all():
            raise UserError(f"{self.data_path / self.clean_file}: landmark_id must be a whole number")
        pairs = zip(rows["landmark_id"], rows["images"], strict=True)
        of_images = ((identity, landmark) for landmark, images in pairs for identity in images.split())
        return self._by_image(of_images, self.clean_file)

    def _authors(self) -> dict[str, str]:
        """The author of each image."""
        rows = self._csv(self.attribution_file, ["id", "author"])
        return self._by_image(zip(rows["id"], rows["author"], strict=True), self.attribution_file)

    def _by_image(self, pairs: Iterable[tuple[str, str]], name: str) -> dict[str, str]:
        try:
            return by_key(pairs, "image")
        except ValueError as error:
            raise UserError(f"{self.data_path / name}: {error}; take one out") from error

    def _csv(self, name: str, columns: list[str]) -> pd.DataFrame:
        path: Path = self.data_path / name
        try:
            return pd.read_csv(path, dtype=str, keep_default_na=False, usecols=columns)[columns]
        except (OSError, ValueError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot read its columns {', '.join(columns)} ({error})") from error


def large(landmark: np.ndarray, user: np.ndarray, once: bool = False) -> np.ndarray:
    """Which images (N,) belong to landmarks and users that are large enough, counting these images alone.

    Both filters only remove images, so that what is left when nothing changes any more does not depend on their order
    and is the largest set that satisfies all four bounds. `landmark` and `user` are numbers from 0. With `once` users
    are counted among the landmarks that are left, and landmarks not again.
    """
    selected = np.ones(len(landmark), bool)
    while True:
        before = selected.sum()
        selected &= _frequent(landmark, user, selected, *_LANDMARK)
        selected &= _frequent(user, landmark, selected, *_USER)
        if once or selected.sum() == before:
            return selected


def _frequent(of: np.ndarray, other: np.ndarray, selected: np.ndarray, n_images: int, n_others: int) -> np.ndarray:
    """Which images belong to something with so many kept images, of so many others."""
    n = int(of.max(initial=0)) + 1
    images = np.bincount(of[selected], minlength=n)
    pairs = np.unique(of[selected].astype(np.int64) * (int(other.max(initial=0)) + 1) + other[selected])
    others = np.bincount(pairs // (int(other.max(initial=0)) + 1), minlength=n)
    return ((images >= n_images) & (others >= n_others))[of]
