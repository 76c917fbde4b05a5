"""Partitions of any data set, from embeddings, labels, users or places in `.npy` files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.places import adaptive_cells
from datasets.table import TABLE_FILE, read_table
from network.partition.nested import Natural, clusters_within, joined, lines_within, names_within, owners_within
from network.partition.settings import ArrayFiles, GroupSettings
from utils.errors import UserError
from utils.files import read_json
from utils.versions import file_digest
from utils.words import in_order

_FILES = ("embeddings", "users", "lat_lng", "labels")  # the first of these that is given is assigned
_OF_WITHIN = "values of --within"
_CALLED = {"embeddings": "cluster", "users": "user", "lat_lng": "cell", "labels": "label"}  # a group of each


@dataclass(frozen=True)
class Arrays:
    """The input of `make_partition.py`.

    `groups` (N,) are assigned, by a rule or each to a client of its own; `labels` (N,), if there are any, are reported.
    `projection` (N, D) is that of the embeddings. `described` (N,) are the groups that the measures are of, `names`
    what one of these is called, and one of those assigned; `shown` are those that figures are drawn of, by name.
    `natural` are the groups within which they are assigned, if any, and `n_clusters` how many clusters each should
    have.
    `origin` says what all this was made from.
    """

    groups: np.ndarray
    labels: np.ndarray | None
    projection: np.ndarray | None
    described: np.ndarray
    names: tuple[str, str]
    shown: Mapping[str, np.ndarray]
    origin: Mapping[str, Any]
    natural: Natural | None = None
    n_clusters: int | None = None

    def called(self, groups: np.ndarray) -> tuple[Sequence[str], Sequence[str]]:
        """The names of groups that were assigned within natural groups, and of the natural group of each; else none."""
        if self.natural is None or groups is not self.groups:
            return (), ()
        return names_within(self.natural, groups), owners_within(self.natural, groups)

    @property
    def may_be_assigned(self) -> np.ndarray:
        """The images (N,) bool that are in a natural group, all where there are none: of the others `lines` tells."""
        return np.ones(len(self.groups), bool) if self.natural is None else self.natural.numbers >= 0

    def lines(self, client_of: np.ndarray) -> Iterable[str]:
        """Lines about a partition within natural groups; none without natural groups."""
        return lines_within(client_of, self.groups, self.natural, self.n_clusters) if self.natural else ()


def read_arrays(files: ArrayFiles, settings: GroupSettings) -> Arrays:
    """The files' content, with groups made of embeddings and of places.

    UserError if there is nothing to assign, if there are several things to assign, or if the files are of different
    images.
    """
    provided = {name: path for name in _FILES if (path := getattr(files, name)) is not None}
    first = next(iter(provided), "")
    if not provided:
        raise UserError("nothing to assign; give --embeddings, --labels, --users or --lat_lng")
    if len(others := [name for name in provided if name != "labels"]) > 1:
        raise UserError(f"--{' and --'.join(others)} cannot both be assigned; omit one")
    if files.within and (files.users or files.lat_lng):
        raise UserError(f"--within is not for --{first}, each of which becomes a client whole; omit one")
    natural = None if files.within is None else read_natural(files.within)
    labels = None if files.labels is None else read_labels(files.labels)
    origin: dict[str, Any] = {}
    if files.labels and labels is not None and (train := trained_on(files.labels, len(labels))) is not None:
        print(f"{files.labels}: clusters of {len(labels)} images; the {len(train)} trained on count, in their order")
        labels, origin["part"] = labels[train], "train"
    projection, shown = None, {} if labels is None else {"label": labels}
    if files.embeddings:
        projection, groups = _clusters(read_embeddings(files.embeddings), settings, labels, natural)
        shown["cluster"] = groups
    elif files.lat_lng:
        cells = adaptive_cells(*read_places(files.lat_lng), settings.max_cell, settings.min_cell)
        print(cells)
        groups, origin["cells"] = cells.cell, cells.tokens
    elif files.users:
        groups, origin["client_names"] = read_names(files.users, "users")
    else:
        assert labels is not None
        groups = labels
        if natural is not None:
            _check_lengths(len(labels), "labels", natural.numbers, _OF_WITHIN)
            groups = joined(natural, labels)
    _check_lengths(len(groups), first, labels)
    assigned_as = described_as = _CALLED[first]
    described = groups
    if labels is not None and not files.embeddings:
        described, described_as = labels, _CALLED["labels"]
    provided |= {"within": files.within} if files.within else {}
    origin |= {f"{name}_sha256": file_digest(path) for name, path in provided.items()}  # last: they can be read
    n_clusters = settings.n_clusters if projection is not None else None
    names = described_as, assigned_as
    return Arrays(groups, labels, projection, described, names, shown, origin, natural, n_clusters)


def _clusters(
    embeddings: np.ndarray, settings: GroupSettings, labels: np.ndarray | None, natural: Natural | None
) -> tuple[np.ndarray, np.ndarray]:
    """The projection of the embeddings, and their clusters (N,), within natural groups where there are some."""
    from models.embedding.embeddings import cluster_rows, project_rows

    _check_lengths(len(embeddings), "embeddings", labels)
    if natural is None:
        return cluster_rows(embeddings, settings.n_clusters, settings.rand_seed)
    _check_lengths(len(embeddings), "embeddings", natural.numbers, _OF_WITHIN)
    projection = project_rows(embeddings, settings.rand_seed)
    every = np.arange(len(embeddings))
    clusters = clusters_within(projection, every, natural, settings.n_clusters, settings.rand_seed)
    return projection, joined(natural, clusters)


def _check_lengths(n: int, what: str, others: np.ndarray | None, called: str = "labels") -> None:
    if others is not None and len(others) != n:
        raise UserError(f"{n} {what} but {len(others)} {called}; give files of the same images")


def _read(path: Path, what: str) -> np.ndarray:
    """A `.npy` file, memory-mapped; UserError where there is none."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: not a readable .npy file ({error}); see --{what}") from error


