"""The `.npz` files of a folder: which arrays are images, and which are their labels and natural groups."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.sources.listing import DOMAIN, part_named
from datasets.stored import file_of, is_inside, open_member, read_member, regular_file
from datasets.table import PART
from datasets.tasks import CLASS, RGB
from utils.errors import UserError

_IMAGES, _LABELS = ("x", "image", "images"), ("y", "label", "labels")


@dataclass(frozen=True)
class _Array:
    """An array of an `.npz` file by its name and header."""

    path: Path
    name: str
    domain: str
    part: str | None
    what: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, path: Path, name: str) -> _Array:
        """From the header alone; ValueError where it cannot be read."""
        words = [word for word in name.split("_") if word]
        parts = [part for word in [*words, *path.stem.split("_")] if (part := part_named(word))]
        rest = [word for word in words if not part_named(word)]
        split = len(rest) - 1 if rest and rest[-1] in _IMAGES + _LABELS else 0
        with open_member(path, name) as member:
            domain, what = "_".join(rest[:split]), "_".join(rest[split:])
            return cls(path, name, domain, next(iter(parts), None), what, member.shape, member.dtype)

    @property
    def holds_images(self) -> bool:
        """Whether its name and shape are those of images."""
        return self.what in _IMAGES and len(self.shape) in (3, 4)

    def has_one_for_each(self, images: _Array) -> bool:
        """Whether it has a value for each of those images."""
        return self.part == images.part and self.shape in ((images.shape[0],), (images.shape[0], 1))

    def texts(self) -> list[str]:
        """Its values as text: whole numbers without a point, empty for NaN; UserError where it is broken."""
        try:
            values = read_member(self.path, self.name).reshape(-1)
        except ValueError as error:
            raise UserError(f"{self.path}: {error}; download or make it anew") from error
        if values.dtype.kind == "f":
            return [
                "" if value != value else str(int(value) if value.is_integer() else value) for value in values.tolist()
            ]
        return [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]


def find_in_arrays(data_path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The images in the `.npz` files of a folder, which may be none, and the arrays that are not used, with the reason.

    The columns are rgb, class (as text), a column for each natural group, and domain and part where they are known.
    `UserError` names a file that is broken, or arrays that do not fit each other.
    """
    tables: list[pd.DataFrame] = []
    errors: list[str] = []
    parts: dict[str | None, _Array] = {}
    for path in sorted(data_path.glob("*.npz")):
        arrays, useless = _arrays_of(path)
        used: set[str] = set()
        for images in (array for array in arrays if array.holds_images):
            columns = _columns_of(images, arrays)
            parts[images.part] = images
            used |= {images.name, *(array.name for array in columns.values())}
            tables.append(_rows(images, columns))
        errors += useless
        errors += [
            f"{path.name}: {array.name} has no value for each image" for array in arrays if array.name not in used
        ]
    if None in parts and len(parts) > 1:
        raise UserError(f"{parts[None].path}: {parts[None].name} names no split, though other arrays do; name one")
    return pd.concat(tables, ignore_index=True).fillna("") if tables else pd.DataFrame(), errors


def _arrays_of(path: Path) -> tuple[list[_Array], list[str]]:
    """The arrays of a file, and unreadable ones with the reason; UserError for the whole file, images and labels."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a readable .npz file ({error}); download or make it anew") from error
    arrays, errors = [], []
    for name in names:
        try:
            arrays.append(_Array.of(path, name))
        except ValueError as error:
            if name.split("_")[-1] in _IMAGES + _LABELS:
                raise UserError(f"{path}: {error}") from error
            errors.append(f"{error}")
    return arrays, errors


def _columns_of(images: _Array, arrays: list[_Array]) -> dict[str, _Array]:
    """The arrays of the images' classes and natural groups, by column; UserError where they do not fit."""
    where = f"{images.path}: the array {images.name}"
    channels = {1} if len(images.shape) == 3 else {images.shape[1], images.shape[3]}
    if images.dtype not in (np.uint8, np.uint16) or not channels & {1, 3, 4}:
        raise UserError(f"{where}, {images.shape} of {images.dtype}, has no images of 1, 3 or 4 channels of uint8")
    if not is_inside(cell := f"{images.path.name}#{images.name}/0") or file_of(cell) != images.path.name:
        raise UserError(f"{where} or its file has a name that the table cannot hold")
    fitting = [array for array in arrays if array.has_one_for_each(images)]
    labels = [array for array in fitting if array.what in _LABELS and array.domain == images.domain]
    if not labels or labels[0].dtype.kind not in "iuUS":
        raise UserError(f"{where} needs {images.shape[0]} labels beside it (y or labels), whole numbers or names")
    groups = {array.what: array for array in fitting if array.what not in ("", *_LABELS, RGB.domain, CLASS, PART)}
    return {CLASS: labels[0], **groups}


def _rows(images: _Array, columns: dict[str, _Array]) -> pd.DataFrame:
    cells = [f"{images.path.name}#{images.name}/{row}" for row in range(images.shape[0])]
    rows = pd.DataFrame({RGB.domain: cells, **{column: array.texts() for column, array in columns.items()}})
    known = {DOMAIN: images.domain, PART: images.part}
    return rows.assign(**{column: text for column, text in known.items() if text})
