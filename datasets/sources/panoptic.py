"""Photographs with COCO's panoptic annotations: pictures in which each segment has a colour, and a json file."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from datasets.as_saved import check_ids
from datasets.classes import VOID, ClassSet
from datasets.left_out import main_error
from datasets.sources.annotated import Photograph, groups_of_images, rows_of_images
from datasets.sources.colours import FOLDER
from datasets.sources.instances_file import as_text, identity_of, is_true, names_of_categories, records, to_integer
from datasets.sources.keyed import by_key
from datasets.sources.labels import CLASS_OF_IMAGE, GROUP_PATTERN, class_set
from datasets.sources.listing import IMAGE_ENDINGS
from datasets.sources.named_folders import beside, files, folders, of_part, part_of
from datasets.sources.names import read_names
from datasets.sources.outlines import boxes_in, check_classes, combine, map_of, write_map
from datasets.sources.source import Source
from datasets.stored import is_inside, photograph_frame, read_values
from datasets.table import BOX_COLUMNS, PART, Listing
from datasets.tasks import BOXES, CLASS, INSTANCES, MASK, RGB
from utils import progress
from utils.arguments import Argument
from utils.errors import UserError
from utils.files import json_in
from utils.words import counted


@dataclass
class _Segments:
    """What a file says of a photograph: the cell of its segments' picture, their categories, and which are crowds."""

    picture: str
    categories: dict[int, int]
    crowds: set[int] = field(default_factory=set)


