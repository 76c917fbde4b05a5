"""Photographs with boxes: COCO's instances files, or a YOLO .txt per photograph; masks where there are some."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from datasets.sources.labels import (
    CLASS_OF_IMAGE,
    GROUP_PATTERN,
    MASK_CLASSES,
    class_of_image,
    class_set,
    groups_of_names,
    read_categories,
)
from datasets.sources.listing import IMAGE_ENDINGS
from datasets.sources.masks import PLACE, mask_of
from datasets.sources.source import Source
from datasets.table import BOX_COLUMNS, BOXES, PART, PARTS, Found
from datasets.tasks import CLASS, MASK, RGB, ClassSet
from utils.arguments import Argument
from utils.errors import UserError

_SLACK = 0.01  # by which a box may reach out of its image, as a share of it, before it is a fault


@dataclass
class _Photograph:
    """A photograph's cell and part, and its boxes: category id, then left, top, right and bottom as shares."""

    cell: str
    part: str
    boxes: list[tuple[int, float, float, float, float]] = field(default_factory=list)


class Coco(Source):
    """Photographs of `train2017` and the like, with the boxes of the things in them.

    Where there are instances files they are read, with their categories and without crowds; otherwise `--label_folder`
    has a .txt per photograph with lines `id centre_x centre_y width height` in shares of its size (YOLO), and
    `--categories` names the ids. A photograph without boxes stays. Boxes that are inverted, outside, not finite or of
    an unknown category are left out and named.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument("images/{part}", "of the photographs; {part}: train2017, val2017, … in turn"),
        "annotations": Argument("annotations/instances_{part}.json", "of the instances files"),
        "label_folder": Argument("labels/{part}", "of YOLO's .txt files, where there is no instances file"),
        "categories": Argument(None, "file of the categories' names for YOLO's ids, like --mask_classes"),
        "mask_folder": Argument(None, "of id masks with the photographs' names, e.g. masks/{part}; default: none"),
    } | MASK_CLASSES | CLASS_OF_IMAGE | GROUP_PATTERN  # fmt: skip
    image_folder: str
    annotations: str
    label_folder: str
    categories: str | None
    mask_folder: str | None
    mask_classes: str | None
    void_ids: Sequence[int]
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Found:
        """All photographs with their boxes; those without a mask are left out where masks are asked for."""
        names: dict[int, str] = {}
        faults: list[str] = []
        found: list[_Photograph] = []
        for name, part in self._parts():
            instances = self.data_path / self.annotations.replace(PLACE, name)
            if instances.is_file():
                found += _from_instances(instances, self._images(name), part, names, faults)
            else:
                found += self._from_yolo(name, part, faults)
        missing = [each.cell for each in found if not (self.data_path / each.cell).is_file()]
        faults += [f"{cell}: there is no such photograph" for cell in missing]
        if len(missing) == len(found):
            raise UserError(f"no photograph in {self.data_path / self.image_folder}; see --image_folder")
        found = [each for each in found if each.cell not in set(missing)]
        if self.categories is not None:
            names |= read_categories(self.data_path / self.categories)
        if not names:
            raise UserError("--categories: name the file of the categories' names, which lies in the data folder")
        classes = ClassSet(tuple(dict(sorted(names.items())).values()), tuple(sorted(names)))
        boxes, known = _checked(found, classes, faults), {CLASS: classes, BOXES: classes}
        domains: tuple[str, ...] = (RGB.domain,)
        rows = pd.DataFrame({RGB.domain: [each.cell for each in found], PART: [each.part for each in found]})
        if self.mask_folder is not None:
            rows[MASK] = [self._mask(cell) for cell in rows[RGB.domain]]
            there = np.array([(self.data_path / cell).is_file() for cell in rows[MASK]])
            faults += [f"{cell}: there is no such mask" for cell in rows[MASK][~there]]
            rows, domains = rows[there].reset_index(drop=True), (RGB.domain, MASK)
            known |= {MASK: self._classes_of_masks(names)}
        boxes = boxes[boxes["image"].isin(rows[RGB.domain])].reset_index(drop=True)
        amounts = pd.crosstab(boxes["image"], boxes[CLASS]).reindex(
            index=rows[RGB.domain], columns=range(len(classes.names)), fill_value=0
        )
        groups = groups_of_names(rows[RGB.domain], self.group_pattern)
        rows[CLASS] = [class_of_image(row, classes.names, self.class_of_image) for row in amounts.to_numpy()]
        about = self.about(domains=domains, groups=tuple(groups), classes=known)
        return Found(pd.concat([rows, groups], axis=1), about, faults, boxes)

    def _classes_of_masks(self, of_boxes: dict[int, str]) -> ClassSet:
        """The masks' own categories, or else the boxes'; pixels of no category count nowhere."""
        own = self.mask_classes
        return class_set(of_boxes if own is None else read_categories(self.data_path / own), self.void_ids)

    def _parts(self) -> Iterator[tuple[str, str]]:
        """The names that `{part}` takes in the photographs' folder, and the part that each is."""
        root = self.data_path / self.image_folder.split(PLACE)[0]
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if part := next((part for part in PARTS if path.is_dir() and path.name.startswith(part)), ""):
                yield path.name, part

    def _images(self, name: str) -> Path:
        return Path(self.image_folder.replace(PLACE, name))

    def _mask(self, cell: str) -> str:
        """The mask of a photograph: in the folder of the same `{part}`."""
        folder = str(self.mask_folder).replace(PLACE, Path(cell).parent.name)
        return mask_of(self.data_path, Path(folder), Path(cell).stem)

    def _from_yolo(self, name: str, part: str, faults: list[str]) -> Iterator[_Photograph]:
        folder, labels = self._images(name), Path(self.label_folder.replace(PLACE, name))
        for path in sorted((self.data_path / folder).iterdir()):
            if path.suffix.lower() not in IMAGE_ENDINGS or path.name.startswith("."):
                continue
            photograph = _Photograph((folder / path.name).as_posix(), part)
            lines = self.data_path / labels / f"{path.stem}.txt"
            for number, line in enumerate(lines.read_text(encoding="utf-8").splitlines() if lines.is_file() else (), 1):
                try:
                    category, *numbers = line.split()
                    x, y, width, height = map(float, numbers)
                    box = (int(category), x - width / 2, y - height / 2, x + width / 2, y + height / 2)
                except ValueError:
                    faults.append(f"{labels / lines.name}, line {number}: not id, centre, width and height")
                else:
                    photograph.boxes.append(box)
            yield photograph


