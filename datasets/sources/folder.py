"""Folders of classes, the layout that most data sets of photographs have: `[<part>/][<domain>/]<class>/a.jpg`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pandas as pd

from datasets.left_out import main_error
from datasets.sources.listing import DOMAIN, list_images, number_classes, part_named
from datasets.sources.source import Source
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.errors import UserError

_LAYOUT = "[<part>/][<domain>/]<class>/"
_LEVELS = 3


class Folder(Source):
    """Images in `[<part>/][<domain>/]<class>/`, parts by their names (train, val, valid, test …).

    A level of domains is the natural group `domain`. Where there is no level of parts, images are held out at random.
    """

    def find(self) -> Listing:
        """The images that have a class; empty files and images in no class are left out and named."""
        rows, errors = find_in_folders(self.data_path)
        if not len(rows):
            raise UserError(f"{self.data_path}: no image in the layout {_LAYOUT}{main_error(errors)}")
        labels, classes = number_classes(rows[CLASS].tolist())
        groups = tuple(name for name in rows.columns if name == DOMAIN)
        info = self.dataset_info(domains=(RGB.domain,), groups=groups, classes=classes)
        return Listing(rows.assign(**{CLASS: labels}), info, errors)


def find_in_folders(data_path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The images in folders of classes, which may be none, and the files that are left out, with the reason.

    The columns are rgb, class (as text), and domain and part where there are such folders; a part may stand before the
    domain or behind it. `UserError` where the meaning of a folder is not clear.
    """
    cells, errors = list_images(data_path, _LEVELS + 1)
    folders = [list(PurePosixPath(cell).parts[:-1]) for cell in cells]
    parts = _take_parts(folders)
    errors += [f"{cell!r}: is in no folder of a class" for cell, rest in zip(cells, folders, strict=True) if not rest]
    rows = pd.DataFrame({RGB.domain: cells, "folders": folders})
    if parts:
        rows[PART] = parts
    rows = rows[rows.pop("folders").map(len) > 0].reset_index(drop=True)
    folders = [rest for rest in folders if rest]
    _check_depths(dict(zip(map(len, folders), rows[RGB.domain], strict=True)))
    rows[CLASS] = [rest[-1] for rest in folders]
    if len(rows) and all(map(part_named, rows[CLASS])):
        raise UserError(f"{rows[RGB.domain][0]}: a class is called like a split; the layout is {_LAYOUT}")
    if any(len(rest) == 2 for rest in folders):
        rows[DOMAIN] = [rest[0] for rest in folders]
    return rows, errors


def _take_parts(folders: list[list[str]]) -> list[str]:
    """The part of each image, taken out of its folders: of the first level, or else of the second of three.

    Empty where no folder that has folders is called like a part.
    """
    for level in (0, 1):
        named = [folder[level] for folder in folders if len(folder) > level + 1 and part_named(folder[level])]
        if not named or (level and any(len(folder) != _LEVELS for folder in folders)):
            continue
        beside = [folder.pop(level) if len(folder) > level else "" for folder in folders]
        parts = [part_named(name) or "" for name in beside]
        if unknown := [name for name, part in zip(beside, parts, strict=True) if name and not part]:
            raise UserError(f"{named[0]}/ is called like a split and {unknown[0]}/ beside it is not; rename one")
        return parts
    return []


def _check_depths(examples: dict[int, str]) -> None:
    """UserError unless all images, of which each depth has an example, lie one or two folders deep."""
    if max(examples, default=0) > 2:
        raise UserError(f"{examples[max(examples)]} lies too deep; the layout is {_LAYOUT}")
    if len(examples) > 1:
        raise UserError(f"{examples[1]} and {examples[2]} lie at different depths; the layout is {_LAYOUT} for all")
