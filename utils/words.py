"""Numbers with their nouns, and names in a row."""

from __future__ import annotations

from collections.abc import Sequence


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


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 3), some(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