def _from_instances(path: Path, folder: Path, part: str, names: dict[int, str], faults: list[str]) -> list[_Photograph]:
    """The photographs of an instances file; adds its categories to `names`."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        names |= {int(each["id"]): str(each["name"]) for each in content["categories"]}
        found, sizes = {}, {}
        for each in content["images"]:
            found[each["id"]] = _Photograph((folder / Path(each["file_name"]).name).as_posix(), part)
            sizes[each["id"]] = float(each["width"]), float(each["height"])
        for each in content["annotations"]:
            if each.get("iscrowd"):
                continue
            if each["image_id"] not in found:
                faults.append(f"{path.name}, annotation {each['id']}: of no photograph")
                continue
            (x, y, width, height), (w, h) = map(float, each["bbox"]), sizes[each["image_id"]]
            box = (int(each["category_id"]), x / w, y / h, (x + width) / w, (y + height) / h)
            found[each["image_id"]].boxes.append(box)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UserError(f"{path}: not a COCO instances file ({error!r}); see --annotations") from error
    return list(found.values())


def _checked(found: list[_Photograph], classes: ClassSet, faults: list[str]) -> pd.DataFrame:
    """All boxes within their images and of a class: columns `BOX_COLUMNS`; the others are added to the faults."""
    number_of = {identity: number for number, identity in enumerate(classes.ids)}
    rows = []
    for photograph in found:
        for category, *corners in photograph.boxes:
            left, top, right, bottom = corners
            where = f"{photograph.cell}: box {' '.join(f'{corner:.3f}' for corner in corners)}"
            if category not in number_of:
                faults.append(f"{where} is of the unknown category {category}")
            elif not np.isfinite(corners).all() or left >= right or top >= bottom:
                faults.append(f"{where} has no area")
            elif min(corners) < -_SLACK or max(corners) > 1 + _SLACK:
                faults.append(f"{where} reaches out of its image")
            else:
                rows.append((photograph.cell, number_of[category], *(min(max(c, 0.0), 1.0) for c in corners)))
    return pd.DataFrame(rows, columns=BOX_COLUMNS)
