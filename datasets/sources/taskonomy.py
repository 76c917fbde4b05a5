"""Taskonomy: some buildings, and of their images those of the 16 commonest scene classes.

One image of Taskonomy is a view of a point in a building, and every domain (rgb, depth, scene class …) has one
file per view: `<data_path>/<domain>/taskonomy/<building>/point_<p>_view_<v>_domain_<name>`.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.classes import INSTANCES_OF_A_CLASS, ClassSet
from datasets.decoding import DEPTH_METRE
from datasets.left_out import main_error
from datasets.sources.keyed import by_key
from datasets.sources.source import Source
from datasets.stored import open_array, read_values
from datasets.table import BOX_COLUMNS, Listing
from datasets.tasks import BOXES, CLASS, DEPTH, INSTANCES, MOTION, RGB, TASKS, get_task
from utils import progress
from utils.args import POSITIVE, POSITIVE_INT
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

N_PLACES = 365
CLASS_NAMES = "places_class_names.txt"
N_SCENE_CLASSES = 16
SEGMENTS = ClassSet(
    names=(
        "uncertain",
        "background",
        "bottle",
        "chair",
        "couch",
        "potted plant",
        "bed",
        "dining table",
        "toilet",
        "tv",
        "microwave",
        "oven",
        "toaster",
        "sink",
        "refrigerator",
        "book",
        "clock",
        "vase",
    ),
    void=(0,),
    # Grey for what does not count, pale for background, and distinct hues for the things.
    colours=(
        "#c8c8d8",
        "#f0ead6",
        "#e6194b",
        "#3cb44b",
        "#4363d8",
        "#8b5a2b",
        "#911eb4",
        "#f58231",
        "#46f0f0",
        "#000075",
        "#bcf60c",
        "#fabebe",
        "#008080",
        "#e6beff",
        "#800000",
        "#ffe119",
        "#808000",
        "#f032e6",
    ),
)

_FIRST_THING = 2  # of the classes; before it are "uncertain" and "background"
THINGS = ClassSet(
    SEGMENTS.names[_FIRST_THING:], tuple(range(_FIRST_THING, len(SEGMENTS.names))), (), SEGMENTS.colours[_FIRST_THING:]
)

# File endings that are not simply `<domain>.png`; the first is the one that the download tool writes.
_ENDINGS = {
    "segment_semantic": ("segmentsemantic.png", "segment_semantic.png"),
    "class_scene": ("class_places.npy", "class_scene.npy"),
    MOTION: ("motion.npy",),
}
_SHOWN = 80  # characters of a wrong name
SEGMENTED = TASKS["segment_semantic"].labelled_by
_VIEW = re.compile(r"point_(\d{1,9})_view_(\d{1,9})_domain_[\w.\-]+", re.ASCII)


@dataclass(frozen=True, order=True)
class View:
    """One image: view `view` of point `point` in building `building`."""

    building: str
    point: int
    view: int

    @classmethod
    def parse(cls, path: str | Path) -> View:
        """The view that a Taskonomy file shows, from its path; ValueError if the name is not Taskonomy's."""
        path = Path(path)
        match = _VIEW.fullmatch(path.name)
        if match is None:
            raise ValueError(f"not a Taskonomy file name: {path.name[:_SHOWN]}")
        if not is_building(path.parent.name):
            raise ValueError(f"{path.parent.name[:_SHOWN]!r} is no building name")
        return cls(path.parent.name, int(match[1]), int(match[2]))

    def path(self, domain: str, ending: str | None = None) -> Path:
        """The file of `domain`, relative to the data folder, as the download tool names it."""
        ending = ending or file_endings(domain)[0]
        name = f"point_{self.point}_view_{self.view}_domain_{ending}"
        return Path(domain, "taskonomy", self.building, name)

    def find(self, data_path: Path, domain: str) -> Path | None:
        """The file of `domain` under `data_path`, under any accepted name; None where there is none."""
        candidates = (data_path / self.path(domain, ending) for ending in file_endings(domain))
        return next((path for path in candidates if path.is_file()), None)


MEDIAN_DEPTH = {
    "max_median_depth": Argument(
        20.0, "metres: an image whose median depth is larger is in another unit, and left out", POSITIVE
    )
}


def task_name(text: str) -> str:
    """An argparse type: the name of a task of the registry, as that is when the arguments are read."""
    if text not in TASKS:
        raise ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, TASKS))})")
    return text


