"""Which images an experiment uses: some buildings, the commonest scene classes, and a common held-out part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from datasets.taskonomy import N_PLACES, View, list_views, read_scene_class
from datasets.tasks import N_SCENE_CLASSES, RGB, TASKS, get_task
from utils.errors import UserError
from utils.files import write_atomically

SELECTION_FILE = "filtered_file_paths.csv"
MISSING_FILE = "missing_files.txt"
_COLUMNS = ["filepath", "building", "class_idx", "label", "split"]


@dataclass(frozen=True)
class Selection:
    """The images of an experiment, in a fixed order that every later file (assignments, partitions) refers to.

    `labels` are scene classes 0..15, the commonest first; `places` the same as Places ids; `train` and `test` are
    the positions of the images that are dealt to clients and of those that nobody trains on.
    """

    data_path: Path
    views: tuple[View, ...]
    labels: np.ndarray
    places: np.ndarray
    train: np.ndarray
    test: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.views)


def needed_domains(tasks: Sequence[str]) -> list[str]:
    """The domains whose files these tasks read, rgb first, each once."""
    encodings = [get_task(name).encoding for name in tasks]
    files = [RGB, *(each for e in encodings if e is not None for each in (e, e.mask) if each is not None)]
    return list(dict.fromkeys(encoding.domain for encoding in files))


def available_tasks(data_path: Path) -> list[str]:
    """The tasks whose folders lie in the data folder."""
    return [
        name for name in TASKS if all((data_path / d / "taskonomy").is_dir() for d in needed_domains([name]))
    ]  # fmt: skip


def scene_classes(data_path: Path, building: str) -> tuple[dict[View, int], list[str]]:
    """Places class of each view of a building: from its `scene_classes.csv`, or from the logits without one.

    Views whose logits cannot be read are left out; the second value names their files and the reasons.
    """
    listing = data_path / "class_scene" / "taskonomy" / building / "scene_classes.csv"
    if not listing.is_file():
        return _classes_from_logits(data_path, building)
    try:
        table = pd.read_csv(listing)
        views = [View.parse(Path(building, Path(name).name)) for name in table["filepath"]]
        classes = table["class_idx"].astype(int).tolist()
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{listing}: needs the columns filepath and class_idx ({error})") from error
    if not all(0 <= place < N_PLACES for place in classes):
        raise UserError(f"{listing}: class_idx must lie in 0..{N_PLACES - 1}")
    return dict(zip(views, classes, strict=True)), []


def _classes_from_logits(data_path: Path, building: str) -> tuple[dict[View, int], list[str]]:
    classes: dict[View, int] = {}
    unreadable: list[str] = []
    views = list_views(data_path, "class_scene", building)
    for view in tqdm(views, desc=f"scene classes of {building}", unit="image", leave=False):
        try:
            classes[view] = read_scene_class(view.find(data_path, "class_scene") or view.path("class_scene"))
        except ValueError as error:
            unreadable.append(f"{view.path('class_scene')}: {error}")
    return classes, unreadable


def select(
    data_path: Path, buildings: Sequence[str], tasks: Sequence[str], test_fraction: float, seed: int
) -> tuple[pd.DataFrame, list[str]]:
    """Choose the images of `buildings` that have every task's file and one of the 16 commonest scene classes.

    Returns the table (columns filepath relative to the data folder, building, class_idx, label, split) and the
    missing or unreadable files. About `test_fraction` of the images are held out, whole points of view at a time:
    views of one point show the same place, and would leak from one part into the other.
    """
    domains = needed_domains(tasks)
    missing: list[str] = []
    rows = []
    for building in buildings:
        classes, unreadable = scene_classes(data_path, building)
        if not classes:
            why = f"; the first file is unreadable: {unreadable[0]}" if unreadable else ""
            raise UserError(
                f"building {building!r} has no scene classes under {data_path / 'class_scene' / 'taskonomy'}; "
                f"download its class_scene domain or take it out of the building list{why}"
            )
        missing += unreadable
        for view in sorted(classes):
            absent = [str(view.path(domain)) for domain in domains if view.find(data_path, domain) is None]
            missing += absent
            if not absent:
                rows.append((str(view.path("rgb")), building, classes[view]))
    if not buildings:
        raise UserError("the building list names no building; see --client_file_name")
    if not rows:
        raise UserError(f"no image has all of {', '.join(domains)}; the first missing file is {missing[0]}")
    table = pd.DataFrame(rows, columns=_COLUMNS[:3])
    counts = table.groupby("class_idx").size().reset_index(name="n")
    commonest = counts.sort_values(["n", "class_idx"], ascending=[False, True])["class_idx"][:N_SCENE_CLASSES]
    table = table[table["class_idx"].isin(commonest)].reset_index(drop=True)
    table["label"] = table["class_idx"].map({place: label for label, place in enumerate(commonest)})
    table["split"] = _split(table["filepath"], test_fraction, seed)
    return table, missing


def write_selection(data_path: Path, table: pd.DataFrame, missing: Sequence[str]) -> Path:
    """Write the selection, and the list of missing or unreadable files if there are any."""
    path = data_path / SELECTION_FILE
    with write_atomically(path) as temporary:
        table.to_csv(temporary, index=False)
    (data_path / MISSING_FILE).unlink(missing_ok=True)
    if missing:
        with write_atomically(data_path / MISSING_FILE) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in missing), encoding="utf-8")
    return path


def read_selection(data_path: Path) -> Selection:
    """The selection of a data folder; a `UserError` names the stage that makes it, or the row at fault."""
    path = data_path / SELECTION_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing; run extract_datapoints_for_experiments.py first")
    try:
        table = pd.read_csv(path)[_COLUMNS]
        views = tuple(View.parse(name) for name in table["filepath"])
        labels, places = (table[name].to_numpy(np.int64, copy=True) for name in ("label", "class_idx"))
        if not (labels == table["label"]).all() or not (places == table["class_idx"]).all():
            raise ValueError("label and class_idx must be whole numbers")
        if len(set(views)) < len(views):
            raise ValueError(f"{table['filepath'][pd.Series(views).duplicated()].iloc[0]} stands there twice")
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: {error}; run extract_datapoints_for_experiments.py again") from error
    # Paths are made from the parsed view, never taken from the table: a row cannot point out of the data folder.
    if not set(table["split"]) <= {"train", "test"} or not ((labels >= 0) & (labels < N_SCENE_CLASSES)).all():
        raise UserError(f"{path}: label must lie in 0..{N_SCENE_CLASSES - 1} and split be train or test")
    is_train = (table["split"] == "train").to_numpy()
    return Selection(
        data_path, views, labels, places, np.flatnonzero(is_train),
        np.flatnonzero(~is_train), hashlib.sha256(path.read_bytes()).hexdigest(),
    )  # fmt: skip


def _split(filepaths: pd.Series, test_fraction: float, seed: int) -> np.ndarray:
    views = [View.parse(name) for name in filepaths]
    points, images = np.unique([f"{view.building}/{view.point}" for view in views], return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(points))
    dealt = np.cumsum(np.bincount(images)[order])
    held_out = order[dealt <= test_fraction * len(views)]
    return np.where(np.isin(images, held_out), "test", "train")
