"""iNaturalist 2017 from its official metadata, with users and places, or one of its published federated splits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from datasets.classes import ClassSet
from datasets.places import MAX_CELL, named_cells
from datasets.sources.keyed import by_key
from datasets.sources.source import Source
from datasets.sources.split_files import SPLIT_ARGUMENTS, check_classes, numbered, read_splits
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.args import POSITIVE_INT
from utils.arguments import Argument
from utils.errors import UserError
from utils.files import json_in
from utils.words import counted

_LOCATION = ["user_id", "lat", "lon"]
_YEARS_PARTS = (("train", "train"), ("val", "test"))  # of the competition's files, and what they are here


class INaturalist(Source):
    """Photographs of `train2017.json` to train on and of `val2017.json` to test with, in `--image_folder`.

    `train2017_locations.json` and `val2017_locations.json`, where they are there, give the natural groups `user_id`,
    `lat` and `lon`; `supercategory` always is one. With `--split_file` (iNaturalist-User-120k, -Geo-*) the images,
    their clients (`user_id`) and classes are those of the file, whose image ids are the stems of the files' names.

    With `--images_per_class 100` it is the set that Hsu, Qi and Brown 2020 (arXiv 2003.08082) made their splits of:
    1,203 classes of 100 images each, and the test images of these; which of a larger class's images are drawn depends
    on the seed, and theirs is not known. `--max_cell 3000` adds the natural group `cell_3000` of their Geo-3k.
    """

    arguments: ClassVar[dict[str, Argument]] = (
        {
            "image_folder": Argument("train_val_images", "folder under which the photographs lie, as in the archive"),
            "year": Argument("2017", "of the metadata files train<year>.json and val<year>.json"),
            "images_per_class": Argument(
                None, "keep classes with so many training images at least, and so many of each", POSITIVE_INT
            ),
        }
        | MAX_CELL
        | SPLIT_ARGUMENTS
    )
    image_folder: str
    year: str
    images_per_class: int | None
    max_cell: Sequence[int] | None
    split_file: str | None
    client_column: str
    test_file: str | None

    def find(self) -> Listing:
        """The photographs that are there; the others are named."""
        if self.split_file is None:
            return self._of_metadata()
        if self.images_per_class or self.max_cell:
            raise UserError("--images_per_class and --max_cell make a split where --split_file has one; omit one")
        return self._of_split(self.split_file)

    def _of_metadata(self) -> Listing:
        rows = pd.concat([self._read(name, part) for name, part in _YEARS_PARTS], ignore_index=True)
        if self.images_per_class:
            selected = balanced(rows["name"], rows[PART] == "train", self.images_per_class, self.rand_seed)
            print(f"left out {counted(len(rows) - len(selected), 'image')} that --images_per_class does not keep")
            rows = rows.loc[selected]
        names = sorted(set(rows["name"]))
        rows = rows.assign(**{CLASS: rows["name"].map({name: i for i, name in enumerate(names)})})
        groups = ["supercategory", *(column for column in _LOCATION if column in rows)]
        for most in self.max_cell or ():
            rows = rows.assign(**{f"cell_{most}": self._cells(rows, most)})
            groups.append(f"cell_{most}")
        return self._listing(rows, tuple(groups), tuple(names), self._walk())

    def _cells(self, rows: pd.DataFrame, most: int) -> np.ndarray:
        """The cell of each training image by name, empty for nobody's."""
        if "lat" not in rows:
            raise UserError(f"{self.data_path}: no train{self.year}_locations.json, which --max_cell needs")
        latitude, longitude = (pd.to_numeric(rows[name], errors="coerce").to_numpy(float) for name in ("lat", "lon"))
        return named_cells(latitude, longitude, (rows[PART] == "train").to_numpy(), most)

    def _of_split(self, split_file: str) -> Listing:
        rows = read_splits(self.data_path, split_file, self.test_file, self.client_column)
        photographs = self._walk()
        image_ids = set(rows["image_id"])
        try:
            stems = by_key(
                ((Path(cell).stem, cell) for cell in photographs if Path(cell).stem in image_ids), "photograph"
            )
        except ValueError as error:
            raise UserError(f"{self.data_path / self.image_folder}: {error}; take one out") from error
        folders = {stem: Path(cell).parent.name for stem, cell in stems.items()}
        names, classes = numbered(check_classes(rows, folders, split_file), rows[CLASS])
        cells = rows["image_id"].map(stems).fillna("missing: " + rows["image_id"])
        return self._listing(rows.assign(**{RGB.domain: cells, CLASS: classes}), ("user_id",), names, photographs)

    def _listing(
        self, rows: pd.DataFrame, groups: tuple[str, ...], names: tuple[str, ...], photographs: Sequence[str]
    ) -> Listing:
        there = rows[RGB.domain].isin(set(photographs))
        errors = [f"{cell}: there is no such photograph" for cell in rows[RGB.domain][~there]]
        columns = [RGB.domain, CLASS, *groups, *([PART] if PART in rows else [])]
        info = self.dataset_info(domains=(RGB.domain,), groups=groups, classes={CLASS: ClassSet(names)})
        return Listing(rows[there][columns].reset_index(drop=True), info, errors)

    def _walk(self) -> list[str]:
        """The cells of all photographs under the root."""
        root = self.data_path / self.image_folder
        paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        return sorted(path.relative_to(self.data_path).as_posix() for path in paths if not path.name.startswith("."))

    def _read(self, name: str, part: str) -> pd.DataFrame:
        """A row per image of one metadata file: cell, class name, groups and part."""
        path = self.data_path / f"{name}{self.year}.json"
        content = _json(path)
        try:
            images = pd.DataFrame(content["images"])[["id", "file_name"]].astype({"id": str})
            labels = pd.DataFrame(content["annotations"])[["image_id", "category_id"]].astype(str)  # or numbers here
            categories = pd.DataFrame(content["categories"])[["id", "name", "supercategory"]].astype({"id": str})
            rows = images.merge(labels, left_on="id", right_on="image_id", validate="one_to_one")
            rows = rows.merge(
                categories, left_on="category_id", right_on="id", suffixes=("", "_of_category"), validate="many_to_one"
            )
            rows[RGB.domain] = rows["file_name"]
            locations = self.data_path / f"{name}{self.year}_locations.json"
            if locations.is_file():
                known = by_key(((str(record["id"]), record) for record in _json(locations)), f"{locations.name}: id")
                for column in _LOCATION:
                    values = (known.get(identity, {}).get(column) for identity in rows["id"].tolist())
                    rows[column] = ["" if value is None else str(value) for value in values]
        except (KeyError, ValueError, TypeError, pd.errors.MergeError) as error:
            raise UserError(f"{path}: not iNaturalist's metadata ({error})") from error
        if n_lost := len(images) - len(rows):
            print(
                f"left out {n_lost} of {counted(len(images), 'image')} of {path.name} without a category's annotation"
            )
        return rows.assign(**{PART: part})


def balanced(names: pd.Series, train: pd.Series, n: int, seed: int) -> np.ndarray:
    """The positions of `n` training images of each class that has as many, drawn by the seed, and of its other images.

    `names` (N,) are the classes of the images, `train` (N,) says which are trained on. UserError if no class is left.
    """
    rng = np.random.default_rng(seed)
    counts = names[train].value_counts()
    frequent = counts.index[counts >= n]
    if not len(frequent):
        raise UserError(f"--images_per_class {n}: the largest class has {counts.max()} training images")
    others = np.flatnonzero(names.isin(frequent) & ~train)
    of_classes = pd.Series(np.flatnonzero(train)).groupby(names[train].to_numpy())
    drawn = [
        rng.choice(of_class.to_numpy(), n, replace=False) for name, of_class in of_classes if name in set(frequent)
    ]
    return np.sort(np.concatenate([*drawn, others]))


def _json(path: Path) -> Any:
    try:
        return json_in(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); it is one of iNaturalist's metadata files") from error
