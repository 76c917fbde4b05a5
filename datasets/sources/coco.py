"""Photographs with boxes: COCO's instances files, or a YOLO .txt per photograph; masks where there are some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pandas as pd

from datasets.classes import ClassSet
from datasets.left_out import main_fault
from datasets.sources.annotated import (
    SHARES,
    Photograph,
    held_against_files,
    rows_of_images,
    table_of_boxes,
    write_maps,
)
from datasets.sources.id_masks import count_ids, named_classes, say_unnamed
from datasets.sources.instances_file import read_instances
from datasets.sources.labels import (
    CLASS_OF_IMAGE,
    GROUP_PATTERN,
    MASK_CLASSES,
    class_set,
    groups_of_names,
)
from datasets.sources.listing import IMAGE_ENDINGS, say_no_part, say_not_read
from datasets.sources.masks import mask_of
from datasets.sources.named_folders import PLACE, beside
from datasets.sources.names import alike, key_points_of, read_names
from datasets.sources.outlines import map_of
from datasets.sources.source import Source
from datasets.sources.yolo import key_points_in, read_labels
from datasets.stored import is_inside
from datasets.table import BOXES, PARTS, Found
from datasets.tasks import CLASS, INSTANCES, MASK, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted, some


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
        "crowds": Argument(
            "leave_out", "annotations marked as crowds: leave_out, or keep as objects", choices=("leave_out", "keep")
        ),
        "objects": Argument(
            "boxes", "what is read of objects: boxes, or outlines, too", choices=("boxes", "outlines")
        ),
    } | MASK_CLASSES | CLASS_OF_IMAGE | GROUP_PATTERN  # fmt: skip
    image_folder: str
    annotations: str
    label_folder: str
    categories: str | None
    mask_folder: str | None
    crowds: str
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
        self._n_crowds = 0
        self._key_points = key_points_of(self.data_path / self.categories, "--categories") if self.categories else None
        for name, part in self._parts():
            folder = self._images(name)
            say_not_read(folder.as_posix(), [path.name for path in _files(self.data_path / folder)])
            instances = self.data_path / self.annotations.replace(PLACE, name)
            if instances.is_file():
                annotated += self._from_instances(instances, name, part, names, faults)
            else:
                annotated += self._from_yolo(name, part, faults)
        if shape := key_points_in(annotated):
            raise UserError(
                f"--label_folder: all rows are as long, and fit a box and {shape[0]} key points of {shape[1]} numbers, "
                f"not a polygon: name a .yaml file with `kpt_shape: [{shape[0]}, {shape[1]}]` in --categories"
            )
        found = held_against_files(self.data_path, annotated, faults)
        if not found:
            why = main_fault(faults) or "; without {part} it may be one flat folder"
            raise UserError(f"no photograph in {self.data_path / self.image_folder}; see --image_folder{why}")
        for line in alike(names):
            print(f"{self.annotations}: categories {line.removeprefix('ids ')}, and are taken for different classes")
        if self.categories is not None:
            for number, called in read_names(self.data_path / self.categories, "--categories").items():
                if names.setdefault(number, called) != called:
                    raise UserError(
                        f"{self.data_path / self.categories}: category {number} is {called!r}, and {names[number]!r} "
                        "in --annotations; omit one"
                    )
        if not names:
            raise UserError("--categories: name the file of the categories' names, which lies in the data folder")
        classes = ClassSet(tuple(dict(sorted(names.items())).values()), tuple(sorted(names)))
        known: dict[str, ClassSet] = {CLASS: classes, BOXES: classes}
        domains: tuple[str, ...] = (RGB.domain, *([MASK] if self.mask_folder else []))
        if self.mask_folder is not None:
            found = self._with_masks(found, self.mask_folder, faults)
        hint = "--annotations and --label_folder"
        if self._n_crowds > len(faults):
            hint = f"--crowds: {counted(self._n_crowds, 'annotation')} marked as crowds (iscrowd 1) are left out"
        boxes = table_of_boxes(found, classes, faults, hint)
        rows = rows_of_images(found, boxes, classes, self.class_of_image)
        if self.mask_folder is not None:
            rows[MASK] = [self._mask(each, self.mask_folder) for each in found]
            known |= {MASK: self._classes_of_masks(names, rows[MASK].tolist())}
        if self.objects == "outlines":
            write_maps(self.data_path, found, classes, faults)
            domains = (*domains, INSTANCES)
            rows[INSTANCES] = [map_of(each.cell) for each in found]
        groups = groups_of_names(rows[RGB.domain], self.group_pattern, rows.columns)
        about = self.about(domains=domains, groups=tuple(groups), classes=known)
        return Found(pd.concat([rows, groups], axis=1), about, faults, boxes)

    def _classes_of_masks(self, of_boxes: dict[int, str], cells: Sequence[str]) -> ClassSet:
        """The masks' own categories, or else the boxes'; pixels of no category count nowhere."""
        seen = count_ids(self.data_path, cells)
        if self.mask_classes is not None:
            return named_classes(self.data_path / self.mask_classes, self.void_ids, seen)
        classes = class_set(of_boxes, self.void_ids)
        say_unnamed(seen, classes)
        return classes

    def _parts(self) -> Iterator[tuple[str, str]]:
        """The names that `{part}` takes in the photographs' folder, and the part that each is; one name without it."""
        root = self.data_path / self.image_folder.split(PLACE)[0]
        if PLACE not in self.image_folder:
            yield "", ""
            return
        no_part = []
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if part := next((part for part in PARTS if path.is_dir() and path.name.startswith(part)), ""):
                yield path.name, part
            elif path.is_dir() and self._photographs(path.name):
                no_part.append(path.name)
        say_no_part(self.image_folder, no_part)

    def _images(self, name: str) -> Path:
        return Path(self.image_folder.replace(PLACE, name))

    def _photographs(self, name: str) -> list[Path]:
        """The files of photographs in the folder that `{part}` makes of a name, sorted."""
        return [path for path in _files(self.data_path / self._images(name)) if path.suffix.lower() in IMAGE_ENDINGS]

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
        found, without = self._photographs(name), []
        for path in found:
            photograph = Photograph((folder / path.name).as_posix(), part, SHARES, place=name)
            label = beside(self.data_path, labels.as_posix(), path.stem, (".txt", ".TXT"))
            if (self.data_path / label).is_file():
                faults += read_labels(self.data_path / label, label, photograph, self._key_points)
            elif self.objects == "outlines":
                faults.append(f"{photograph.cell}: no {label} says which objects it shows")
                continue
            else:
                without.append(path.name)
            yield photograph
        if without:
            n = counted(len(found), "photograph")
            print(f"{len(without)} of {n} in {folder} have no label file, and are without objects: {some(without, 3)}")
        stems = Counter(path.stem for path in found)
        if shared := [stem for stem, n in stems.items() if n > 1]:
            print(f"{counted(len(shared), 'label file')} for several photographs: {labels / shared[0]}.txt")
        texts = [path for path in _files(self.data_path / labels) if path.suffix.lower() == ".txt"]
        if alone := [path.name for path in texts if path.stem not in stems and path.stem != "classes"]:
            print(f"left out {counted(len(alone), 'label file')} of no photograph in {folder}: {some(alone, 3)}")

    def _from_instances(
        self, path: Path, name: str, part: str, names: dict[int, str], faults: list[str]
    ) -> list[Photograph]:
        """The photographs of an instances file; adds to `names` its categories, to `faults` bad annotations."""
        read = read_instances(path, lambda file: Photograph(self._cell(name, file), part, place=name),
                              self.crowds == "keep")  # fmt: skip
        for number, called in read.names.items():
            if names.setdefault(number, called) != called:
                raise UserError(f"{path}: category {number} is {called!r} here and {names[number]!r} in another part")
        faults += read.faults
        if read.n_crowds:
            self._n_crowds += read.n_crowds
            print(
                f"left out {read.n_crowds} of {counted(read.n_annotations, 'annotation')} in {path.name} marked as "
                "crowds (iscrowd 1); --crowds keep takes them for objects"
            )
        known = {photograph.cell for photograph in read.photographs}
        if others := [
            each.name for each in self._photographs(name) if (self._images(name) / each.name).as_posix() not in known
        ]:
            print(f"left out {counted(len(others), 'photograph')} that {path.name} does not name: {some(others, 3)}")
        return read.photographs

    def _cell(self, name: str, file_name: str) -> str:
        """A photograph by its name in an instances file: in a sub-folder, or else right in the folder of its part."""
        folder = self._images(name)
        plain = file_name.replace("\\", "/")  # as programs on Windows write it
        cells = [(folder / each).as_posix() for each in dict.fromkeys((file_name, plain, Path(plain).name))]
        inside = [cell for cell in cells if is_inside(cell)] or cells[-1:]
        return next((cell for cell in inside if (self.data_path / cell).is_file()), inside[0])


def _files(folder: Path) -> list[Path]:
    """What a folder contains and is not hidden, sorted; nothing where there is none."""
    return sorted(path for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
