"""Photographs with boxes: COCO's instances files, or a YOLO .txt per photograph; masks where there are some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from datasets.classes import ClassSet
from datasets.sources.annotated import (
    SHARES,
    Box,
    Photograph,
    held_against_files,
    rows_of_images,
    table_of_boxes,
    write_maps,
)
from datasets.sources.keyed import by_key
from datasets.sources.labels import (
    CLASS_OF_IMAGE,
    GROUP_PATTERN,
    MASK_CLASSES,
    class_set,
    groups_of_names,
    read_categories,
)
from datasets.sources.listing import IMAGE_ENDINGS
from datasets.sources.masks import mask_of
from datasets.sources.named_folders import PLACE
from datasets.sources.outlines import Outline, map_of, polygon_of
from datasets.sources.source import Source
from datasets.stored import is_inside
from datasets.table import BOXES, PARTS, Found
from datasets.tasks import CLASS, INSTANCES, MASK, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.files import json_in


class Coco(Source):
    """Photographs of `train2017` and the like, with the boxes of the things in them.

    Where there are instances files they are read, with their categories and without crowds; otherwise `--label_folder`
    has a .txt per photograph with lines `id centre_x centre_y width height` in shares of its size (YOLO), or with the
    points of a polygon in place of the box, and `--categories` names the ids. A photograph without boxes stays; one
    whose size is not that of its annotations does not. Boxes are cut at the border; those that are inverted, outside,
    not finite or of an unknown category are left out and named. Without `{part}` in `--image_folder` images are held
    out at random.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument("images/{part}", "of the photographs; {part}: train2017, val2017, … in turn"),
        "annotations": Argument("annotations/instances_{part}.json", "of the instances files"),
        "label_folder": Argument("labels/{part}", "of YOLO's .txt files, where there is no instances file"),
        "categories": Argument(None, "file of the categories' names for YOLO's ids, like --mask_classes"),
        "mask_folder": Argument(None, "of id masks with the photographs' names, e.g. masks/{part}; default: none"),
        "objects": Argument(
            "boxes", "what is read of objects: boxes, or outlines, too", choices=("boxes", "outlines")
        ),
    } | MASK_CLASSES | CLASS_OF_IMAGE | GROUP_PATTERN  # fmt: skip
    image_folder: str
    annotations: str
    label_folder: str
    categories: str | None
    mask_folder: str | None
    objects: str
    mask_classes: str | None
    void_ids: Sequence[int]
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Found:
        """All photographs with their boxes; those without a mask are left out where masks are asked for."""
        names: dict[int, str] = {}
        faults: list[str] = []
        annotated: list[Photograph] = []
        for name, part in self._parts():
            instances = self.data_path / self.annotations.replace(PLACE, name)
            if instances.is_file():
                annotated += self._from_instances(instances, name, part, names, faults)
            else:
                annotated += self._from_yolo(name, part, faults)
        found = held_against_files(self.data_path, annotated, faults)
        if not found:
            why = f"; the first: {faults[0]}" if faults else "; without {part} it may be one flat folder"
            raise UserError(f"no photograph in {self.data_path / self.image_folder}; see --image_folder{why}")
        if self.categories is not None:
            names |= read_categories(self.data_path / self.categories)
        if not names:
            raise UserError("--categories: name the file of the categories' names, which lies in the data folder")
        classes = ClassSet(tuple(dict(sorted(names.items())).values()), tuple(sorted(names)))
        known: dict[str, ClassSet] = {CLASS: classes, BOXES: classes}
        domains: tuple[str, ...] = (RGB.domain, *([MASK] if self.mask_folder else []))
        if self.mask_folder is not None:
            found = self._with_masks(found, self.mask_folder, faults)
            known |= {MASK: self._classes_of_masks(names)}
        boxes = table_of_boxes(found, classes, faults, "--annotations and --label_folder")
        rows = rows_of_images(found, boxes, classes, self.class_of_image)
        if self.mask_folder is not None:
            rows[MASK] = [self._mask(each, self.mask_folder) for each in found]
        if self.objects == "outlines":
            write_maps(self.data_path, found, classes, faults)
            domains = (*domains, INSTANCES)
            rows[INSTANCES] = [map_of(each.cell) for each in found]
        groups = groups_of_names(rows[RGB.domain], self.group_pattern, rows.columns)
        about = self.about(domains=domains, groups=tuple(groups), classes=known)
        return Found(pd.concat([rows, groups], axis=1), about, faults, boxes)

    def _classes_of_masks(self, of_boxes: dict[int, str]) -> ClassSet:
        """The masks' own categories, or else the boxes'; pixels of no category count nowhere."""
        own = self.mask_classes
        return class_set(of_boxes if own is None else read_categories(self.data_path / own), self.void_ids)

    def _parts(self) -> Iterator[tuple[str, str]]:
        """The names that `{part}` takes in the photographs' folder, and the part that each is; one name without it."""
        root = self.data_path / self.image_folder.split(PLACE)[0]
        if PLACE not in self.image_folder:
            yield "", ""
            return
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if part := next((part for part in PARTS if path.is_dir() and path.name.startswith(part)), ""):
                yield path.name, part

    def _images(self, name: str) -> Path:
        return Path(self.image_folder.replace(PLACE, name))

    def _with_masks(self, found: list[Photograph], folder: str, faults: list[str]) -> list[Photograph]:
        """The photographs that have a mask; the others' masks are named."""
        masks = [self._mask(each, folder) for each in found]
        there = [(self.data_path / mask).is_file() for mask in masks]
        faults += [
            f"{mask}: there is no such mask" for mask, is_there in zip(masks, there, strict=True) if not is_there
        ]
        return [each for each, is_there in zip(found, there, strict=True) if is_there]

    def _mask(self, photograph: Photograph, folder: str) -> str:
        """The mask of a photograph: in the folder of the same `{part}`, and there in the same sub-folder."""
        within = Path(photograph.cell).relative_to(self._images(photograph.place))
        return mask_of(self.data_path, Path(folder.replace(PLACE, photograph.place), within.parent), within.stem)

    def _from_yolo(self, name: str, part: str, faults: list[str]) -> Iterator[Photograph]:
        folder, labels = self._images(name), Path(self.label_folder.replace(PLACE, name))
        root = self.data_path / folder
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if path.suffix.lower() not in IMAGE_ENDINGS or path.name.startswith("."):
                continue
            photograph = Photograph((folder / path.name).as_posix(), part, SHARES, place=name)
            lines = self.data_path / labels / f"{path.stem}.txt"
            if self.objects == "outlines" and not lines.is_file():
                faults.append(f"{photograph.cell}: no {labels / lines.name} says which objects it shows")
                continue
            text = lines.read_text(encoding="utf-8", errors="replace") if lines.is_file() else ""
            for number, line in enumerate(text.splitlines(), 1):
                try:
                    box, outline = _read_line(line)
                except ValueError:
                    faults.append(
                        f"{labels / lines.name}, line {number}: not id, centre, width and height, nor id and polygon"
                    )
                else:
                    photograph.boxes.append(box)
                    photograph.outlines.append(outline)
            yield photograph

    def _from_instances(
        self, path: Path, name: str, part: str, names: dict[int, str], faults: list[str]
    ) -> Iterator[Photograph]:
        """The photographs of an instances file; adds to `names` its categories, to `faults` bad annotations."""
        try:
            content: dict[str, Any] = json_in(path)
            for number, called in by_key(
                ((int(each["id"]), str(each["name"])) for each in content["categories"]), "category"
            ).items():
                if names.setdefault(number, called) != called:
                    raise ValueError(f"category {number} is {called!r} here and {names[number]!r} in another part")
            images = by_key(
                (
                    (
                        each["id"],
                        (str(each["file_name"]), float(each.get("width") or 0), float(each.get("height") or 0)),
                    )
                    for each in content["images"]
                ),
                "image id",
            )
            by_key(((file, identity) for identity, (file, *_) in images.items()), "photograph")
            found = {
                identity: Photograph(self._cell(name, file), part, size if min(size) > 0 else None, place=name)
                for identity, (file, *size) in images.items()
            }
            for each in content["annotations"]:
                if each.get("iscrowd"):
                    if crowded := found.get(each.get("image_id")):
                        crowded.outlines.append((None, each.get("segmentation")))
                    continue
                where = f"{path.name}, annotation {each.get('id')}"
                try:
                    category, (x, y, width, height) = int(each["category_id"]), map(float, each["bbox"])
                except (KeyError, ValueError, TypeError):
                    faults.append(f"{where}: without a category, or a bbox of four numbers")
                    continue
                if (photograph := found.get(each.get("image_id"))) is None:
                    faults.append(f"{where}: of no photograph")
                else:
                    photograph.boxes.append((category, x, y, x + width, y + height))
                    outline = each.get("segmentation")
                    photograph.outlines.append(
                        (category, outline) if outline else (None, polygon_of(x, y, x + width, y + height))
                    )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path}: not a COCO instances file ({error!r}); see --annotations") from error
        yield from found.values()

    def _cell(self, name: str, file_name: str) -> str:
        """A photograph by its name in an instances file: in a sub-folder, or else right in the folder of its part."""
        folder = self._images(name)
        cells = [(folder / each).as_posix() for each in (file_name, Path(file_name).name)]
        inside = [cell for cell in cells if is_inside(cell)] or cells[1:]
        return next((cell for cell in inside if (self.data_path / cell).is_file()), inside[0])


def _read_line(line: str) -> tuple[Box, tuple[int | None, Outline]]:
    """The box and the outline of a line of a label file, in shares of the sides; ValueError where it has neither.

    Four numbers are the centre and the sides of a box without an outline, more are the points of a polygon.
    """
    category, *texts = line.split()
    numbers = [float(text) for text in texts]
    if len(numbers) == 4:
        x, y, width, height = numbers
        sides = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        return (int(category), *sides), (None, polygon_of(*sides))
    if len(numbers) < 6 or len(numbers) % 2:
        raise ValueError("no polygon")
    across, down = numbers[::2], numbers[1::2]
    return (int(category), min(across), min(down), max(across), max(down)), (int(category), [numbers])
