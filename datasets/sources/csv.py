"""A csv file with a row per image: `image, class[, split, user_id, lat, lon, domain, mask …]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.classes import ClassSet
from datasets.places import MAX_CELL, named_cells
from datasets.sources.id_masks import named_classes, read_masks
from datasets.sources.labels import MASK_CLASSES
from datasets.sources.listing import file_error, number_classes, part_named
from datasets.sources.ranges import lines_of_columns
from datasets.sources.source import Source
from datasets.sources.taskonomy import MEDIAN_DEPTH, depth_limit
from datasets.sources.text_table import read_text_table
from datasets.stored import is_inside
from datasets.table import PART, Listing
from datasets.tasks import CLASS, DEPTH, MOTION, RGB, RGB_NEXT, TASKS
from utils.arguments import Argument
from utils.errors import UserError

_IMAGE, _SPLIT = "image", "split"
_PLACES = (("lat", "latitude"), ("lon", "lng", "long", "longitude"))  # what columns of degrees are called
_ENCODINGS = {
    task.encoding.domain: task.encoding
    for task in TASKS.values()
    if task.encoding and task.dense and not task.instances and (not task.encoding.maps or task.encoding.maps.flow)
}


class Csv(Source):
    """The images that a csv file in the data folder lists, with paths relative to that folder.

    The columns are `image`; `class`, a name or a number; `split`, the part; those called like the domain of a task
    (`mask`, `depth_euclidean`, `normal` …), which hold files in its encoding, and `rgb_next`, the second photographs of
    pairs; and every other one is a natural group.
    """

    arguments: ClassVar[dict[str, Argument]] = (
        {
            "table_file": Argument("images.csv", "csv file of the images, in the data folder"),
        }
        | MASK_CLASSES
        | MAX_CELL
        | MEDIAN_DEPTH
    )
    table_file: str
    mask_classes: str | None
    void_ids: Sequence[int]
    max_cell: Sequence[int] | None
    max_median_depth: float

    def find(self) -> Listing:
        """The rows whose files are there; others are left out and named by their line."""
        path = self.data_path / self.table_file
        rows, errors = read_text_table(path, "--table_file")
        _check_header(path, list(rows.columns))
        targets = [name for name in rows.columns if name in _ENCODINGS]
        files = [RGB_NEXT.domain, *targets] if RGB_NEXT.domain in rows else targets
        if MOTION in targets and RGB_NEXT.domain not in files:
            raise UserError(f"{path}: the column {MOTION} needs one of second photographs, {RGB_NEXT.domain}")
        if not len(rows) and not errors:
            raise UserError(f"{path}: no row under the names of its columns")
        if CLASS not in rows and not targets:
            raise UserError(f"{path}: no column {CLASS}, and none of files ({', '.join(_ENCODINGS)})")
        rows, more = self._complete(path, rows, [_IMAGE, *files], needs_class=not targets)
        labels, classes = number_classes(_without_decimals(rows[CLASS].tolist() if CLASS in rows else [""] * len(rows)))
        maps = [name for name in targets if not _ENCODINGS[name].categorical]
        for text in lines_of_columns(
            self.data_path, [_ENCODINGS[name] for name in maps], [rows[name].tolist() for name in maps]
        ):
            print(text)
        rows = rows.rename(columns={_IMAGE: RGB.domain, _SPLIT: PART}).assign(**{CLASS: labels})
        for name in [name for name in targets if _ENCODINGS[name].categorical]:
            rows, classes[name] = self._with_masks(name, rows, more)
        rows = self._in_cells(path, rows)
        groups = tuple(name for name in rows.columns if name not in (RGB.domain, *files, CLASS, PART))
        limits = depth_limit(self.max_median_depth) if DEPTH.domain in targets else {}
        info = self.dataset_info(domains=(RGB.domain, *files), groups=groups, classes=classes, limits=limits)
        return Listing(rows, info, errors + more)

    def _in_cells(self, path: Path, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with the cells that their places lie in, for these; as they are without `--max_cell`."""
        places = [name for names in _PLACES for name in rows if name.lower() in names]
        if len(places) != len(_PLACES):
            if self.max_cell:
                raise UserError(f"{path}: --max_cell needs a column {' and one '.join(names[0] for names in _PLACES)}")
            return rows
        if not self.max_cell:
            print(f"{' and '.join(places)} are natural groups like others; --max_cell makes cells of places")
            return rows
        latitude, longitude = (_degrees(path, rows[name]) for name in places)
        train = (rows[PART] == "train").to_numpy() if PART in rows else np.ones(len(rows), bool)
        rows = rows.drop(columns=places)
        for most in self.max_cell:
            if (name := f"cell_{most}") in rows:
                raise UserError(f"{path}: a column is called {name}, as the cells of --max_cell {most} are; rename it")
            rows[name] = named_cells(latitude, longitude, train, most)
        return rows

    def _complete(
        self, path: Path, rows: pd.DataFrame, files: list[str], needs_class: bool
    ) -> tuple[pd.DataFrame, list[str]]:
        """The rows that have all files, a class if it is needed and a part if there are parts; and the others' errors.

        UserError for a path that leaves the data folder, and for a part of another name.
        """
        for name in files:
            rows[name] = [str(PurePosixPath(cell)) if cell else "" for cell in rows[name]]
            if outside := [(line, cell) for line, cell in rows[name].items() if cell and not is_inside(cell)]:
                line, cell = outside[0]
                raise UserError(f"{path}, line {line}: {cell!r} is not a path within the data folder, written with /")
        if _SPLIT in rows:
            parts = rows[_SPLIT].map(lambda text: part_named(text) or "")
            if len(strange := rows[_SPLIT][(parts == "") & (rows[_SPLIT] != "")]):
                raise UserError(
                    f"{path}, line {strange.index[0]}: {strange.iloc[0]!r} is not one of train, val and test"
                )
            rows[_SPLIT] = parts
        needed = [*files, *[CLASS] * needs_class, *[_SPLIT] * (_SPLIT in rows)]
        errors, seen = {}, set()
        for line, row in zip(rows.index, rows.to_dict("records"), strict=True):
            missing = [f"no {name}" for name in needed if not row[name]]
            missing += [f"{row[name]}: {error}" for name in files if (error := file_error(self.data_path, row[name]))]
            missing += ["the image stands there twice"] * (row[_IMAGE] in seen)
            if missing:
                errors[line] = f"{path.name}, line {line}: {missing[0]}"
            else:
                seen.add(row[_IMAGE])
        return rows.drop(index=list(errors)), list(errors.values())

    def _with_masks(self, column: str, rows: pd.DataFrame, errors: list[str]) -> tuple[pd.DataFrame, ClassSet]:
        """The rows with masks that can be read, and the masks' classes; the others are added to the errors."""
        if self.mask_classes is None:
            raise UserError(f"the column {column} holds ids of classes: give --mask_classes a file with their names")
        path = self.data_path / self.mask_classes
        cells, seen, void = read_masks(self.data_path, rows[column].tolist(), path, errors)
        classes = named_classes(path, [*self.void_ids, *void], [n for n in seen if n])
        return rows.assign(**{column: cells})[list(map(bool, seen))], classes


def _check_header(path: Path, names: Sequence[str]) -> None:
    """UserError unless the columns are called as the table can call them, with one of images among them."""
    if _IMAGE not in names:
        raise UserError(f"{path}: no column {_IMAGE} among {', '.join(names) or 'none'}; name them in the first line")
    if strange := [name for name in names if name in (RGB.domain, PART)]:
        raise UserError(f"{path}: a column cannot be called {strange[0]!r}; give it another name")


def _degrees(path: Path, texts: pd.Series) -> np.ndarray:
    """A column of latitudes or longitudes as numbers, NaN where it is empty; UserError for what is no number."""
    values = pd.to_numeric(texts.where(texts != "", "nan"), errors="coerce").to_numpy(float)
    if len(strange := texts[np.isnan(values) & (texts != "")]):
        raise UserError(f"{path}, line {strange.index[0]}: {texts.name} {strange.iloc[0]!r} is no number of degrees")
    return values


def _without_decimals(texts: list[str]) -> list[str]:
    """The texts, without `.0` where all are whole numbers; so they are written where some of a column are empty."""
    if all(re.fullmatch(r"(\d+(\.0+)?)?", text, re.ASCII) for text in texts):
        return [text.partition(".")[0] for text in texts]
    return texts
