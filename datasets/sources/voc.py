"""Photographs with boxes in Pascal VOC's folders: an XML file per photograph, as many tools for drawing boxes write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import pandas as pd

from datasets.left_out import main_error
from datasets.sources.annotated import (
    Photograph,
    groups_of_images,
    held_against_files,
    may_be_shares,
    rows_of_images,
    table_of_boxes,
)
from datasets.sources.labels import CLASS_OF_IMAGE, GROUP_PATTERN
from datasets.sources.listing import names_in, number_classes
from datasets.sources.named_folders import beside, filled, folders, photographs
from datasets.sources.source import Source
from datasets.stored import is_inside
from datasets.table import BOXES, Listing
from datasets.tasks import CLASS, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

_LISTS = Path("ImageSets", "Main")
MARKS = ("difficult", "truncated")
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class _Object:
    """A thing in a photograph: its class's name, its marks, and its left, top, right and bottom as they stand there."""

    name: str
    marks: frozenset[str]
    sides: tuple[float, float, float, float]


class Voc(Source):
    """`Annotations/<name>.xml`, `JPEGImages/<name>.jpg`, and the parts that `ImageSets/Main` lists; or other folders.

    Everingham et al. 2010 (The Pascal Visual Object Classes challenge, IJCV 88). Pixels are counted from 1 and the last
    one belongs to the box, so that a box from 1 to the width of the image is as wide as it. Most tools that write this
    layout count from 0, and their right and lower sides are where the box ends: only the left and upper ones are
    others. An object that begins before 1 tells that a data set is of these. `trainval.txt` is read
    where there is no `train.txt`. Without lists all annotated photographs are taken, and held out at random, unless the
    folders' names say parts (see `datasets/sources/named_folders.py`). Objects marked as difficult, which the challenge
    does not count, are left out; truncated ones stay.
    """

    arguments: ClassVar[dict[str, Argument]] = (
        {
            "image_folder": Argument(
                "JPEGImages",
                "of the photographs; {part}: train, val and test in turn, {any_other_word}: a natural group",
            ),
            "label_folder": Argument("Annotations", "of the XML files, which may be that of the photographs"),
            "first_pixel": Argument(
                "auto",
                "number of an image's first pixel: 1 as in VOC, 0 as many tools write, or auto, by the files",
                choices=("auto", "0", "1"),
            ),
            "leave_out": Argument(
                ("difficult",),
                "marks of the objects that are left out, of difficult and truncated; without any, all stay",
                choices=MARKS,
                nargs="*",
            ),
        }
        | CLASS_OF_IMAGE
        | GROUP_PATTERN
    )
    image_folder: str
    label_folder: str
    first_pixel: str
    leave_out: Sequence[str]
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Listing:
        """The photographs that have a readable XML file and the size that it says; the others are named."""
        errors: list[str] = []
        annotated, objects, starts = self._annotated(errors)
        if not any(objects):
            raise UserError(
                f"{self.data_path}: {counted(len(annotated), 'photograph')} in {self.label_folder}/<name>.xml with "
                f"{self.image_folder}/<name>.jpg, and no object that is not left out{main_error(errors)}; see "
                "--image_folder and --label_folder"
            )
        classes = number_classes([obj.name for of_image in objects for obj in of_image])[1][CLASS]
        number_of = {name: number for number, name in enumerate(classes.names)}
        first = self._first_pixel(starts)
        for photograph, of_image in zip(annotated, objects, strict=True):
            for annotation in of_image:
                left, top, right, bottom = annotation.sides
                photograph.boxes.append((number_of[annotation.name], left - first, top - first, right, bottom))
        photographs = held_against_files(self.data_path, annotated, errors)
        boxes = table_of_boxes(photographs, classes, errors, "--label_folder")
        rows = rows_of_images(photographs, boxes, classes, self.class_of_image)
        groups = groups_of_images(photographs, self.image_folder, rows, self.group_pattern)
        info = self.dataset_info(domains=(RGB.domain,), groups=tuple(groups), classes={CLASS: classes, BOXES: classes})
        return Listing(pd.concat([rows, groups], axis=1), info, errors, boxes)

    def _annotated(self, errors: list[str]) -> tuple[list[Photograph], list[list[_Object]], list[tuple[float, str]]]:
        """The photographs with an annotation that can be read, still without boxes, and the objects of each.

        And where objects begin, those that are left out among them, with the photograph.
        """
        listed = self._listed(errors)
        annotated: list[Photograph] = []
        objects: list[list[_Object]] = []
        starts: list[tuple[float, str]] = []
        n_marked = 0
        for annotation, photograph in listed:
            content = self._read(annotation, errors)
            if content is not None:
                photograph.size = content[0]
                annotated.append(photograph)
                objects.append([obj for obj in content[1] if not obj.marks & {*self.leave_out}])
                n_marked += len(content[1]) - len(objects[-1])
                starts += [(min(obj.sides[:2]), photograph.cell) for obj in content[1] if _tells_start(obj.sides)]
        if n_marked:
            print(f"left out {counted(n_marked, 'object')} marked as {' or '.join(self.leave_out)}; see --leave_out")
        return annotated, objects, starts

    def _listed(self, errors: list[str]) -> list[tuple[str, Photograph]]:
        """The cells of annotations, with the photograph of each: those of the lists, or all that are there."""
        by_annotation: dict[tuple[str, str], Photograph] = {}
        for listed in photographs(self.data_path, self.image_folder, others=()):
            key = filled(self.label_folder, listed.words), listed.stem
            photograph = Photograph(listed.cell, listed.part, words=listed.words)
            if (first := by_annotation.setdefault(key, photograph)) is not photograph:
                errors.append(f"{listed.cell}: {Path(first.cell).name} has the same annotation")
        annotated = set()
        for folder, words in folders(self.data_path, self.image_folder):
            labels = filled(self.label_folder, words)
            for path in sorted((self.data_path / labels).glob("*.[xX][mM][lL]")):
                if not path.name.startswith("."):
                    annotated.add((labels, path.stem))
                    missing = Photograph((folder / f"{path.stem}.jpg").as_posix(), "", words=words)
                    by_annotation.setdefault((labels, path.stem), missing)
        parts = self._parts() if "{" not in self.image_folder else {}
        if not parts:
            return [
                (self._xml(labels, name), photograph)
                for (labels, name), photograph in sorted(by_annotation.items(), key=_first)
            ]
        if others := {name for _, name in annotated} - parts.keys():
            print(f"left out {counted(len(others), 'annotated photograph')} in no list of {_LISTS}")
        rows = []
        for name, part in parts.items():
            cell = (Path(self.image_folder) / f"{name}.jpg").as_posix()
            photograph = by_annotation.get((self.label_folder, name), Photograph(cell, part))
            rows.append((self._xml(self.label_folder, name), replace(photograph, part=part)))
        return rows

    def _xml(self, folder: str, name: str) -> str:
        """The cell of an annotation, whose ending may be in capitals."""
        return beside(self.data_path, folder, name, (".xml", ".XML"))

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
                    raise UserError(f"{path}: {stem} is in the list of another split, too; take it out of one")
        return parts

    def _read(self, cell: str, errors: list[str]) -> tuple[tuple[float, float] | None, list[_Object]] | None:
        """The size that a photograph's annotation says, if any, and its objects; None where it cannot be read."""
        path = self.data_path / cell
        if not is_inside(cell) or not path.is_file():
            errors.append(f"{cell}: there is no such annotation")
            return None
        try:
            root = _root(path)
            width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
            errors.append(f"{cell}: not an annotation in Pascal VOC's XML ({error})")
            return None
        objects = []
        for number, element in enumerate(root.findall("object"), 1):
            try:
                objects.append(_object(element))
            except ValueError as error:
                errors.append(f"{cell}, object {number}: {error}")
        return ((width, height) if width > 0 and height > 0 else None), objects


