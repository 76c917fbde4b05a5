"""Which ids masks have, and which of these nobody has named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from datasets.classes import ClassSet
from datasets.tasks import MASK, Encoding
from utils import progress
from utils.words import counted, some

STORED = Encoding(MASK, "uint8", 1, categorical=True)
_MOST_NAMED = 8  # ids of a line


def count_ids(data_path: Path, cells: Sequence[str]) -> list[dict[int, int]]:
    """The pixels of each id in each mask; empty for masks that cannot be read, which packing names."""
    from datasets.packed import read_image

    def count(cell: str) -> dict[int, int]:
        """The pixels of each id in one mask."""
        try:
            ids = read_image(data_path, cell, STORED)
        except ValueError:
            return {}
        return dict(zip(*(found.tolist() for found in np.unique(ids, return_counts=True)), strict=True))

    with ThreadPoolExecutor() as pool:
        return list(progress.bar(pool.map(count, cells), total=len(cells), desc="reading masks", unit="mask"))


def say_unnamed(seen: Sequence[dict[int, int]], classes: ClassSet) -> None:
    """Print the ids that are no class and not void, with how much of the masks they are; of `count_ids`."""
    known = {*(classes.ids or range(len(classes.names))), *classes.void}
    pixels, masks = Counter[int](), 0
    for amounts in seen:
        unnamed = {identity: n for identity, n in amounts.items() if identity not in known}
        pixels.update(unnamed)
        masks += bool(unnamed)
    if not pixels:
        return
    share = pixels.total() / sum(sum(amounts.values()) for amounts in seen)
    ids = some([str(identity) for identity, _ in sorted(pixels.items(), key=lambda each: -each[1])], _MOST_NAMED)
    one = len(pixels) == 1
    print(
        f"{'id' if one else 'ids'} {ids}, {share:.3g} of all pixels, in {masks} of {counted(len(seen), 'mask')}: "
        f"{'has' if one else 'have'} no name and {'counts' if one else 'count'} nowhere; "
        f"name {'it' if one else 'them'} in --mask_classes, or give --void_ids"
    )
