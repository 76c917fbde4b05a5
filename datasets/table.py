"""The table of images: what stage 1 writes, and all that later stages know of a data set.

`filtered_file_paths.csv` has a row per image: a column for each domain with the image's file, relative to the data
folder; its class (a number, -1 for none); a column for each kind of natural group; and its part. The `.json` beside it
says what the columns are, the classes' names and void ids, and how the table was made.
"""

from __future__ import annotations

import csv
import filecmp
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.cameras import Camera
from datasets.classes import VOID, ClassSet
from datasets.tasks import BOXES, CLASS, RGB, Scale, Task, get_task, valid_domain
from utils.errors import UserError
from utils.files import json_in, locked, write_atomically, write_json
from utils.runs import data_path_or_default

if TYPE_CHECKING:
    import pandas as pd

TABLE_FILE = "filtered_file_paths.csv"
INFO_FILE = "filtered_file_paths.json"
LEFT_OUT_FILE = "missing_files.txt"
BOXES_FILE = "filtered_boxes.csv"
STAGE = "extract_datapoints_for_experiments.py"
PART = "part"
PARTS = ("train", "val", "test")
BOX_COLUMNS = ["image", CLASS, "left", "top", "right", "bottom"]
FITS = ("crop", "pad", "stretch")
MEAN, NEAREST = RESIZES = ("mean", "nearest")
VERSION = 1  # of the two files: to be raised when they change
_LARGEST_ID = 2**16 - 1  # of a mask
_SHOWN = 80  # characters of a broken cell


@dataclass(frozen=True)
class DatasetInfo:
    """What the table says of all its images; ValueError where no table can be like that.

    Args:
        source: the name of the source that found them.
        domains: the columns that name files, rgb first.
        groups: the columns of natural groups.
        classes: the classes of the class column (under `CLASS`), of each domain of id masks and of boxes (`BOXES`).
        together: the group column whose images never stand in two parts (views of one place), if any.
        fit: how an image that is not square becomes one: its middle, with a margin, or stretched.
        limits: by domain, the median of the stored values of an image above which it is refused.
        made_by: the command.
        scales: by domain of maps of one's own, what their stored values mean.
        resize: what a pixel of a smaller target is, unless it is an id: the mean of the pixels there that count, or
            the nearest, so that no value is one that no pixel of the file has.
        levels: the values of photographs of 16 bits that are black and white; None for 0 and 65535.
    """

    source: str
    domains: tuple[str, ...]
    groups: tuple[str, ...] = ()
    classes: Mapping[str, ClassSet] = field(default_factory=dict)
    together: str | None = None
    fit: str = "crop"
    limits: Mapping[str, float] = field(default_factory=dict)
    made_by: str = ""
    scales: Mapping[str, Scale] = field(default_factory=dict)
    resize: str = MEAN
    levels: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise ValueError(f"fit {self.fit!r} is not one of {', '.join(FITS)}")
        if self.resize not in RESIZES:
            raise ValueError(f"resize {self.resize!r} is not one of {', '.join(RESIZES)}")
        if self.levels is not None and not 0 <= self.levels[0] < self.levels[1]:
            raise ValueError(
                f"levels {self.levels[0]:g} and {self.levels[1]:g}: white is above black, and both above 0"
            )
        if RGB.domain not in self.domains or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a table cannot have the columns {', '.join(self.columns)}")
        if taken := {"embedding", *(["object"] if BOXES in self.classes else [])} & set(self.groups):
            name = taken.pop()
            raise ValueError(f"natural groups cannot be called {name!r}: --type {name}_based assigns something else")
        if self.together is not None and self.together not in self.groups:
            raise ValueError(f"no column {self.together!r}, whose images stay together")
        if strange := [limit for limit in self.limits.values() if not isinstance(limit, int | float)]:
            raise ValueError(f"{strange[0]!r} is not a limit")
        for domain in self.classes.keys() & set(self.domains):
            masks = self.classes[domain]
            if len(masks.names) > VOID or not all(
                0 <= identity <= _LARGEST_ID for identity in (*masks.ids, *masks.void)
            ):
                raise ValueError(f"{domain}: masks have at most {VOID} classes, and ids in 0..{_LARGEST_ID}")

    @property
    def columns(self) -> list[str]:
        """The columns of the csv file, in order."""
        return [*self.domains, CLASS, *self.groups, PART]

    def serves(self, task: Task) -> bool:
        """Whether the images have what a task needs: photographs, target, and where it is categorical, classes."""
        needed = {encoding.files for encoding in (*task.photographs, task.encoding) if encoding is not None}
        has_files = needed.issubset(self.domains)
        return has_files and (not task.categorical or task.labelled_by in self.classes)


