"""Digits of several domains (MNIST, USPS, SVHN …), each in arrays, in folders or in files like MNIST's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from datasets.sources.folder import find_in_folders
from datasets.sources.listing import DOMAIN, number_classes, part_named
from datasets.sources.npz import find_in_arrays
from datasets.sources.source import Source
from datasets.stored import file_of, regular_file
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.errors import UserError

_DIGITS = dict(enumerate("0123456789"))
_IMAGES = "images?idx3-ubyte"  # a hyphen, or a point
_IMAGES_HEADER, _LABELS_HEADER = 16, 8  # bytes


class Digits(Source):
    """Digits whose natural group is the `domain`, from all of these that lie in the data folder:

    - arrays `<domain>_train_x`, `<domain>_train_y`, `<domain>_test_x` … in `.npz` files, or such without a domain in a
      file that is called by it (`svhn_train.npz` with x and y);
    - folders `<domain>/<part>/<digit>/*.png`, or with the part before the domain;
    - MNIST's own files, unpacked, `<domain>/raw/train-images-idx3-ubyte` and so on.

    Where a domain has no training part, or none to test with, images of all domains are held out at random.
    """

    def find(self) -> Listing:
        """All digits of all domains."""
        arrays, errors = find_in_arrays(self.data_path)
        if len(arrays):
            of_file = arrays[RGB.domain].map(_domain_of_file)
            arrays[DOMAIN] = arrays[DOMAIN].where(arrays[DOMAIN] != "", of_file) if DOMAIN in arrays else of_file
        folders, more = find_in_folders(self.data_path)
        if len(folders) and DOMAIN not in folders:
            raise UserError(f"{self.data_path}: folders of digits and none of domains; the layout is <domain>/<digit>/")
        paths = [path for folder in ("*", "*/raw") for path in self.data_path.glob(f"{folder}/*-{_IMAGES}")]
        own = [find_in_idx(self.data_path, path) for path in sorted(paths)]
        tables = [table for table in (arrays, folders, *own) if len(table)]
        if not tables:
            raise UserError(f"{self.data_path}: no digits in .npz files, in <domain>/<digit>/ or in */raw/*-{_IMAGES}")
        rows = pd.concat(tables, ignore_index=True)
        columns = [name for name in (RGB.domain, CLASS, DOMAIN, PART) if name in rows]
        rows = _with_whole_parts(rows[columns])
        labels, classes = number_classes(rows[CLASS].tolist(), _DIGITS)
        info = self.dataset_info(domains=(RGB.domain,), groups=(DOMAIN,), classes=classes)
        return Listing(rows.assign(**{CLASS: labels}), info, errors + more)


def find_in_idx(data_path: Path, images: Path) -> pd.DataFrame:
    """The digits in a pair of MNIST's files, which lie in the folder of their domain; UserError where they are broken.

    The headers hold big-endian 32-bit numbers: a magic one, that of images, and rows and columns of pixels.
    """
    part, _, ending = images.name.rpartition("-images")
    labels = images.with_name(f"{part}-labels{ending.replace('3', '1')}")
    try:
        n, height, width = np.fromfile(regular_file(images), ">u4", 3, offset=4).tolist()
        texts = np.fromfile(regular_file(labels), np.uint8, offset=_LABELS_HEADER).astype(str)
        if images.stat().st_size != _IMAGES_HEADER + n * height * width or len(texts) != n:
            raise ValueError(f"{n} images of {height} x {width} and {len(texts)} labels do not fill their files")
    except (OSError, ValueError) as error:
        raise UserError(f"{images} or its labels cannot be read ({error}); download both anew") from error
    file = images.relative_to(data_path)
    cells = [f"{file.as_posix()}#{_IMAGES_HEADER + row * height * width}:{height}x{width}" for row in range(n)]
    return pd.DataFrame({RGB.domain: cells, CLASS: texts, DOMAIN: file.parts[0], PART: part_named(part.split("-")[-1])})


def _domain_of_file(cell: str) -> str:
    """What a file is called, without the word for its part."""
    stem = Path(file_of(cell)).stem
    return "_".join(word for word in stem.split("_") if not part_named(word)) or stem


def _with_whole_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without their parts, unless every domain has images to train on and to test with."""
    if PART not in rows:
        return rows
    trained, tested = (set(rows[DOMAIN][rows[PART].isin(parts)]) for parts in (("train",), ("test", "val")))
    if lacking := sorted(set(rows[DOMAIN]) - (trained & tested)):
        print(f"{', '.join(lacking)}: not in two splits, so the test split is drawn at random from all domains")
        return rows.drop(columns=PART)
    return rows
