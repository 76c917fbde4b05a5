"""Numbers with their nouns, and names in a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


def plural(noun: str) -> str:
    """The plural of a noun.

    >>> plural("batch"), plural("epoch")
    ('batches', 'epochs')
    """
    hisses = noun.endswith(("s", "x", "ch", "sh")) and noun != "epoch"  # whose ch is a k
    return f"{noun}es" if hisses else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "class"), counted(20, "class")
    ('1 class', '20 classes')
    """
    return f"{number} {noun if number == 1 else plural(noun)}"


def span(least: int, most: int, noun: str) -> str:
    """From the least to the most of things: one number where they are equal.

    >>> span(9, 10, "image"), span(1, 1, "image")
    ('9 to 10 images', '1 image')
    """
    return f"{least} to {counted(most, noun)}" if least < most else counted(most, noun)


def in_order(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different names of an array (N,) of text, in order, and the number of each one's name among them, (N,).

    The order is by size where all are numbers, but for an empty one, which comes first; else that of text.

    >>> [part.tolist() for part in in_order(np.array(["10", "9", "", "10"]))]
    [['', '9', '10'], [2, 1, 0, 2]]
    """
    different, number = np.unique(names, return_inverse=True)
    texts = different.tolist()
    if not all(_NUMBER.fullmatch(text) for text in texts if text):
        return different, number
    order = np.array(sorted(range(len(texts)), key=lambda i: (texts[i] != "", Decimal(texts[i] or 0), texts[i])), int)
    return different[order], np.argsort(order)[number]


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 3), some(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