@dataclass(frozen=True)
class Listing:
    """What a source has found: a row per image, and what it says of all.

    `rows` has the columns of `info`; without the column `part` images are held out at random. `errors` names files
    that were left out, with the reason. `boxes`, where the source has some, has a row per box, `BOX_COLUMNS`: the cell
    of the image, the box's class, and its sides as shares of the image's width and height.
    """

    rows: pd.DataFrame
    info: DatasetInfo
    errors: Sequence[str] = ()
    boxes: pd.DataFrame | None = None


@dataclass(frozen=True)
class Table:
    """The images of an experiment, in a fixed order that every later file (assignments, partitions) refers to.

    `files` maps a domain to the images' cells (see `datasets/stored.py`), `labels` (N,) int64 are the classes, -1 for
    none, `groups` maps a group column to (N,) strings. `train`, `val` and `test` are positions: of the images that are
    assigned to clients, of those that central training validates on (often none), and of those that nobody trains on.
    """

    data_path: Path
    info: DatasetInfo
    files: Mapping[str, tuple[str, ...]]
    labels: np.ndarray
    groups: Mapping[str, np.ndarray]
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_ids(self) -> tuple[str, ...]:
        """The images' names: the cells of their photographs."""
        return self.files[RGB.domain]

    @property
    def units(self) -> np.ndarray:
        """(N,) int64: images with the same number never stand on two sides of a split."""
        if self.info.together is None:
            return np.arange(len(self))
        return np.unique(self.groups[self.info.together], return_inverse=True)[1]

    def cells(self, domain: str) -> tuple[str, ...]:
        """The cells of a domain; UserError where the table has no such column."""
        if domain not in self.files:
            raise UserError(
                f"{self.data_path / TABLE_FILE} has no files of {domain}, only of {', '.join(self.files)}; "
                f"run {STAGE} again with a task that reads them"
            )
        return self.files[domain]

    def masks(self, domain: str) -> list[str]:
        """The columns of the masks of what counts in a domain's maps, if there are some."""
        return [name for number in range(len(self.files)) if (name := valid_domain(domain, number)) in self.files]

    def serves(self, task: Task) -> bool:
        """See `DatasetInfo.serves`."""
        return self.info.serves(task)

    def class_set(self, task: Task) -> ClassSet:
        """The classes of a categorical task; UserError where the table has none for it."""
        if task.labelled_by not in self.info.classes:
            raise UserError(
                f"{task.name}: {self.data_path / TABLE_FILE} has no classes of its {task.labelled_by} column"
            )
        return self.info.classes[task.labelled_by]

    def bind(self, task: Task) -> Task:
        """The task with the table's classes, where it has any."""
        return task.with_classes(self.class_set(task)) if task.categorical else task

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes 0, 1, … of the class column; empty without classes."""
        return self.info.classes[CLASS].names if CLASS in self.info.classes else ()


def classes_for(task: str, data_path: Path | None, result_path: Path) -> ClassSet | None:
    """The classes of a task in the table of a data folder, by default of the one that images were last selected from.

    None for a task without classes, which needs no table. UserError where there is no table, or none for the task.
    """
    entry = get_task(task)
    return read_table(data_path_or_default(data_path, result_path)).class_set(entry) if entry.categorical else None


def write_table(data_path: Path, listing: Listing) -> Path:
    """Write the two files, and boxes and the list of what was left out if there are any; returns the csv's path.

    The rows must have parts; see `datasets/held_out.py`.
    """
    info = listing.info
    path = data_path / TABLE_FILE
    with locked(data_path / f".{TABLE_FILE}.lock"):  # of two at once, the files of one stay together
        _write_csv(path, listing.rows[info.columns])
        if listing.boxes is not None:
            _write_csv(data_path / BOXES_FILE, listing.boxes[BOX_COLUMNS])
        write_json(data_path / INFO_FILE, {"version": VERSION, **asdict(info)})
        (data_path / LEFT_OUT_FILE).unlink(missing_ok=True)
        if listing.errors:
            with write_atomically(data_path / LEFT_OUT_FILE) as temporary:
                temporary.write_text("".join(f"{error}\n" for error in listing.errors), encoding="utf-8")
    return path


def _write_csv(path: Path, rows: pd.DataFrame) -> None:
    """Write one of a table's files; unless it says what it said before, the description of the old one goes first.

    So the description never is of another table, and who reads the same table meanwhile finds it whole.
    """
    with write_atomically(path) as temporary:
        rows.to_csv(temporary, index=False)
        if not (path.is_file() and filecmp.cmp(path, temporary, shallow=False)):
            path.with_name(INFO_FILE).unlink(missing_ok=True)


def read_table(data_path: Path | str) -> Table:
    """The table of a data folder; a `UserError` names the command that makes it, or the row at fault."""
    data_path = Path(data_path)
    path = data_path / TABLE_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing; run {STAGE} first")
    info = _read_info(data_path)
    content = path.read_bytes()
    rows = _read_rows(path, content, info)
    parts = {part: np.flatnonzero(rows[PART] == part) for part in PARTS}
    digest = hashlib.sha256(content + json.dumps(_fingerprint_fields(info), sort_keys=True).encode())
    if BOXES in info.classes:
        digest.update(_boxes_file(data_path).read_bytes())
    return Table(
        data_path,
        info,
        {domain: tuple(rows[domain]) for domain in info.domains},
        rows[CLASS].to_numpy(np.int64, copy=True),
        {name: rows[name].to_numpy(str) for name in info.groups},
        parts["train"],
        parts["val"],
        parts["test"],
        digest.hexdigest(),
    )


def _fingerprint_fields(info: DatasetInfo) -> dict[str, Any]:
    """What a table's fingerprint is made of, beside its rows: without what older tables do not have, where it is so."""
    plain = {name: value for name, value in asdict(info).items() if name != "made_by"}
    plain["scales"] = {
        domain: {name: value for name, value in asdict(scale).items() if name in ("unit", "invalid", *scale.more)}
        for domain, scale in info.scales.items()
    }
    absent: dict[str, Any] = {"scales": {}, "resize": MEAN, "levels": None}
    return {name: value for name, value in plain.items() if name not in absent or value != absent[name]}


