"""Photographs with id masks: CamVid's, PASCAL VOC's and SBD's layouts, and what is like them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.classes import VOID, ClassSet
from datasets.left_out import main_error
from datasets.sources.id_masks import STORED, named_classes, read_masks, say_unnamed
from datasets.sources.labels import (
    BACKGROUND,
    CLASS_OF_IMAGE,
    GROUP_PATTERN,
    MASK_CLASSES,
    class_of_image,
    class_set,
    groups_of_names,
)
from datasets.sources.listing import IMAGE_ENDINGS, names_in
from datasets.sources.named_folders import (
    InFolder,
    beside,
    filled,
    in_folder,
    not_there,
    photographs,
    rows_of,
    say_alone,
)
from datasets.sources.names import read_names
from datasets.sources.outlines import (
    Numbering,
    boxes_in,
    check_classes,
    combine,
    map_of,
    numbering_of,
    read_objects,
    write_map,
)
from datasets.sources.source import Source
from datasets.stored import photograph_frame
from datasets.table import BOX_COLUMNS, PART, Listing
from datasets.tasks import BOXES, CLASS, INSTANCES, MASK, RGB
from utils import progress
from utils.args import number
from utils.arguments import Argument
from utils.errors import UserError

VOC_NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_ENDINGS = (".png", ".PNG")
_MOST_ASKED = 1000  # images that are looked at for how their objects are numbered
_VOC_LISTS = Path("ImageSets", "Segmentation")
_LABEL_MAP = "labelmap.txt"  # of CVAT and datumaro


def mask_of(data_path: Path, folder: Path, stem: str) -> str:
    """The cell of a photograph's mask in a folder, `<stem>.png`, whose ending may be in capitals."""
    return beside(data_path, folder.as_posix(), stem, _ENDINGS)


