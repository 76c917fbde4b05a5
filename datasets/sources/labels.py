"""Classes of masks and boxes: their names from a file, and which one stands for a whole image."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.classes import VOID, ClassSet
from utils.args import number
from utils.arguments import Argument
from utils.errors import UserError

CLASS_OF_IMAGE = {
    "class_of_image": Argument(
        "commonest",
        "an image's class: its commonest category, or the one with the lowest id as in FedCV",
        choices=("commonest", "lowest"),
    )
}
MASK_CLASSES = {
    "mask_classes": Argument(
        None, "file of the masks' categories: a name per line, `id: name` lines, a table, or a .yaml"
    ),
    "void_ids": Argument((), "ids of the masks that count nowhere", number(int, least=0, most=65535), nargs="+"),
}
BACKGROUND = "background"


def regular_expression(text: str) -> str:
    """An argparse type: a regular expression with at least one named group."""
    try:
        if re.compile(text).groupindex:
            return text
    except re.error as error:
        raise ArgumentTypeError(f"{text!r} is no regular expression ({error})") from error
    raise ArgumentTypeError(f"{text!r} names no group; write (?P<sequence>...) for a natural group called sequence")


GROUP_PATTERN = {
    "group_pattern": Argument(
        None, "regular expression of the files' names; its named groups become natural groups", regular_expression
    )
}


def groups_of_names(cells: Iterable[str], pattern: str | None, taken: Collection[str]) -> pd.DataFrame:
    """What the named groups of a regular expression find in files' names: a column each, empty where it fits not.

    UserError where one is called like one of the columns `taken`, which the table has or will have.
    """
    if pattern is None:
        return pd.DataFrame()
    expression = re.compile(pattern)
    if both := [name for name in expression.groupindex if name in taken]:
        raise UserError(
            f"--group_pattern: (?P<{both[0]}>…) would be a natural group called like another column; rename it"
        )
    matches = [expression.search(Path(cell).name) for cell in cells]
    return pd.DataFrame(
        [match.groupdict("") if match else {} for match in matches], columns=[*expression.groupindex]
    ).fillna("")


def class_set(categories: Mapping[int, str], void: Iterable[int] = ()) -> ClassSet:
    """The classes of id masks: all categories but the void ones; UserError where there are none or too many."""
    void = tuple(sorted(set(void)))
    valid = {number: name for number, name in categories.items() if number not in void}
    if not 1 <= len(valid) <= VOID:
        raise UserError(f"{len(valid)} classes that are not void, where masks can have 1 to {VOID}; see --void_ids")
    return ClassSet(tuple(valid.values()), tuple(valid), void)


def class_of_image(amounts: np.ndarray, names: tuple[str, ...], rule: str) -> int:
    """The class of an image from the amount of each class in it (C,), in pixels or boxes; -1 where there is none.

    A class called background is taken only where there is no other.
    """
    shown = np.flatnonzero(amounts)
    things = [label for label in shown if names[label].lower() != BACKGROUND]
    candidates = np.array(things or shown.tolist(), np.int64)
    if not len(candidates):
        return -1
    return int(candidates[0] if rule == "lowest" else candidates[np.argmax(amounts[candidates])])
