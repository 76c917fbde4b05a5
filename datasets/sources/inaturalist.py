"""iNaturalist 2017 from its official metadata, with users and places, or one of its published federated splits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from datasets.sources.source import Source
from datasets.sources.split_files import SPLIT_ARGUMENTS, check_classes, numbered, read_splits
from datasets.table import PART, Found
from datasets.tasks import CLASS, RGB, ClassSet
from utils.arguments import Argument
from utils.errors import UserError

_LOCATION = ["user_id", "lat", "lon"]
_YEARS_PARTS = (("train", "train"), ("val", "test"))  # of the competition's files, and what they are here


class INaturalist(Source):
    """Photographs of `train2017.json` to train on and of `val2017.json` to test with, in `--image_folder`.

    `train2017_locations.json` and `val2017_locations.json`, where they are there, give the natural groups `user_id`,
    `lat` and `lon`; `supercategory` always is one. With `--split_file` (iNaturalist-User-120k, -Geo-*) the images,
    their clients (`user_id`) and classes are those of the file, whose image ids are the stems of the files' names.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument("train_val_images", "folder under which the photographs lie, as in the archive"),
        "year": Argument("2017", "of the metadata files train<year>.json and val<year>.json"),
    } | SPLIT_ARGUMENTS
    image_folder: str
    year: str
    split_file: str | None
    test_file: str | None

    def find(self) -> Found:
        """The photographs that are there; the others are named."""
        return self._of_metadata() if self.split_file is None else self._of_split(self.split_file)

    def _of_metadata(self) -> Found:
        rows = pd.concat([self._read(name, part) for name, part in _YEARS_PARTS], ignore_index=True)
        names = sorted(set(rows["name"]))
        rows[CLASS] = rows["name"].map({name: i for i, name in enumerate(names)})
        groups = ("supercategory", *(column for column in _LOCATION if column in rows))
        return self._found(rows, groups, tuple(names))

    def _of_split(self, split_file: str) -> Found:
        rows = read_splits(self.data_path, split_file, self.test_file)
        stems = {Path(cell).stem: cell for cell in self._walk()}
        folders = {stem: Path(cell).parent.name for stem, cell in stems.items()}
        names, classes = numbered(check_classes(rows, folders, split_file), rows[CLASS])
        cells = rows["image_id"].map(stems).fillna("missing: " + rows["image_id"])
        return self._found(rows.assign(**{RGB.domain: cells, CLASS: classes}), ("user_id",), names)

    def _found(self, rows: pd.DataFrame, groups: tuple[str, ...], names: tuple[str, ...]) -> Found:
        there = rows[RGB.domain].isin(set(self._walk()))
        faults = [f"{cell}: there is no such photograph" for cell in rows[RGB.domain][~there]]
        columns = [RGB.domain, CLASS, *groups, *([PART] if PART in rows else [])]
        about = self.about(domains=(RGB.domain,), groups=groups, classes={CLASS: ClassSet(names)})
        return Found(rows[there][columns].reset_index(drop=True), about, faults)

    def _walk(self) -> list[str]:
        """The cells of all photographs under the root."""
        root = self.data_path / self.image_folder
        found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        return sorted(path.relative_to(self.data_path).as_posix() for path in found if not path.name.startswith("."))

    def _read(self, name: str, part: str) -> pd.DataFrame:
        """A row per image of one metadata file: cell, class name, groups and part."""
        path = self.data_path / f"{name}{self.year}.json"
        content = _json(path)
        try:
            images = pd.DataFrame(content["images"])[["id", "file_name"]]
            labels = pd.DataFrame(content["annotations"])[["image_id", "category_id"]]
            categories = pd.DataFrame(content["categories"])[["id", "name", "supercategory"]]
            rows = images.merge(labels, left_on="id", right_on="image_id", validate="one_to_one")
            rows = rows.merge(categories, left_on="category_id", right_on="id", suffixes=("", "_of_category"))
            rows[RGB.domain] = rows["file_name"]
            locations = self.data_path / f"{name}{self.year}_locations.json"
            if locations.is_file():
                known = {each["id"]: each for each in _json(locations)}
                for column in _LOCATION:
                    values = (known.get(identity, {}).get(column) for identity in rows["id"].tolist())
                    rows[column] = ["" if value is None else str(value) for value in values]
        except (KeyError, ValueError, TypeError, pd.errors.MergeError) as error:
            raise UserError(f"{path}: not iNaturalist's metadata ({error})") from error
        return rows.assign(**{PART: part})


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); it is one of iNaturalist's metadata files") from error
