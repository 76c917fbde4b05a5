"""Photographs with boxes: COCO's instances files, or a YOLO .txt per photograph; masks where there are some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pandas as pd

from datasets.classes import ClassSet
from datasets.left_out import main_error
from datasets.sources.annotated import (
    SHARES,
    Photograph,
    groups_of_images,
    held_against_files,
    rows_of_images,
    table_of_boxes,
    write_maps,
)
from datasets.sources.colours import FOLDER as MASKS_FOLDER
from datasets.sources.id_masks import named_classes, read_masks, say_unnamed
from datasets.sources.instances_file import read_instances
from datasets.sources.labels import (
    CLASS_OF_IMAGE,
    GROUP_PATTERN,
    MASK_CLASSES,
    class_set,
)
from datasets.sources.listing import IMAGE_ENDINGS, OTHER_PICTURES, say_no_part, say_not_read, taken_once, walk
from datasets.sources.masks import mask_of
from datasets.sources.named_folders import (
    PLACE,
    files,
    filled,
    folders,
    folders_of_no_part,
    not_there,
    of_part,
    part_of,
)
from datasets.sources.names import alike, key_points_of, read_names
from datasets.sources.outlines import FOLDER as MAPS_FOLDER
from datasets.sources.outlines import map_of
from datasets.sources.source import Source
from datasets.sources.yolo import are_tracks, key_points_in, paired, read_labels
from datasets.stored import is_inside
from datasets.table import PART, Listing
from datasets.tasks import BOXES, CLASS, INSTANCES, MASK, RGB
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted, some

_DEEPEST = 8  # sub-folders that photographs and label files are looked for in


class Coco(Source):
    """Photographs of `train2017` and the like, with the boxes of the things in them.

    Where there are instances files they are read, with their categories and without crowds; otherwise `--label_folder`
    has a .txt per photograph with lines `id centre_x centre_y width height` in shares of its size (YOLO), or with the
    points of a polygon in place of the box, and `--categories` names the ids. A photograph without boxes stays; one
    whose size is not that of its annotations does not. Boxes are cut at the border; those that are inverted, outside,
    not finite or of an unknown category are left out and named. Words in braces are those of
    `datasets/sources/named_folders.py`; `{part}` may stand in `--annotations` alone. Without it images are held out at
    random.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument(
            "images/{part}", "of the photographs; {part}: train2017, val2017, … in turn, {any_other_word}: a group"
        ),
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

    def find(self) -> Listing:
        """All photographs with their boxes; those without a mask are left out where masks are asked for."""
        names: dict[int, str] = {}
        errors: list[str] = []
        self._n_crowds = 0
        annotated = self._annotated(names, errors)
        photographs = held_against_files(self.data_path, annotated, errors)
        if not photographs:
            why = main_error(errors) or "; without {part} it may be one flat folder"
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
            raise UserError("--categories: name the file of the categories' names, which is in the data folder")
        classes = ClassSet(tuple(dict(sorted(names.items())).values()), tuple(sorted(names)))
        known: dict[str, ClassSet] = {CLASS: classes, BOXES: classes}
        domains: tuple[str, ...] = (RGB.domain, *([MASK] if self.mask_folder else []))
        masks: list[str] = []
        if self.mask_folder is not None:
            photographs, masks, known[MASK] = self._with_masks(photographs, self.mask_folder, names, errors)
        hint = "--annotations and --label_folder"
        if self._n_crowds > len(errors):
            hint = f"--crowds: {counted(self._n_crowds, 'annotation')} marked as crowds (iscrowd 1) are left out"
        boxes = table_of_boxes(photographs, classes, errors, hint)
        rows = rows_of_images(photographs, boxes, classes, self.class_of_image)
        if self.mask_folder is not None:
            rows[MASK] = masks
        if self.objects == "outlines":
            write_maps(self.data_path, photographs, classes, errors)
            domains = (*domains, INSTANCES)
            rows[INSTANCES] = [map_of(photograph.cell) for photograph in photographs]
        groups = groups_of_images(photographs, self.image_folder, rows, self.group_pattern)
        info = self.dataset_info(domains=domains, groups=tuple(groups), classes=known)
        return Listing(pd.concat([rows, groups], axis=1), info, errors, boxes)

    def _annotated(self, names: dict[int, str], errors: list[str]) -> list[Photograph]:
        """The photographs of all folders with their annotations; adds to `names` the categories, and to `errors`."""
        annotated: list[Photograph] = []
        places = list(self._places())
        for folder in dict.fromkeys(folder for folder, _ in places):
            others = _files(self.data_path / folder, OTHER_PICTURES)
            say_not_read(folder.as_posix(), [path.name for path in others])
        key_points = key_points_of(self.data_path / self.categories, "--categories") if self.categories else None
        read: dict[Path, list[Path]] = {}
        with_texts = []
        for folder, words in places:
            instances = self.data_path / of_part(self.data_path, self.annotations, words, files)
            if instances.is_file():
                if any(instances in of_folder for of_folder in read.values()):
                    raise UserError(
                        f"{instances}: the file of several folders, {', '.join(map(str, read))}, {folder}; let "
                        "--image_folder be the folder of them all, or write {part} into --annotations"
                    )
                read.setdefault(folder, []).append(instances)
                annotated += self._from_instances(instances, folder, words, names, errors)
            else:
                with_texts.append((folder, words))
        annotated += self._from_yolo(with_texts, key_points, errors)
        if shape := key_points_in(annotated):
            raise UserError(
                f"--label_folder: all rows are as long, and fit a box and {shape[0]} key points of {shape[1]} numbers, "
                f"not a polygon: name a .yaml file with `kpt_shape: [{shape[0]}, {shape[1]}]` in --categories"
            )
        if are_tracks(annotated):
            raise UserError(
                "--label_folder: all rows fit an id, a box, a score and the number of a track, as trackers write, and "
                "no polygon: leave the last two numbers out"
            )
        self._say_unnamed(read, {photograph.cell for photograph in annotated})
        return annotated

    def _places(self) -> Iterator[tuple[Path, dict[str, str]]]:
        """The photographs' folders, and what words stand for there or, where it has none, in `--annotations`."""
        if PLACE in self.annotations and "{" not in self.image_folder:
            image_folders = [(Path(self.image_folder), words) for _, words in files(self.data_path, self.annotations)]
            if image_folders:
                yield from image_folders
                return
        no_part = [folder for folder, _ in folders_of_no_part(self.data_path, self.image_folder)]
        say_no_part(
            self.image_folder,
            [image_folder.as_posix() for image_folder in no_part if self._photographs_in(image_folder)[0]],
        )
        yield from folders(self.data_path, self.image_folder)

    def _with_masks(
        self, photographs: list[Photograph], folder: str, names: Mapping[int, str], errors: list[str]
    ) -> tuple[list[Photograph], list[str], ClassSet]:
        """The photographs that have a mask, the masks, and their classes; the others' masks are named.

        The classes are the masks' own categories, or else the boxes'; pixels of no category count nowhere.
        """
        masks = [self._mask(photograph, folder) for photograph in photographs]
        there = [(self.data_path / mask).is_file() for mask in masks]
        errors += [
            not_there(self.data_path, mask, "mask") for mask, is_there in zip(masks, there, strict=True) if not is_there
        ]
        masks = [mask for mask, is_there in zip(masks, there, strict=True) if is_there]
        photographs = [photograph for photograph, is_there in zip(photographs, there, strict=True) if is_there]
        if not masks:
            raise UserError(f"no photograph has a mask{main_error(errors)}; see --mask_folder")
        path = self.data_path / self.mask_classes if self.mask_classes is not None else None
        masks, seen, void = read_masks(self.data_path, masks, path, errors)
        amounts = [n for n in seen if n]
        if path is not None:
            classes = named_classes(path, [*self.void_ids, *void], amounts)
        else:
            classes = class_set(names, self.void_ids)
            say_unnamed(amounts, classes)
        with_mask = [(photograph, mask) for photograph, mask, n in zip(photographs, masks, seen, strict=True) if n]
        return [photograph for photograph, _ in with_mask], [mask for _, mask in with_mask], classes

    def _mask(self, photograph: Photograph, folder: str) -> str:
        """The mask of a photograph: in the folder of the same words, and there in the same sub-folder."""
        within = Path(photograph.cell).relative_to(filled(self.image_folder, photograph.words))
        return mask_of(self.data_path, Path(filled(folder, photograph.words), within.parent), within.stem)

    def _from_yolo(
        self, places: Sequence[tuple[Path, dict[str, str]]], key_points: int | None, errors: list[str]
    ) -> Iterator[Photograph]:
        """The photographs of folders with their label files; adds to `errors` what is not clear, or cannot be read."""
        of_labels: dict[Path, dict[str, Path]] = {}  # each photograph's path in its folder, by the folder of its labels
        of_places = []
        for folder, words in places:
            paths, again = self._photographs_in(folder)
            errors += again
            cells = {(folder / path).as_posix(): path for path in paths}
            of_places.append((folder, words, cells))
            of_labels.setdefault(Path(filled(self.label_folder, words)), {}).update(cells)
            within = sorted({path.parts[0] for path in paths if len(path.parts) > 1 and part_of(path.parts[0])})
            if within and PART not in words:
                print(
                    f"{folder} has sub-folders {some(within, 3)}; the test split is drawn from all at random; with "
                    f"{PLACE} in place of their names, as in --image_folder and --label_folder, they are parts"
                )
        labels: dict[str, str] = {}
        for labels_folder, photographs in of_labels.items():
            labels |= self._labels_in(labels_folder, photographs, errors)
        for folder, words, cells in of_places:
            without = []
            for cell, path in cells.items():
                photograph = Photograph(cell, _part_of(words), SHARES, words=words)
                if label := labels.get(cell, ""):
                    errors += read_labels(self.data_path / label, label, photograph, key_points)
                elif cell in labels:
                    continue
                elif self.objects == "outlines":
                    name = Path(filled(self.label_folder, words)) / path.with_suffix(".txt")
                    errors.append(f"{cell}: no {name.as_posix()} says which objects it shows")
                    continue
                else:
                    without.append(path.as_posix())
                yield photograph
            if without:
                n = counted(len(cells), "photograph")
                print(
                    f"{len(without)} of {n} in {folder} have no label file, and are without objects: {some(without, 3)}"
                )

    def _labels_in(self, folder: Path, photographs: Mapping[str, Path], errors: list[str]) -> dict[str, str]:
        """The label file of each photograph that has one in a folder, empty where it is not clear; see `errors`."""
        texts = [path for path in _files(self.data_path / folder, (".txt",)) if path.stem != "classes"]
        labels, unclear = paired(photographs, texts)
        errors += [
            f"{cell}: which label file is its own is not clear: "
            f"{some([(folder / label).as_posix() for label in may], 3)}"
            for cell, may in unclear.items()
        ]
        label_files = {cell: (folder / text).as_posix() for cell, text in labels.items()}
        if moved := [
            f"{label_files[cell]} for {cell}"
            for cell, text in labels.items()
            if text.parent != photographs[cell].parent
        ]:
            print(
                f"{counted(len(moved), 'label file')} in another folder than the photograph, found by the name: "
                f"{some(moved, 3)}"
            )
        if shared := [label for label, n in Counter(label_files.values()).items() if n > 1]:
            print(f"{counted(len(shared), 'label file')} for several photographs: {shared[0]}")
        taken = {*labels.values(), *(label for may in unclear.values() for label in may)}
        if alone := [(folder / text).as_posix() for text in texts if text not in taken]:
            print(f"left out {counted(len(alone), 'label file')} of no photograph: {some(alone, 3)}")
        return label_files | dict.fromkeys(unclear, "")

    def _from_instances(
        self, path: Path, folder: Path, words: dict[str, str], names: dict[int, str], errors: list[str]
    ) -> list[Photograph]:
        """The photographs of an instances file; adds to `names` its categories, to `errors` bad annotations."""
        part = _part_of(words)
        read = read_instances(
            path, lambda file: Photograph(self._cell(folder, file), part, words=words), self.crowds == "keep"
        )
        for number, called in read.names.items():
            if names.setdefault(number, called) != called:
                raise UserError(f"{path}: category {number} is {called!r} here and {names[number]!r} in another split")
        errors += read.errors
        if read.n_crowds:
            self._n_crowds += read.n_crowds
            print(
                f"left out {read.n_crowds} of {counted(read.n_annotations, 'annotation')} in {path.name} marked as "
                "crowds (iscrowd 1); --crowds keep takes them for objects"
            )
        return read.photographs

    def _say_unnamed(self, read: Mapping[Path, list[Path]], known: Collection[str]) -> None:
        """Print the photographs in folders that none of the instances files of the folder names."""
        for folder, paths in read.items():
            names = [path.name for path in paths]
            there = self._photographs_in(folder)[0]
            if others := [path.as_posix() for path in there if (folder / path).as_posix() not in known]:
                who = f"{names[0]} does not name" if len(names) == 1 else f"none of {', '.join(names)} names"
                print(f"left out {counted(len(others), 'photograph')} that {who}: {some(others, 3)}")

    def _photographs_in(self, folder: Path) -> tuple[list[Path], list[str]]:
        """The photographs in a folder and its sub-folders, relative to it, and those that are there again by a link."""
        cells = [(folder / path).as_posix() for path in _files(self.data_path / folder, IMAGE_ENDINGS)]
        own = (MAPS_FOLDER, MASKS_FOLDER)  # which stage 1 writes, and which are in the folder where it is the data's
        unique, again = taken_once(self.data_path, [cell for cell in cells if Path(cell).parts[0] not in own])
        return [Path(cell).relative_to(folder) for cell in unique], again

    def _cell(self, folder: Path, file_name: str) -> str:
        """A photograph by its name in an instances file: in a sub-folder, or else right in the folder."""
        plain = file_name.replace("\\", "/")  # as programs on Windows write it
        cells = [(folder / fromkey).as_posix() for fromkey in dict.fromkeys((file_name, plain, Path(plain).name))]
        inside = [cell for cell in cells if is_inside(cell)] or cells[-1:]
        return next((cell for cell in inside if (self.data_path / cell).is_file()), inside[0])


def _part_of(words: Mapping[str, str]) -> str:
    return part_of(words.get(PART, ""))


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The files of a folder and its sub-folders with these endings, relative to it, sorted; none without a folder."""
    return sorted(Path(entry.path).relative_to(folder) for entry in walk(folder, _DEEPEST, endings))