def read_labels(path: Path, what: str = "labels") -> np.ndarray:
    """The labels, numbered from 0 in order, (N,) int64; negative ones are -1. `what` is the argument's name."""
    return read_names(path, what)[0]


def read_names(path: Path, what: str) -> tuple[np.ndarray, list[str]]:
    """The same, and the labels as text by their numbers."""
    labels = _read(path, what)
    if labels.ndim != 1 or labels.dtype.kind not in "iubU" or not len(labels):
        raise UserError(f"{path}: {labels.dtype} of shape {labels.shape}; needs one whole number or text per image")
    return numbered(labels)


def numbered(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Whole numbers or texts (N,) as numbers from 0 in sorted order, (N,) int64, and their names; negative are -1."""
    left_out = labels < 0 if labels.dtype.kind == "i" else np.zeros(len(labels), bool)
    ids = np.full(len(labels), -1, np.int64)
    used = labels[~left_out]
    # Numbers are in order as they are; a million of them are slow to sort as text.
    different, ids[~left_out] = in_order(used) if used.dtype.kind == "U" else np.unique(used, return_inverse=True)
    return ids, [str(value) for value in different.tolist()]


def read_natural(path: Path) -> Natural:
    """The natural groups in a file like those of labels; empty texts and negative numbers are of none."""
    numbers = read_labels(path, "within")
    texts = np.load(path, mmap_mode="r", allow_pickle=False).astype(str)
    return Natural.of(path.stem, np.where(numbers < 0, "", texts))


def trained_on(path: Path, n: int) -> np.ndarray | None:
    """The positions of the training images, if a file of n labels has clusters by `extract_embeddings.py`, else None.

    Test images have no client. UserError where the table of these images is missing, or is another by now.
    """
    record_path = path.with_suffix(".json")
    record = read_json(record_path, "extract_embeddings.py") if record_path.is_file() else None
    if not isinstance(record, dict) or not {TABLE_FILE, "data_path"} <= record.keys():
        return None
    folder = Path(str(record["data_path"]))
    remedy = "; so the test split is unknown; give labels of training images alone"
    if not (folder / TABLE_FILE).is_file():
        raise UserError(f"{path} has clusters of the images in {folder}, whose {TABLE_FILE} is not there{remedy}")
    table = read_table(folder)
    if table.fingerprint != record[TABLE_FILE] or len(table) != n:
        raise UserError(f"{path} has clusters of another table of images than that in {folder}{remedy}")
    return table.train


def read_embeddings(path: Path) -> np.ndarray:
    """The embeddings (N, D), memory-mapped."""
    embeddings = _read(path, "embeddings")
    if embeddings.ndim < 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
        raise UserError(f"{path}: {embeddings.dtype} of shape {embeddings.shape}; needs a row of numbers per image")
    return embeddings.reshape(len(embeddings), -1)


def read_places(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes in degrees, (N,) float64 each, NaN for images without a place."""
    places = _read(path, "lat_lng")
    if places.ndim != 2 or places.shape[1] != 2 or places.dtype.kind not in "fiu" or not len(places):
        raise UserError(f"{path}: {places.dtype} of shape {places.shape}; needs latitude and longitude per image")
    latitude, longitude = places.astype(np.float64).T
    return latitude, longitude
