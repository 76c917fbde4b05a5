"""How tests ask a source for images, and the files that they write for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from datasets.packed import load_packed
from datasets.sources import SOURCES, select_images
from datasets.table import Listing, Table, read_table
from datasets.tasks import RGB


def arguments(source: str, data_path: Path, **more: object) -> dict[str, object]:
    """The arguments of stage 1."""
    common = {"fit": "crop", "resize": "mean", "levels": None, "test_fraction": 0.25, "rand_seed": 0}
    return {"source": source, "data_path": data_path, **common, **more}


def find(source: str, data_path: Path, **more: object) -> Listing:
    """What a source finds."""
    return SOURCES[source](arguments(source, data_path, **more)).find()


def select(source: str, data_path: Path, **more: object) -> Table:
    """The table that stage 1 makes."""
    select_images(**arguments(source, data_path, **more))
    return read_table(data_path)


def pixels(table: Table, size: int) -> np.ndarray:
    """The packed photographs, (N, 3, size, size)."""
    return load_packed(table, RGB, size)[0]


def write_image(path: Path, colour: int | tuple[int, ...] = 0, mode: str = "RGB") -> None:
    """A picture of one colour, 8 x 8, in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (8, 8), colour).save(path)


def save_image(path: Path, values: np.ndarray | int = 0, mode: str | None = None) -> Path:
    """An image file of these values, or of one grey in 8 x 8 pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.full((8, 8, 3), values, np.uint8) if isinstance(values, int) else values
    Image.fromarray(array).convert(mode).save(path)
    return path


def noise(seed: int, *shape: int) -> np.ndarray:
    """Random pixels."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def rows_of(found: Listing, *columns: str) -> set[tuple]:
    """The rows, with the name of the class in place of its number."""
    names: Mapping[int, str] = dict(enumerate(found.info.classes["class"].names))
    rows = found.rows.assign(**{"class": found.rows["class"].map(names)})
    return set(rows[["rgb", "class", *columns]].itertuples(index=False, name=None))
