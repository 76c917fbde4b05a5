"""Photographs with boxes in Pascal VOC's folders: an XML file per photograph, as many tools for drawing boxes write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import pandas as pd

from datasets.left_out import main_fault
from datasets.sources.annotated import Photograph, held_against_files, rows_of_images, table_of_boxes
from datasets.sources.labels import CLASS_OF_IMAGE, GROUP_PATTERN, groups_of_names
from datasets.sources.listing import IMAGE_ENDINGS, names_in, number_classes
from datasets.sources.source import Source
from datasets.stored import is_inside
from datasets.table import BOXES, Found
from datasets.tasks import CLASS, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

_ANNOTATIONS, _IMAGES, _LISTS = "Annotations", "JPEGImages", Path("ImageSets", "Main")
MARKS = ("difficult", "truncated")
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class _Object:
    """A thing in a photograph: its class's name, its marks, and its left, top, right and bottom as they stand there."""

    name: str
    marks: frozenset[str]
    sides: tuple[float, float, float, float]


class Voc(Source):
    """`Annotations/<name>.xml`, `JPEGImages/<name>.jpg`, and the parts that `ImageSets/Main` lists.

    Everingham et al. 2010 (The Pascal Visual Object Classes challenge, IJCV 88). Pixels are counted from 1 and the last
    one belongs to the box, so that a box from 1 to the width of the image is as wide as it. Most tools that write this
    layout count from 0, and their right and lower sides are where the box ends: only the left and upper ones are
    others. An object that begins before 1 tells that a data set is of these. `trainval.txt` is read
    where there is no `train.txt`. Without lists all annotated photographs are taken, and held out at random. Objects
    marked as difficult, which the challenge does not count, are left out; truncated ones stay.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "first_pixel": Argument(
            "auto", "number of an image's first pixel: 1 as in VOC, 0 as many tools write, or auto, by the files",
            choices=("auto", "0", "1"),
        ),
        "leave_out": Argument(
            ("difficult",), "marks of the objects that are left out, of difficult and truncated; without any, all stay",
            choices=MARKS, nargs="*",
        ),
    } | CLASS_OF_IMAGE | GROUP_PATTERN  # fmt: skip
    first_pixel: str
    leave_out: Sequence[str]
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Found:
        """The photographs that have a readable XML file and the size that it says; the others are named."""
        faults: list[str] = []
        annotated, objects, starts = self._annotated(faults)
        if not any(objects):
            raise UserError(
                f"{self.data_path}: {counted(len(annotated), 'photograph')} in {_ANNOTATIONS}/<name>.xml with "
                f"{_IMAGES}/<name>.jpg, and no object that is not left out{main_fault(faults)}"
            )
        classes = number_classes([each.name for of_image in objects for each in of_image])[1][CLASS]
        number_of = {name: number for number, name in enumerate(classes.names)}
        first = self._first_pixel(starts)
        for photograph, of_image in zip(annotated, objects, strict=True):
            for each in of_image:
                left, top, right, bottom = each.sides
                photograph.boxes.append((number_of[each.name], left - first, top - first, right, bottom))
        found = held_against_files(self.data_path, annotated, faults)
        boxes = table_of_boxes(found, classes, faults, _ANNOTATIONS)
        rows = rows_of_images(found, boxes, classes, self.class_of_image)
        groups = groups_of_names(rows[RGB.domain], self.group_pattern, rows.columns)
        about = self.about(domains=(RGB.domain,), groups=tuple(groups), classes={CLASS: classes, BOXES: classes})
        return Found(pd.concat([rows, groups], axis=1), about, faults, boxes)

    def _annotated(self, faults: list[str]) -> tuple[list[Photograph], list[list[_Object]], list[tuple[float, str]]]:
        """The photographs with an annotation that can be read, still without boxes, and the objects of each.

        And where objects begin, those that are left out among them, with the photograph.
        """
        files: dict[str, str] = {}
        for path in _listed(self.data_path / _IMAGES, IMAGE_ENDINGS):
            if (first := files.setdefault(path.stem, path.name)) != path.name:
                faults.append(f"{_IMAGES}/{path.name}: {first} has the same annotation")
        xml = {path.stem for path in _listed(self.data_path / _ANNOTATIONS, (".xml",))}
        parts = self._parts()
        if parts and (others := xml - parts.keys()):
            print(f"left out {counted(len(others), 'annotated photograph')} in no list of {_LISTS}")
        annotated: list[Photograph] = []
        objects: list[list[_Object]] = []
        starts: list[tuple[float, str]] = []
        n_marked = 0
        for name, part in (parts or dict.fromkeys(sorted(xml | files.keys()), "")).items():
            content = self._read(name, faults)
            if content is not None:
                annotated.append(Photograph(f"{_IMAGES}/{files.get(name, f'{name}.jpg')}", part, content[0]))
                objects.append([each for each in content[1] if not each.marks & {*self.leave_out}])
                n_marked += len(content[1]) - len(objects[-1])
                starts += [(start, annotated[-1].cell) for each in content[1] if (start := min(each.sides[:2])) > -inf]
        if n_marked:
            print(f"left out {counted(n_marked, 'object')} marked as {' or '.join(self.leave_out)}; see --leave_out")
        return annotated, objects, starts

    def _first_pixel(self, starts: Sequence[tuple[float, str]]) -> int:
        """The number of the first pixel by where objects begin, and in which files; a line says on what ground."""
        if self.first_pixel != "auto":
            return int(self.first_pixel)
        earliest, cell = min(starts, default=(inf, ""))
        if before := sum(start < 1 for start, _ in starts):
            print(
                f"pixels are counted from 0: {before} of {counted(len(starts), 'object')} begin before 1, the first at "
                f"{earliest:g} in {cell}; see --first_pixel"
            )
            return 0
        if there := sum(start == 1 for start, _ in starts):
            print(
                f"pixels are counted from 1, as in VOC: {there} of {counted(len(starts), 'object')} begin there and "
                "none before; see --first_pixel"
            )
        else:
            print(
                "no object begins at the border, which would tell whether pixels are counted from 0 or 1: 1 is taken, "
                "as in VOC; most other tools count from 0, see --first_pixel"
            )
        return 1

    def _parts(self) -> dict[str, str]:
        """The part of each photograph that is listed, by its name; empty without lists."""
        folder, parts = self.data_path / _LISTS, dict[str, str]()
        train = "train" if (folder / "train.txt").is_file() else "trainval"
        for name, part in ((train, "train"), *([("val", "val")] if train == "train" else []), ("test", "test")):
            path = folder / f"{name}.txt"
            for stem in names_in(path):
                if parts.setdefault(stem, part) != part:
                    raise UserError(f"{path}: {stem} is in the list of another part, too; take it out of one")
        return parts

    def _read(self, name: str, faults: list[str]) -> tuple[tuple[float, float] | None, list[_Object]] | None:
        """The size that a photograph's annotation says, if any, and its objects; None where it cannot be read."""
        cell = f"{_ANNOTATIONS}/{name}.xml"
        path = self.data_path / cell
        if not is_inside(cell) or not path.is_file():
            faults.append(f"{cell}: there is no such annotation")
            return None
        try:
            root = ElementTree.parse(path).getroot()
            width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
            faults.append(f"{cell}: not an annotation in Pascal VOC's XML ({error})")
            return None
        objects = []
        for number, each in enumerate(root.findall("object"), 1):
            try:
                objects.append(_object(each))
            except ValueError as error:
                faults.append(f"{cell}, object {number}: {error}")
        return ((width, height) if width > 0 and height > 0 else None), objects


def _object(element: ElementTree.Element) -> _Object:
    """An object of an annotation; ValueError where it has no name, or no box of four numbers."""
    name = " ".join((element.findtext("name") or "").split())
    if not name:
        raise ValueError("it has no name")
    try:
        left, top, right, bottom = (float(element.findtext(f"bndbox/{side}") or "") for side in _SIDES)
    except ValueError as error:
        raise ValueError(f"no bndbox of four numbers ({', '.join(_SIDES)})") from error
    marks = frozenset(mark for mark in MARKS if (element.findtext(mark) or "").strip().lower() in ("1", "true"))
    return _Object(name, marks, (left, top, right, bottom))


def _listed(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """The files of a folder with one of these endings that are not hidden, sorted; none where there is no folder."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix.lower() in endings and not path.name.startswith("."):
            yield path
