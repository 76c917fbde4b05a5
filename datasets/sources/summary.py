"""What stage 1 tells of the images that it found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets.sources.listing import real_paths
from datasets.stored import file_of
from datasets.table import PART, Listing
from datasets.tasks import CLASS
from utils.words import counted, some

_MOST_NAMED = 8  # classes of a line


def summary_lines(data_path: Path, listing: Listing) -> Iterator[str]:
    """How many images and natural groups there are, and what may surprise: a line each.

    That are classes that nobody can learn or that are not tested, and links that lead out of the data folder. `found`
    has parts.
    """
    rows, info = listing.rows, listing.info
    parts = ", ".join(f"{n} {part}" for part, n in rows[PART].value_counts().items())
    groups = ", ".join(f"{rows[name][rows[name] != ''].nunique()} of {name}" for name in info.groups)
    yield f"{counted(len(rows), 'image')} ({parts})" + (f"; natural groups: {groups}" if groups else "")
    yield f"domains: {', '.join(info.domains)}"
    if CLASS in info.classes:
        names = info.classes[CLASS].names
        # Where an image's class is chosen among those of its objects or pixels, others are in the image, too.
        chosen = any(classes == info.classes[CLASS] for name, classes in info.classes.items() if name != CLASS)
        unless = ", as --class_of_image chooses, though they may be in some" if chosen else ""
        for part, called in (("train", "training"), ("test", "test")):
            present = set(rows[CLASS][rows[PART] == part])
            if lacking := [name for number, name in enumerate(names) if number not in present]:
                named = some(lacking, _MOST_NAMED)
                yield f"no {called} image of {counted(len(lacking), 'class')}{unless}: {named}"
        if len(names) == 1:
            yield f"{names[0]} is the only class: classification has nothing to learn"
    files = list(dict.fromkeys(file_of(cell) for domain in info.domains for cell in rows[domain]))
    root, real = data_path.resolve(), zip(files, real_paths(data_path, files), strict=True)
    if outside := [pair for pair in real if not pair[1].is_relative_to(root)]:
        cell, path = outside[0]
        yield f"{counted(len(outside), 'file')} outside the data folder, behind links: {cell} is {path}"