class Taskonomy(Source):
    """Taskonomy's layout and encodings, as the omnidata tools write them.

    Natural groups are `building` and `point`; views of one point show the same place, and stay together.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "client_file_name": Argument(None, "csv of the buildings, in the data folder"),
        "taskonomy_clients_to_include": Argument(3, "how many buildings, from the first on", POSITIVE_INT),
        "scene_class_file_name": Argument(CLASS_NAMES, "names of the 365 classes, in the data folder"),
        "tasks": Argument(
            None, "tasks whose files each image must have; default: all that are there", task_name, nargs="+"
        ),
    } | MEDIAN_DEPTH
    is_rendered: ClassVar[bool] = True
    client_file_name: str | None
    taskonomy_clients_to_include: int
    scene_class_file_name: str
    tasks: list[str] | None
    max_median_depth: float

    def find(self) -> Listing:
        """The images of the first buildings that have every task's file and one of the 16 commonest scene classes."""
        if self.client_file_name is None:
            raise UserError("--client_file_name: name the csv of the buildings, which is in the data folder")
        listed = read_buildings(self.data_path / self.client_file_name)
        buildings = listed[: self.taskonomy_clients_to_include]
        if len(buildings) < self.taskonomy_clients_to_include:
            option = f"--taskonomy_clients_to_include {self.taskonomy_clients_to_include}"
            print(f"{option}: {self.client_file_name} lists {len(buildings)}; all are taken")
        names = read_class_names(self.data_path / self.scene_class_file_name)
        domains = needed_domains(self.tasks or available_tasks(self.data_path))
        rows, errors = find_views(self.data_path, buildings, domains)
        rows, places = commonest(rows)
        if empty := sorted(set(buildings) - set(rows["building"])):
            print(f"no image is left of {', '.join(empty)}")
        classes = {CLASS: ClassSet(tuple(names[place] for place in places))}
        classes |= {domain: SEGMENTS for domain in domains if domain == SEGMENTED}
        boxes = None
        if INSTANCES in domains:
            boxes = boxes_of_instances(self.data_path, rows[RGB.domain].tolist(), rows[INSTANCES].tolist())
            classes[BOXES] = THINGS
        info = self.dataset_info(
            domains=tuple(domains),
            groups=("building", "point"),
            together="point",
            classes=classes,
            limits=depth_limit(self.max_median_depth),
        )
        return Listing(rows, info, errors, boxes)


def boxes_of_instances(data_path: Path, images: Sequence[str], masks: Sequence[str]) -> pd.DataFrame:
    """The boxes around the instances of each image's mask: columns `BOX_COLUMNS`.

    None for masks that cannot be read, which later stages leave out with their image.
    """
    from scipy import ndimage

    rows = []
    for image, mask in progress.bar(zip(images, masks, strict=True), total=len(images), desc="boxes", unit="image"):
        with suppress(ValueError):
            [values] = read_values(data_path, mask, ("I;16", "I"))
            numbers, labels = np.unique(values, return_inverse=True)
            slices = ndimage.find_objects(labels.reshape(values.shape) + 1)
            height, width = values.shape
            for number, (down, across) in zip(numbers.tolist(), slices, strict=True):
                label = number // INSTANCES_OF_A_CLASS - _FIRST_THING
                if 0 <= label < len(THINGS.names):
                    sides = across.start / width, down.start / height, across.stop / width, down.stop / height
                    rows.append((image, label, *sides))
    return pd.DataFrame(rows, columns=BOX_COLUMNS)


def depth_limit(metres: float = 20.0) -> dict[str, float]:
    """`DatasetInfo.limits` by which depth of a median of more metres is refused: buildings are not so deep."""
    return {DEPTH.domain: DEPTH_METRE * metres}