def source_of(data_path: Path) -> str | None:
    """The source whose table lies in a data folder; None where no readable one does."""
    try:
        return _read_info(data_path).source
    except UserError:
        return None


def read_boxes(table: Table) -> pd.DataFrame:
    """The boxes of the table's images, a row each: `BOX_COLUMNS`, in the order of the images.

    UserError where the table has none, or they are broken.
    """
    import pandas as pd

    path = _boxes_file(table.data_path)
    if BOXES not in table.info.classes:
        raise UserError(f"{table.data_path / TABLE_FILE}: its images have no boxes; see --source coco or voc")
    try:
        boxes = pd.read_csv(path)[BOX_COLUMNS]
        corners = boxes[BOX_COLUMNS[2:]].to_numpy(np.float64)
        known = boxes[CLASS].isin(range(len(table.info.classes[BOXES].names))) & boxes["image"].isin(table.image_ids)
        if not known.all() or not ((corners >= 0) & (corners <= 1)).all():
            raise ValueError("a box is of no image, of no class, or outside its image")
        if not (corners[:, :2] < corners[:, 2:]).all():
            raise ValueError("a box has no area")
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: {error}; run {STAGE} again") from error
    position = {cell: number for number, cell in enumerate(table.image_ids)}
    return boxes.iloc[np.argsort(boxes["image"].map(position).to_numpy(), kind="stable")].reset_index(drop=True)


def _boxes_file(data_path: Path) -> Path:
    path = data_path / BOXES_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing; run {STAGE} again")
    return path


