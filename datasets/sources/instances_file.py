"""COCO's instances files: photographs, the categories of their objects, boxes and outlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from datasets.sources.annotated import Drawn, Photograph
from datasets.sources.keyed import by_key
from datasets.sources.outlines import bounds
from utils.errors import UserError
from utils.files import json_in
from utils.words import counted

_MOST_COMPARED = 10_000  # polygons with their boxes
_LEAST_OVERLAP = 0.5  # of a polygon and its box, area over area


@dataclass
class Instances:
    """What an instances file says: photographs with their objects, the names of the categories, and what is left out.

    `n_crowds` of its `n_annotations` are crowds that count nowhere.
    """

    photographs: list[Photograph]
    names: dict[int, str]
    errors: list[str] = field(default_factory=list)
    n_annotations: int = 0
    n_crowds: int = 0


def read_instances(path: Path, photograph_of: Callable[[str], Photograph], keep_crowds: bool) -> Instances:
    """The content of an instances file; `photograph_of` makes one of its name there.

    An annotation without a box has that of its outline. One with neither, or without a category, is among the errors.
    UserError where the file is none, or an id stands there twice.
    """
    try:
        content = json_in(path)
        categories, images, annotations = (records(content, name) for name in ("categories", "images", "annotations"))
        names = names_of_categories(categories)
        of_ids = by_key(((identity_of(image), _image(image)) for image in images), "image id")
        by_key(((file, identity) for identity, (file, _) in of_ids.items()), "photograph")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a COCO instances file ({error}); see --annotations") from error
    photographs: dict[str | None, Photograph] = {}
    for identity, (file, (width, height)) in of_ids.items():
        photographs[identity] = photograph_of(file)
        photographs[identity].size = (width, height) if min(width, height) > 0 else None
    with_polygon: list[tuple[str, Drawn]] = []
    read = Instances([*photographs.values()], names, n_annotations=len(annotations))
    for annotation in annotations:
        image = annotation.get("image_id")
        photograph = photographs.get(as_text(image))
        where = f"{path.name}, annotation {annotation.get('id')}"
        if photograph is None:
            read.errors.append(f"{where}: of no photograph")
            continue
        drawn = _drawn(annotation)
        if is_true(annotation.get("iscrowd")) and not keep_crowds:
            read.n_crowds += 1
            photograph.outlines.append(Drawn(None, drawn.outline, drawn.sides))
        elif drawn.category is None or drawn.sides is None:
            read.errors.append(f"{where}: without a category, or a bbox of four numbers")
            photograph.outlines.append(Drawn(None, drawn.outline, drawn.sides))
        else:
            photograph.boxes.append((drawn.category, *drawn.sides))
            photograph.outlines.append(drawn if drawn.outline else Drawn(None, None, drawn.sides))
            if drawn.outline and not isinstance(drawn.outline, Mapping):
                with_polygon.append((where, drawn))
    _say_apart(with_polygon)
    return read


def _say_apart(drawn: Sequence[tuple[str, Drawn]]) -> None:
    """Print how many objects have a polygon elsewhere than their box; of many, some are looked at."""
    looked_at = drawn[:: -(-len(drawn) // _MOST_COMPARED) or 1]
    apart = []
    for where, each in looked_at:
        extent = bounds(each.outline)
        assert each.sides is not None
        if extent is not None and _overlap(extent, each.sides) < _LEAST_OVERLAP:
            apart.append((where, each.sides, extent))
    if not apart:
        return
    where, sides, extent = apart[0]
    shown = [" ".join(f"{side:g}" for side in box) for box in (sides, extent)]
    print(
        f"{len(apart)} of {counted(len(looked_at), 'object')} have a polygon elsewhere than their box, as {where}: "
        f"{shown[1]} beside {shown[0]} (left, top, right, bottom); is bbox left, top, width, height, in pixels?"
    )


def _overlap(sides: Sequence[float], others: Sequence[float]) -> float:
    """The area that two boxes share over that of both together."""
    shared = max(min(sides[2], others[2]) - max(sides[0], others[0]), 0) * max(
        min(sides[3], others[3]) - max(sides[1], others[1]), 0
    )
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (sides, others))
    return shared / (areas - shared) if areas > shared else 0.0


def names_of_categories(categories: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The name of each category by id; ValueError where one has none, or two."""
    return by_key(((to_integer(category.get("id")), _name(category)) for category in categories), "category")


def _drawn(annotation: Mapping[str, Any]) -> Drawn:
    """An object as far as its annotation can be read."""
    try:
        category = to_integer(annotation.get("category_id"))
    except ValueError:
        category = None
    outline = annotation.get("segmentation")
    try:
        x, y, width, height = map(float, annotation.get("bbox") or ())
    except (ValueError, TypeError):
        return Drawn(category, outline, bounds(outline))
    return Drawn(category, outline, (x, y, x + width, y + height))


def records(content: Any, name: str) -> list[dict[str, Any]]:
    """The list of objects of this name; ValueError where there is none."""
    records = content.get(name) if isinstance(content, dict) else None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"it has no list {name!r} of objects")
    return records


def _image(record: Mapping[str, Any]) -> tuple[str, tuple[float, float]]:
    """The name and size of an image, 0 where it has none; ValueError where it has no name, or a size of no numbers.

    Where there is only an address, as in LVIS, the name is its end: `train2017/000000000009.jpg`.
    """
    file = record.get("file_name") or "/".join(urlsplit(str(record.get("coco_url") or "")).path.split("/")[-2:])
    if not isinstance(file, str) or not file:
        raise ValueError(f"image {record.get('id')} has neither file_name nor coco_url")
    try:
        return file, (float(record.get("width") or 0), float(record.get("height") or 0))
    except (ValueError, TypeError) as error:
        raise ValueError(f"image {record.get('id')} has a width or height that is no number") from error


def _name(record: Mapping[str, Any]) -> str:
    name = record.get("name")
    if name is None or not str(name).strip():
        raise ValueError(f"category {record.get('id')} has no name")
    return str(name)


def is_true(value: Any) -> bool:
    """Whether a mark is set, which some tools write as text."""
    return value.strip().lower() in ("1", "true") if isinstance(value, str) else bool(value)


def identity_of(record: Mapping[str, Any]) -> str:
    """An image's id as text; ValueError where it has none."""
    identity = as_text(record.get("id"))
    if identity is None:
        raise ValueError(f"image {record.get('file_name')!r} has no id")
    return identity


def as_text(identity: Any) -> str | None:
    """An id as text, as some tools write it here and as a number there; None where it is neither."""
    if isinstance(identity, bool) or not isinstance(identity, int | float | str):
        return None
    is_whole = isinstance(identity, float) and identity.is_integer()
    return str(int(identity) if is_whole else identity).strip()


def to_integer(value: Any) -> int:
    """A whole number, which may be written as text or with a point; ValueError for others."""
    try:
        number = float(value)
        if number.is_integer():
            return int(number)
    except (ValueError, TypeError, OverflowError):
        pass
    raise ValueError(f"{value!r} is no id, which is a whole number")