def _root(path: Path) -> ElementTree.Element:
    """The `annotation` of an XML file, without namespaces; ValueError where it is none, or has objects elsewhere."""
    root = ElementTree.parse(path).getroot()
    tags = Counter[str]()
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        tags[element.tag.lower()] += 1
    if root.tag.lower() != "annotation":
        raise ValueError(f"it is of <{root.tag}>, not of <annotation>")
    if n := tags["object"] - len(root.findall("object")):
        raise ValueError(f"{counted(n, 'object')} elsewhere than in <annotation>, or called otherwise")
    return root


def _object(element: ElementTree.Element) -> _Object:
    """An object of an annotation; ValueError unless it has one name, and one box of four numbers."""
    name = " ".join((element.findtext("name") or "").split())
    if not name:
        raise ValueError("it has no name")
    for tag in ("name", "bndbox"):
        if (n := len(element.findall(tag))) > 1:
            raise ValueError(f"it has {n} of <{tag}>, where an object has one")
    try:
        left, top, right, bottom = (float(element.findtext(f"bndbox/{side}") or "") for side in _SIDES)
    except ValueError as error:
        raise ValueError(f"no bndbox of four numbers ({', '.join(_SIDES)})") from error
    marks = frozenset(mark for mark in MARKS if (element.findtext(mark) or "").strip().lower() in ("1", "true"))
    return _Object(name, marks, (left, top, right, bottom))


def _tells_start(sides: Sequence[float]) -> bool:
    """Whether a box can tell where pixels begin: it is of numbers, and its sides are not shares of the image's."""
    return all(map(isfinite, sides)) and not may_be_shares(sides)


def _first(entry: tuple[tuple[str, str], Photograph]) -> tuple[str, str]:
    return entry[0]