def _read_info(data_path: Path) -> DatasetInfo:
    path = data_path / INFO_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: the selection is of an earlier version; run {STAGE} again")
    try:
        content: dict[str, Any] = json_in(path)
        version, made_by = content.pop("version"), str(content["made_by"])
        if version != VERSION:
            raise UserError(f"{path} is of version {version}, and this is {VERSION}; run again: {made_by}")
        classes = {name: ClassSet.of(value) for name, value in content.pop("classes").items()}
        scales = {name: _scale_of(value) for name, value in content.pop("scales", {}).items()}
        lists = {name: tuple(map(str, content.pop(name))) for name in ("domains", "groups")}
        if content.get("levels") is not None:
            black, white = map(float, content["levels"])
            content["levels"] = black, white
        return DatasetInfo(**content, **lists, classes=classes, scales=scales)  # type: ignore[arg-type]
    except (OSError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not a table's description ({error}); run {STAGE} again") from error


def _scale_of(content: Mapping[str, Any]) -> Scale:
    """From what JSON makes of one; ValueError, KeyError or TypeError where it is none."""
    marks = {name: content.get(name, False) for name in ("rotated", "world")}
    if strange := [value for value in marks.values() if not isinstance(value, bool)]:
        raise ValueError(f"{strange[0]!r} is neither true nor false")
    offset, valid_from = float(content.get("offset", 0.0)), float(content.get("valid_from", 1.0))
    valid_to = float(content["valid_to"]) if content.get("valid_to") is not None else None
    camera = Camera.of(content["camera"]) if content.get("camera") is not None else None
    unit, invalid = float(content["unit"]), tuple(map(float, content["invalid"]))
    return Scale(unit, invalid, **marks, offset=offset, camera=camera, valid_from=valid_from, valid_to=valid_to)


def _read_rows(path: Path, content: bytes, info: DatasetInfo) -> pd.DataFrame:
    """The checked rows, as text but for the classes; UserError where they are broken."""
    import pandas as pd

    try:
        header, _, body = content.partition(b"\n")
        if next(csv.reader([header.decode()], strict=True), []) != info.columns:
            raise ValueError(f"its columns are not {', '.join(info.columns)}")
        if not body:
            raise ValueError("it names no image")
        rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        n_lines = body.count(b"\n") + (not body.endswith(b"\n"))
        if not isinstance(rows.index, pd.RangeIndex):  # which pandas makes of the fields that are too many
            raise ValueError("its first row has more fields than columns")
        if len(rows) != n_lines:
            raise ValueError(
                f"{n_lines} lines make {len(rows)} rows: a blank line, or a quotation mark that is not closed"
            )
        _integer_classes(rows, info)
        check_rows(rows, info)
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; run {STAGE} again") from error
    return rows


def check_rows(rows: pd.DataFrame, info: DatasetInfo) -> None:
    """ValueError where a cell leads out of the data folder, an image is listed twice, or a text or part is invalid."""
    from datasets.stored import is_inside

    if strange := set(rows.get(PART, ())) - set(PARTS):
        raise ValueError(f"part {strange.pop()!r} is not one of {', '.join(PARTS)}")
    for domain in info.domains:
        if outside := [cell for cell in rows[domain] if not is_inside(cell)]:
            raise ValueError(f"{outside[0][:_SHOWN]!r} is not a path within the data folder")
    if twice := rows[RGB.domain][rows[RGB.domain].duplicated()].tolist():
        raise ValueError(f"{twice[0]} stands there twice")
    for name in info.groups:
        if broken := rows[name][rows[name].str.contains(r"[\r\n\0]")].tolist():
            raise ValueError(f"{name} {broken[0][:_SHOWN]!r} has a line break")


def _integer_classes(rows: pd.DataFrame, info: DatasetInfo) -> None:
    """Turn the classes into numbers; ValueError where one is not in the table."""
    n_classes = len(info.classes[CLASS].names) if CLASS in info.classes else 0
    known = {str(label): label for label in range(-1, n_classes)}
    strange = sorted(set(rows[CLASS]) - known.keys())
    if strange:
        raise ValueError(f"class {strange[0][:40]!r} is not one of -1..{n_classes - 1}")
    rows[CLASS] = rows[CLASS].map(known)