def find_views(data_path: Path, buildings: Sequence[str], domains: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The views of `buildings` that have a scene class and a file of each domain, and the files that fail them.

    Returns a table (a column for each domain, `place`, `building`, `point`) and the missing or unreadable files.
    """
    missing: list[str] = []
    rows = []
    if not buildings:
        raise UserError("the building list names no building; see --client_file_name")
    for building in buildings:
        classes, unreadable = scene_classes(data_path, building)
        if not classes:
            raise UserError(
                f"building {building!r} has no scene classes under {data_path / 'class_scene' / 'taskonomy'}; "
                f"download its class_scene domain or take it out of the building list{main_error(unreadable)}"
            )
        missing += unreadable
        for view in sorted(classes):
            paths = [view.find(data_path, domain) for domain in domains]
            missing += [str(view.path(domain)) for domain, path in zip(domains, paths, strict=True) if path is None]
            cells = [path.relative_to(data_path).as_posix() for path in paths if path is not None]
            if len(cells) == len(domains):
                rows.append((*cells, classes[view], building, f"{building}/{view.point}"))
    if not rows:
        raise UserError(f"no image has all of {', '.join(domains)}{main_error(missing)}")
    return pd.DataFrame(rows, columns=[*domains, "place", "building", "point"]), missing


def commonest(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[int]]:
    """The rows of the 16 commonest places, with the class 0..15, the commonest first; and the places in that order."""
    counts = rows.groupby("place").size().reset_index(name="n")
    places = counts.sort_values(["n", "place"], ascending=[False, True])["place"][:N_SCENE_CLASSES].tolist()
    selected = rows[rows["place"].isin(places)].reset_index(drop=True)
    if n_others := len(rows) - len(selected):
        others = counted(counts["place"].nunique() - len(places), "scene class")
        print(f"left out {counted(n_others, 'image')} of {others} beyond the {N_SCENE_CLASSES} commonest")
    return selected.assign(
        **{CLASS: selected["place"].map({place: label for label, place in enumerate(places)})}
    ), places


def needed_domains(tasks: Sequence[str]) -> list[str]:
    """The domains whose files these tasks read, rgb first, each once."""
    encodings = [get_task(name).encoding for name in tasks]
    photographs = [photograph for name in tasks for photograph in get_task(name).photographs]
    files = [RGB, *photographs, *(used for e in encodings if e for used in (e, e.mask) if used is not None)]
    return list(dict.fromkeys(INSTANCES if encoding.boxes else encoding.domain for encoding in files))


def available_tasks(data_path: Path) -> list[str]:
    """The tasks whose folders lie in the data folder."""
    return [name for name in TASKS if all((data_path / d / "taskonomy").is_dir() for d in needed_domains([name]))]


def scene_classes(data_path: Path, building: str) -> tuple[dict[View, int], list[str]]:
    """Places class of each view of a building: from its `scene_classes.csv`, or from the logits without one.

    Views whose logits cannot be read are left out; the second value names their files and the reasons.
    """
    listing = data_path / "class_scene" / "taskonomy" / building / "scene_classes.csv"
    if not listing.is_file():
        return _classes_from_logits(data_path, building)
    try:
        table = pd.read_csv(listing, dtype=str, keep_default_na=False)
        views = [View.parse(Path(building, Path(name).name)) for name in table["filepath"]]
        strange = [text for text in table["class_idx"] if not re.fullmatch(r"\d{1,3}(\.0+)?", text)]
        classes = [] if strange else table["class_idx"].astype(float).astype(int).tolist()
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{listing}: needs the columns filepath and class_idx ({error})") from error
    if strange or not all(place < N_PLACES for place in classes):
        raise UserError(f"{listing}: class_idx must be whole numbers in 0..{N_PLACES - 1}")
    try:
        return by_key(zip(views, classes, strict=True), "view"), []
    except ValueError as error:
        raise UserError(f"{listing}: {error}; take one out") from error


def _classes_from_logits(data_path: Path, building: str) -> tuple[dict[View, int], list[str]]:
    classes: dict[View, int] = {}
    unreadable: list[str] = []
    views = list_views(data_path, "class_scene", building)
    for view in progress.bar(views, desc=f"scene classes of {building}", unit="image", leave=False):
        try:
            classes[view] = read_scene_class(view.find(data_path, "class_scene") or view.path("class_scene"))
        except ValueError as error:
            unreadable.append(f"{view.path('class_scene')}: {error}")
    return classes, unreadable


def is_building(name: str) -> bool:
    """Whether this can be a building's name: that of a folder which lies in no other place than its domain's."""
    return re.fullmatch(r"[\w.\-]+", name) is not None and set(name) != {"."} and len(name.encode()) <= 255


def file_endings(domain: str) -> tuple[str, ...]:
    """The accepted endings of a domain's file names, the usual one first."""
    return _ENDINGS.get(domain, (f"{domain}.png",))


def list_views(data_path: Path, domain: str, building: str) -> list[View]:
    """The views of a building that have a file of `domain`, in order of point and view."""
    folder = data_path / domain / "taskonomy" / building
    endings = tuple(f"_domain_{ending}" for ending in file_endings(domain))
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir() if entry.name.endswith(endings))
    return sorted({View.parse(folder / name) for name in names if _VIEW.fullmatch(name)})


def read_buildings(path: Path) -> list[str]:
    """Building names of a split file (columns id, train, val, test), in its order.

    The official files end their lines with a bare carriage return, which `splitlines` takes like any other.
    """
    lines = _read_text(path, "the building list", "--client_file_name").splitlines()
    header = [column.strip() for column in lines[0].split(",")] if lines else []
    if "id" not in header:
        raise UserError(f"{path}: the first line must name a column 'id', as in Taskonomy's split files")
    column = header.index("id")
    rows = [line.split(",") for line in lines[1:] if line.strip()]
    buildings = [row[column].strip() if column < len(row) else "" for row in rows]
    strange = [name for name in buildings if not is_building(name)]
    if strange:
        raise UserError(f"{path}: {strange[0][:_SHOWN]!r} is no building name; mend the list, see --client_file_name")
    return list(dict.fromkeys(buildings))


def read_class_names(path: Path) -> list[str]:
    """The 365 Places class names without quotes and letter folders: `'/b/bathroom'` reads `bathroom`."""
    lines = _read_text(path, "the scene class names", "--scene_class_file_name").splitlines()
    names = [re.sub(r"^/\w/", "", line.split()[0].strip("'\"")) for line in lines if line.strip()]
    if len(names) != N_PLACES:
        raise UserError(f"{path}: {len(names)} class names where Places has {N_PLACES}")
    return names


def read_scene_class(path: Path) -> int:
    """The Places class of one view: the largest of the 365 logits in a `class_scene` file.

    Raises ValueError, which says what is wrong with the file.
    """
    logits = open_array(path)
    if logits.size != N_PLACES or logits.dtype.kind not in "fiu" or not np.isfinite(logits).all():
        raise ValueError(f"{logits.size} values where {N_PLACES} finite logits should stand")
    return int(logits.reshape(-1).argmax())


def _read_text(path: Path, what: str, argument: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read {what} ({error}); see {argument}") from error