class Masks(Source):
    """Photographs in one folder, masks of the same names in another; `{part}` in both stands for train, val and test.

    Other words in braces are natural groups, and names may differ in their endings: so Cityscapes' folders are read as
    they are. See `datasets/sources/named_folders.py`.

    In PASCAL VOC's layout (`JPEGImages`, `SegmentationClass`, `ImageSets/Segmentation`) everything is known: 21
    classes, 255 for the border that counts nowhere, and the lists of the parts. With `--mask_folder
    SegmentationClassAug` it takes the list `trainaug.txt` of the annotations that SBD adds.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument(
            "{part}/rgb", "of the photographs; {part}: train, val and test in turn, {any_other_word}: a natural group"
        ),
        "mask_folder": Argument("{part}/label", "of the id masks, whose files have the photographs' names"),
        "image_suffix": Argument(
            None, "end of the photographs' names that the masks do not have, such as _leftImg8bit.png"
        ),
        "mask_suffix": Argument(None, "end of the masks' names in its place, such as _gtFine_labelIds.png"),
        "image_prefix": Argument("", "what the photographs' names begin with and the masks' do not, such as image_"),
        "mask_prefix": Argument("", "what the masks' names begin with in its place, such as mask_"),
        "instance_folder": Argument(
            None, "of maps in which each object has a number or colour of its own, and 0 is none; default: none"
        ),
        "instance_suffix": Argument(
            None, "end of these maps' names in place of --mask_suffix, such as _gtFine_instanceIds.png"
        ),
        "instance_classes": Argument(
            None, "file of those of the masks' categories whose objects are distinguished; default: all but background"
        ),
        "crowd_ids": Argument(
            (), "numbers in the maps of objects that count nowhere", number(int, least=1, most=65535), nargs="+"
        ),
    } | MASK_CLASSES | CLASS_OF_IMAGE | GROUP_PATTERN  # fmt: skip
    image_folder: str
    mask_folder: str
    image_prefix: str
    image_suffix: str | None
    mask_prefix: str
    mask_suffix: str | None
    instance_folder: str | None
    instance_suffix: str | None
    instance_classes: str | None
    crowd_ids: Sequence[int]
    mask_classes: str | None
    void_ids: Sequence[int]
    class_of_image: str
    group_pattern: str | None

    def find(self) -> Listing:
        """All photographs that have a mask with a known id; the others are named."""
        is_voc = self._is_voc()
        pairs = self._voc() if is_voc else self._folders()
        if pairs.empty:
            raise UserError(f"no photograph in {self.data_path / self.image_folder}; see --image_folder")
        by_name = groups_of_names(pairs[RGB.domain], self.group_pattern, {*pairs, CLASS, INSTANCES})
        pairs = pd.concat([pairs, by_name], axis=1)
        there = [(self.data_path / cell).is_file() for cell in pairs[MASK]]
        errors = [not_there(self.data_path, cell, "mask") for cell in pairs[MASK][~np.array(there)]]
        if not any(there):
            raise UserError(f"none of {len(there)} photographs has a mask; {main_error(errors)[2:]}; see --mask_folder")
        pairs = pairs[there].reset_index(drop=True)
        if self.instance_folder is not None:
            pairs[INSTANCES] = self._objects_of(pairs[MASK].tolist(), is_voc)
        names = self._names_in_layout(is_voc)
        cells, seen, void = read_masks(self.data_path, pairs[MASK].tolist(), names, errors)
        pairs = pairs.assign(**{MASK: cells})[list(map(bool, seen))].reset_index(drop=True)
        seen = [amounts for amounts in seen if amounts]
        if names is not None:
            classes = named_classes(names, [*self.void_ids, *void, *[VOID] * is_voc], seen)
        elif is_voc:
            classes = class_set(dict(enumerate(VOC_NAMES)), {VOID, *self.void_ids})
            say_unnamed(seen, classes)
        else:
            classes = class_set({i: f"class {i}" for i in sorted(set().union(*seen))}, self.void_ids)
        rows = pairs.assign(**{CLASS: [self._class(amounts, classes) for amounts in seen]})
        known, boxes = {CLASS: classes, MASK: classes}, None
        domains: tuple[str, ...] = (RGB.domain, MASK)
        if self.instance_folder is not None:
            known[BOXES], domains = self._things(classes), (RGB.domain, MASK, INSTANCES)
            rows, boxes = self._with_objects(rows, classes, known[BOXES], errors)
        groups = tuple(name for name in rows if name not in (*domains, PART, CLASS))
        info = self.dataset_info(domains=domains, groups=groups, classes=known)
        return Listing(rows, info, errors, boxes)

    def _things(self, classes: ClassSet) -> ClassSet:
        """The classes whose objects are distinguished; UserError where the masks lack one of them."""
        ids = classes.ids or tuple(range(len(classes.names)))
        named = {number: name for number, name in zip(ids, classes.names, strict=True) if name.lower() != BACKGROUND}
        if self.instance_classes is not None:
            path = self.data_path / self.instance_classes
            named = read_names(path, "--instance_classes")
            if strange := sorted(named.keys() - set(ids)):
                raise UserError(f"{path}: {strange[0]} is no id of the masks; see --mask_classes")
        things = class_set(named)
        check_classes(things)
        return things

    def _with_objects(
        self, rows: pd.DataFrame, classes: ClassSet, things: ClassSet, errors: list[str]
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows that have a map of objects, with the cells of the maps written of them, and the objects' boxes.

        The others are named. UserError where no object is left.
        """
        ids = list(classes.ids or range(len(classes.names)))
        thing_of = {ids.index(identity): number for number, identity in enumerate(things.ids)}

        def read(row: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
            """The map of objects (C, H, W) and the mask (H, W) of an image; ValueError where one cannot be read."""
            frame = photograph_frame(self.data_path, row[RGB.domain])
            [mask] = frame.upright(read_image(self.data_path, row[MASK], STORED))
            return frame.upright(read_objects(self.data_path, row[INSTANCES])), mask

        def form(row: dict[str, str]) -> Numbering | None:
            """How the objects of an image are numbered, None where its files cannot be read."""
            try:
                return numbering_of(*read(row))
            except ValueError:
                return None

        def write(row: dict[str, str]) -> list[tuple] | str:
            """The boxes of the objects of an image, or what is wrong with its map."""
            try:
                picture = combine(*read(row), classes, thing_of, self.crowd_ids, has_groups)
            except ValueError as error:
                return f"{row[INSTANCES]}: {error}"
            write_map(self.data_path / map_of(row[RGB.domain]), picture)
            return [(row[RGB.domain], *box) for box in boxes_in(picture)]

        from datasets.packed import read_image

        with ThreadPoolExecutor() as pool:
            records = rows.to_dict("records")
            has_groups = self._has_groups(form(row) for row in records)
            answers = pool.map(write, records)
            settled = list(progress.bar(answers, total=len(rows), desc="maps of objects", unit="image"))
        wrong = [answer for answer in settled if isinstance(answer, str)]
        errors += wrong
        boxes = pd.DataFrame(
            [box for answer in settled if not isinstance(answer, str) for box in answer], columns=BOX_COLUMNS
        )
        if boxes.empty:
            raise UserError(f"no object in the maps of {len(rows)} images{main_error(wrong)}; see --instance_folder")
        rows = rows[[not isinstance(answer, str) for answer in settled]].reset_index(drop=True)
        return rows.assign(**{INSTANCES: [map_of(cell) for cell in rows[RGB.domain]]}), boxes

    @staticmethod
    def _has_groups(forms: Iterator[Numbering | None]) -> bool:
        """Whether maps of objects are numbered as Cityscapes' are: the first that tells them from masks decides."""
        n_equal = 0
        for form in islice(filter(None, forms), _MOST_ASKED):
            if form is Numbering.OWN:
                return False
            if form is Numbering.BY_CLASS:
                print("objects are numbered as in Cityscapes: numbers below 1000 are groups, which count nowhere")
                return True
            n_equal += 1
        if n_equal:
            print("the maps of objects are equal to the masks: objects of one class in an image are one")
        return False

    def _objects_of(self, masks: Sequence[str], is_voc: bool) -> list[str]:
        """The maps of objects of masks, in folders of the same words; UserError where one is the mask."""
        folder = self._folders_of_voc()[1] if is_voc else self.mask_folder
        cells = []
        for mask in masks:
            located = in_folder(mask, folder, self.mask_prefix, self.mask_suffix) or InFolder(mask, Path(mask).stem, {})
            if self.instance_suffix is None:
                place = Path(filled(str(self.instance_folder), located.words))
                cells.append(mask_of(self.data_path, place, Path(mask).stem))
            else:
                endings = [self.instance_suffix]
                cells.append(located.beside(self.data_path, str(self.instance_folder), self.mask_prefix, endings))
            if _is_one_file(self.data_path, mask, cells[-1]):
                raise UserError(
                    f"--instance_folder: {cells[-1]} is the mask itself, in which objects of a class are one; see "
                    "--instance_suffix"
                )
        return cells

    def _names_in_layout(self, is_voc: bool) -> Path | None:
        """The file of the classes' names: the one that is given, or that tools write into PASCAL VOC's layout."""
        if self.mask_classes is not None:
            return self.data_path / self.mask_classes
        own = self.data_path / _LABEL_MAP
        if not (is_voc and own.is_file()):
            return None
        print(f"the classes are those of {_LABEL_MAP}; see --mask_classes")
        return own

    def _is_voc(self) -> bool:
        """Whether the lists of PASCAL VOC's layout say the parts: folders with words in braces say these themselves."""
        image_folder, mask_folder = self._folders_of_voc()
        there = all((self.data_path / folder).is_dir() for folder in (_VOC_LISTS, image_folder))
        return there and "{" not in image_folder + mask_folder

    def _folders_of_voc(self) -> tuple[str, str]:
        """The folders of photographs and masks in PASCAL VOC's layout, where they are not given."""
        folders = (
            (self.image_folder, "image_folder", "JPEGImages"),
            (self.mask_folder, "mask_folder", "SegmentationClass"),
        )
        image_folder, mask_folder = (
            own if folder == Masks.arguments[name].default else folder for folder, name, own in folders
        )
        return image_folder, mask_folder

    def _voc(self) -> pd.DataFrame:
        """Photograph, mask and part of each line of the lists; those of `trainaug.txt` for added annotations.

        Without lists of parts all others are read, such as CVAT's `default.txt`, and say no part.
        """
        image_folder, mask_folder = self._folders_of_voc()
        endings = [self.image_suffix] if self.image_suffix else IMAGE_ENDINGS
        of_masks = [self.mask_suffix] if self.mask_suffix else _ENDINGS
        train = "trainaug" if mask_folder.endswith("Aug") else "train"
        parts = {train: "train", "val": "val", "test": "test"}
        lists = {path.stem: "" for path in sorted((self.data_path / _VOC_LISTS).glob("*.txt"))}
        has_parts = bool(parts.keys() & lists.keys())
        rows = [
            (
                beside(self.data_path, image_folder, self.image_prefix + stem, endings),
                beside(self.data_path, mask_folder, self.mask_prefix + stem, of_masks),
                part,
            )
            for name, part in (parts if has_parts else lists).items()
            for stem in (Path(listed).name for listed in names_in(self.data_path / _VOC_LISTS / f"{name}.txt"))
        ]
        pairs = pd.DataFrame(rows, columns=[RGB.domain, MASK, PART])
        return pairs if has_parts else pairs.drop(columns=PART).drop_duplicates(RGB.domain)

    def _folders(self) -> pd.DataFrame:
        """A row for each file of the image folders, with its mask, and what the folders' names say."""
        where = self.image_folder, self.image_prefix, self.image_suffix
        listed = list(photographs(self.data_path, *where, (self.mask_folder, self.instance_folder)))
        endings = [self.mask_suffix] if self.mask_suffix else _ENDINGS
        masks = [
            photograph.beside(self.data_path, self.mask_folder, self.mask_prefix, endings) for photograph in listed
        ]
        say_alone(
            self.data_path,
            self.mask_folder,
            self.mask_prefix,
            endings,
            [*masks, *(photograph.cell for photograph in listed)],
        )
        rows = rows_of(listed, self.image_folder, (MASK, INSTANCES))
        rows.insert(1, MASK, masks)
        return rows

    def _class(self, amounts: dict[int, int], classes: ClassSet) -> int:
        from datasets.packed import class_numbers

        if not amounts:
            return -1
        ids = np.array(list(amounts))
        try:
            numbers = class_numbers(ids, classes)
        except ValueError:
            return -1
        of_class = np.bincount(numbers, list(amounts.values()), VOID + 1)[: len(classes.names)]
        return class_of_image(of_class, classes.names, self.class_of_image)


def _is_one_file(data_path: Path, cell: str, other: str) -> bool:
    """Whether two cells name one file, be it by a link."""
    path, another = data_path / cell, data_path / other
    return cell == other or (path.exists() and another.exists() and path.samefile(another))
