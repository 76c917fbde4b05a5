"""Which ids masks have, and which of these nobody has named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from datasets.classes import VOID, ClassSet
from datasets.left_out import main_error
from datasets.sources.colours import colours_in, masks_of_ids
from datasets.sources.labels import class_set
from datasets.sources.names import IGNORED, read_names_of_masks
from datasets.tasks import MASK, Encoding
from utils import progress
from utils.errors import UserError
from utils.words import counted, some

STORED = Encoding(MASK, "uint8", 1, categorical=True)
_MOST_NAMED = 8  # ids of a line
_STUFF, _N_STUFF = {0: "unlabeled", 1: "person", 182: "wood"}, 183  # of COCO-Stuff's names, and how many there are


def read_masks(
    data_path: Path, cells: Sequence[str], names: Path | None, errors: list[str]
) -> tuple[list[str], list[dict[int, int]], set[int]]:
    """The masks of ids of masks, the pixels of each id in each, none for those that cannot be read, and void ids.

    Masks in colours are written as masks of ids where the file of names has these. What cannot be read is added to the
    errors; UserError where nothing can.
    """
    numbers = colours_in(names) if names else {}
    n_before = len(errors)
    masks = masks_of_ids(data_path, cells, numbers, errors) if numbers else list(cells)
    counts = _count_ids(data_path, masks, errors)
    if cells and not any(counts):
        why = main_error(sorted(errors[n_before:]))
        hint = "; --mask_classes takes a table of colours, too, with lines `name:red,green,blue`"
        raise UserError(
            f"none of {counted(len(cells), 'mask')} can be read{why}{hint if 'a colour picture' in why else ''}"
        )
    return masks, counts, {VOID} if masks != list(cells) else set()


def _count_ids(data_path: Path, cells: Sequence[str], errors: list[str]) -> list[dict[int, int]]:
    """The pixels of each id in each mask; empty without a cell, and for those that cannot be read: see `errors`."""
    from datasets.packed import read_image

    def count(cell: str) -> dict[int, int]:
        """The pixels of each id in one mask."""
        try:
            ids = read_image(data_path, cell, STORED) if cell else np.zeros(0)
        except ValueError as error:
            errors.append(f"{cell}: {error}")
            return {}
        return dict(zip(*(column.tolist() for column in np.unique(ids, return_counts=True)), strict=True))

    with ThreadPoolExecutor() as pool:
        return list(progress.bar(pool.map(count, cells), total=len(cells), desc="reading masks", unit="mask"))


def named_classes(path: Path, void_ids: Sequence[int], seen: Sequence[dict[int, int]]) -> ClassSet:
    """The classes of masks with the names of a file, `--mask_classes`, and a line about ids without one; see `seen`.

    COCO-Stuff's own list counts from 1, with 0 for what is unlabelled, and the masks of its 164,000 images from 0, with
    255 for that: where such masks have the list, the names are moved.
    """
    names, void = read_names_of_masks(path, "--mask_classes")
    is_stuff = len(names) == _N_STUFF and {identity: names.get(identity) for identity in _STUFF} == _STUFF
    if is_stuff and any(IGNORED in amounts for amounts in seen):
        print(
            f"{path.name}: COCO-Stuff's list, whose ids are one more than those of these masks; 255 is unlabelled there"
        )
        names, void = {identity - 1: name for identity, name in names.items() if identity}, {IGNORED}
    classes = class_set(names, {*void, *void_ids})
    say_unnamed(seen, classes)
    return classes


def say_unnamed(seen: Sequence[dict[int, int]], classes: ClassSet) -> None:
    """Print the ids that are no class and not void, with how much of the masks they are; of `read_masks`."""
    known = {*(classes.ids or range(len(classes.names))), *classes.void}
    pixels, masks = Counter[int](), 0
    for amounts in seen:
        unnamed = {identity: n for identity, n in amounts.items() if identity not in known}
        pixels.update(unnamed)
        masks += bool(unnamed)
    if not pixels:
        return
    share = pixels.total() / sum(sum(amounts.values()) for amounts in seen)
    ids = some([str(identity) for identity, _ in sorted(pixels.items(), key=lambda counted: -counted[1])], _MOST_NAMED)
    one = len(pixels) == 1
    print(
        f"{'id' if one else 'ids'} {ids}, {share:.3g} of all pixels, in {masks} of {counted(len(seen), 'mask')}: "
        f"{'has' if one else 'have'} no name and {'counts' if one else 'count'} nowhere; "
        f"name {'it' if one else 'them'} in --mask_classes, or give --void_ids"
    )