class Panoptic(Source):
    """`panoptic_<part>.json` and the pictures beside it: things, which are distinguished, and stuff.

    Kirillov et al. 2019 (Panoptic segmentation, arXiv 1801.00868), section 3. A segment's number is red + 256 green +
    65536 blue of its colour, and 0 is void. Masks of classes and maps of the things are written into the data folder.
    """

    arguments: ClassVar[dict[str, Argument]] = (
        {
            "image_folder": Argument("{part}", "of the photographs; {part} is that of --annotations"),
            "annotations": Argument("annotations/panoptic_{part}.json", "of the files of the segments"),
            "mask_folder": Argument("annotations/panoptic_{part}", "of the pictures of the segments"),
            "instance_classes": Argument(
                None, "file of the categories whose objects are distinguished; default: the things (isthing 1)"
            ),
        }
        | CLASS_OF_IMAGE
        | GROUP_PATTERN
    )
    image_folder: str
    annotations: str
    mask_folder: str
    instance_classes: str | None
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Listing:
        """All photographs with a picture of their segments; the others are named."""
        names: dict[int, str] = {}
        things: set[int] = set()
        listed: list[tuple[Photograph, _Segments]] = []
        for path, words in files(self.data_path, self.annotations):
            listed += self._read(path, words, names, things)
        if not listed:
            raise UserError(f"no file {self.data_path / self.annotations}; see --annotations")
        classes = class_set(dict(sorted(names.items())))
        numbers = {identity: number for number, identity in enumerate(classes.ids)}
        if self.instance_classes is not None:
            things = self._named_things(names)
        of_things = [identity for identity in classes.ids if identity in things]
        if not of_things:
            raise UserError(f"{self.annotations}: no category is a thing (isthing 1); see --instance_classes")
        check_classes(ClassSet(tuple(names[identity] for identity in of_things)))
        thing_of = {numbers[identity]: number for number, identity in enumerate(of_things)}
        self._classes = ClassSet(classes.names, void=(VOID,))
        with ThreadPoolExecutor() as pool:
            answers = pool.map(lambda task: self._write(task[0], task[1], numbers, thing_of), listed)
            answered = list(progress.bar(answers, total=len(listed), desc="segments", unit="image"))
        errors = [answer for answer in answered if isinstance(answer, str)]
        if len(errors) == len(listed):
            raise UserError(f"none of {len(listed)} photographs has its segments{main_error(errors)}")
        photographs = [
            photograph for (photograph, _), answer in zip(listed, answered, strict=True) if not isinstance(answer, str)
        ]
        boxes = pd.DataFrame(
            [box for answer in answered if not isinstance(answer, str) for box in answer], columns=BOX_COLUMNS
        )
        shown = ClassSet(tuple(names[identity] for identity in of_things))
        rows = rows_of_images(photographs, boxes, shown, self.class_of_image)
        rows[MASK] = [_mask_of(cell) for cell in rows[RGB.domain]]
        rows[INSTANCES] = [map_of(cell) for cell in rows[RGB.domain]]
        groups = groups_of_images(photographs, self.image_folder, rows, self.group_pattern)
        known = {CLASS: shown, BOXES: shown, MASK: self._classes}
        info = self.dataset_info(domains=(RGB.domain, MASK, INSTANCES), groups=tuple(groups), classes=known)
        return Listing(pd.concat([rows, groups], axis=1), info, errors, boxes)

    def _named_things(self, names: Mapping[int, str]) -> set[int]:
        """The categories of a file of names, whatever their ids there; UserError where one is of no category."""
        path = self.data_path / str(self.instance_classes)
        ids = {name: identity for identity, name in names.items()}
        thing_names = read_names(path, "--instance_classes").values()
        if strange := [name for name in thing_names if name not in ids]:
            raise UserError(f"{path}: {strange[0]!r} is no category of {self.annotations}")
        return {ids[name] for name in thing_names}

    def _read(
        self, path: Path, words: Mapping[str, str], names: dict[int, str], things: set[int]
    ) -> list[tuple[Photograph, _Segments]]:
        """The photographs of a file with their segments; adds its categories. UserError where the file is none."""
        try:
            content = json_in(self.data_path / path)
            categories = records(content, "categories")
            for identity, name in names_of_categories(categories).items():
                if names.setdefault(identity, name) != name:
                    raise ValueError(f"category {identity} is {name!r} here and {names[identity]!r} in another split")
            things |= {to_integer(category["id"]) for category in categories if is_true(category.get("isthing"))}
            images = by_key(
                ((identity_of(record), str(record["file_name"])) for record in records(content, "images")), "image id"
            )
            annotations = records(content, "annotations")
            for annotation in annotations:
                image_id, file_name = annotation["image_id"], annotation["file_name"]
                if as_text(image_id) is None or not isinstance(file_name, str):
                    raise ValueError(f"an annotation has image_id {image_id!r} and file_name {file_name!r}")
            annotated = by_key(
                ((as_text(annotation["image_id"]), annotation["file_name"]) for annotation in annotations),
                "image_id of annotations",
            )
            if strange := annotated.keys() - images.keys():
                raise ValueError(f"annotation of no image {min(strange, key=str)}")
            if n_lacking := len(images.keys() - annotated.keys()):
                print(f"left out {counted(n_lacking, 'photograph')} without segments in {path.name}")
            photographs = of_part(self.data_path, self.image_folder, words, folders)
            pictures = of_part(self.data_path, self.mask_folder, words, folders)
            part = part_of(words.get(PART, ""))
            listed = []
            for annotation in annotations:
                cell = self._photograph(photographs, images[str(as_text(annotation["image_id"]))])
                listed.append((Photograph(cell, part, words=words), _segments(annotation, pictures, names)))
            return listed
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{self.data_path / path}: not a COCO panoptic file ({what}); see --annotations") from error

    def _photograph(self, folder: Path, file_name: str) -> str:
        """A photograph by its name in a file: where the picture of segments is a `.png`, it may be a `.jpg`."""
        stem = file_name.rpartition(".")[0] or file_name
        return beside(self.data_path, folder.as_posix(), stem, [file_name[len(stem) :], *IMAGE_ENDINGS])

    def _write(
        self, photograph: Photograph, segments: _Segments, numbers: Mapping[int, int], thing_of: Mapping[int, int]
    ) -> list[tuple] | str:
        """Write a photograph's mask and its map of things; returns its boxes, or what is wrong with it."""
        for cell in (photograph.cell, segments.picture):
            if not is_inside(cell) or not (self.data_path / cell).is_file():
                return f"{cell}: there is no such file"
        try:
            frame = photograph_frame(self.data_path, photograph.cell)
            check_ids(self.data_path / segments.picture)
            channels = read_values(self.data_path, segments.picture, ("RGB", "RGBA"))[:3].astype(np.int64)
            ids = frame.upright(channels[:1] + 256 * channels[1:2] + 65536 * channels[2:])
            different_ids, which = np.unique(ids[0], return_inverse=True)
            classes = [
                numbers.get(segments.categories.get(different_id, -1), VOID) for different_id in different_ids.tolist()
            ]
            mask = np.array(classes, np.uint8)[which].reshape(ids.shape[1:])
            picture = combine(ids, mask, self._classes, thing_of, segments.crowds)
        except ValueError as error:
            return f"{segments.picture}: {error}"
        write_map(self.data_path / _mask_of(photograph.cell), mask)
        write_map(self.data_path / map_of(photograph.cell), picture)
        return [(photograph.cell, *box) for box in boxes_in(picture)]


def _segments(annotation: Mapping[str, Any], folder: Path, names: Mapping[int, str]) -> _Segments:
    """The segments of an annotation; ValueError where one stands there twice, or is of no category."""
    segments = records(annotation, "segments_info")
    categories = by_key(
        ((to_integer(segment["id"]), to_integer(segment["category_id"])) for segment in segments), "segment"
    )
    if strange := set(categories.values()) - names.keys():
        raise ValueError(f"a segment of {annotation['file_name']} is of the unknown category {min(strange)}")
    crowds = {to_integer(segment["id"]) for segment in segments if is_true(segment.get("iscrowd"))}
    return _Segments((folder / annotation["file_name"]).as_posix(), categories, crowds)


def _mask_of(cell: str) -> str:
    """The cell of the mask that is written for a photograph."""
    return f"{FOLDER}/{cell}.png"
