"""CIFAR-10 and CIFAR-100 in their binary version (https://www.cs.toronto.edu/~kriz/cifar.html), also as -LT sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.classes import ClassSet
from datasets.sources.names import read_names
from datasets.sources.source import Source
from datasets.sources.split_files import SPLIT_ARGUMENTS, USER, read_split
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.args import number
from utils.arguments import Argument
from utils.errors import UserError

_PIXELS = (3, 32, 32)


class Cifar10(Source):
    """The files `data_batch_1.bin` … `data_batch_5.bin`, `test_batch.bin` and `batches.meta.txt`.

    They lie in the data folder or in its usual subfolder. A record is a byte for each kind of class and 3,072 bytes of
    pixels. With `--split_file` (federated_train_alpha_0.10.csv … of Hsu, Qi and Brown 2020, arXiv 2003.08082) the
    clients of that file are the natural group `user_id`.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "long_tail": Argument(
            None,
            "rho of the long-tailed set: the largest class of the train split has rho times the images of the smallest",
            number(float, least=1),
        ),
        "split_file": replace(SPLIT_ARGUMENTS["split_file"], text="csv of the training images' clients, of v1.1"),
    }
    long_tail: float | None
    split_file: str | None
    subfolder: ClassVar[str] = "cifar-10-batches-bin"
    records: ClassVar[Mapping[str, int]] = {
        **{f"data_batch_{batch}.bin": 10_000 for batch in range(1, 6)},
        "test_batch.bin": 10_000,
    }
    # The bytes before a record's pixels, with the files of their names; the last one is the class, others are groups.
    names: ClassVar[Mapping[str, str]] = {CLASS: "batches.meta.txt"}

    def find(self) -> Listing:
        """All images, or with `--long_tail` those that are drawn for the training part, and the whole test part."""
        folder = self.data_path / self.subfolder
        folder = folder if folder.is_dir() else self.data_path
        read = {column: read_names(folder / file, f"--source {self._name}") for column, file in self.names.items()}
        names = {column: tuple(by_number.values()) for column, by_number in read.items()}
        rows = pd.concat([self._read(folder / file, names) for file in self.records], ignore_index=True)
        if self.long_tail:
            train = np.flatnonzero(rows[PART] == "train")
            selected = train[long_tail(rows[CLASS].to_numpy()[train], self.long_tail, self.rand_seed)]
            rows = rows.loc[np.union1d(selected, np.flatnonzero(rows[PART] == "test"))]
        groups = tuple(column for column in names if column != CLASS)
        if self.split_file:
            rows, groups = self._split(rows, self.data_path / self.split_file), (*groups, USER)
        info = self.dataset_info(domains=(RGB.domain,), groups=groups, classes={CLASS: ClassSet(names[CLASS])})
        return Listing(rows, info)

    def _split(self, rows: pd.DataFrame, path: Path) -> pd.DataFrame:
        """The training images of a split file with their clients, and the test images; UserError for another's file."""
        train = rows[rows[PART] == "train"]
        split = read_split(path, "train")
        known = split["image_id"].isin(train.index.astype(str))
        labels = train[CLASS].reindex(pd.to_numeric(split["image_id"].where(known, "-1"))).to_numpy()
        if len(wrong := split[labels != split[CLASS]]):
            raise UserError(
                f"{path}: {len(wrong)} images have another class here, image {wrong['image_id'].iloc[0]} the first; "
                "it is of another data set or release (only v1.1 has the right images)"
            )
        train = train.loc[split["image_id"].astype(int)].assign(**{USER: split[USER].to_numpy()})
        return pd.concat([train, rows[rows[PART] == "test"].assign(**{USER: ""})], ignore_index=True)

    def _read(self, path: Path, names: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
        n, length = self.records[path.name], len(names) + int(np.prod(_PIXELS))
        try:
            size = path.stat().st_size
            records = np.memmap(path, np.uint8, "r", 0, (n, length)) if size == n * length else None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); download CIFAR's binary version") from error
        if records is None:
            raise UserError(f"{path}: {size} bytes where {n} records of {length} make {n * length}; download it anew")
        labels = {column: records[:, byte].astype(int) for byte, column in enumerate(names)}
        for column, values in labels.items():
            if values.max() >= len(names[column]):
                raise UserError(f"{path}: class {values.max()} has no name in {self.names[column]}; download both anew")
        file, shape = path.relative_to(self.data_path).as_posix(), "x".join(map(str, _PIXELS))
        cells = [f"{file}#{record * length + len(names)}:{shape}" for record in range(n)]
        groups = {column: np.array(names[column])[labels[column]] for column in names if column != CLASS}
        part = "test" if path.name.startswith("test") else "train"
        return pd.DataFrame({RGB.domain: cells, **groups, CLASS: labels[CLASS], PART: part})


class Cifar100(Cifar10):
    """The files `train.bin`, `test.bin`, `coarse_label_names.txt` and `fine_label_names.txt`.

    The 20 coarse classes are the natural group `coarse`.
    """

    subfolder = "cifar-100-binary"
    records: ClassVar[Mapping[str, int]] = {"train.bin": 50_000, "test.bin": 10_000}
    names: ClassVar[Mapping[str, str]] = {"coarse": "coarse_label_names.txt", CLASS: "fine_label_names.txt"}


def long_tail(labels: np.ndarray, rho: float, seed: int) -> np.ndarray:
    """The positions, sorted, of the images that a long-tailed set keeps, drawn by the seed.

    Of class c it keeps n_max · rho^(-c / (C - 1)), rounded down, where n_max is the size of the largest of C classes
    (Cao et al. 2019, arXiv 1906.07413), and at most what there is.

    Args:
        labels: (N,) integers, the classes 0 … C - 1.
        rho: the imbalance, the size of class 0 over that of class C - 1.
        seed: of the draw.
    """
    sizes = np.bincount(labels)
    last = max(len(sizes) - 1, 1)
    rng = np.random.default_rng(seed)
    selected = []
    for label, size in enumerate(sizes):
        n = min(size, int(sizes.max() * (1 / rho) ** (label / last) + 1e-9))
        selected.append(rng.permutation(np.flatnonzero(labels == label))[:n])
    return np.sort(np.concatenate(selected))
