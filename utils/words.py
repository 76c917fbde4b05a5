"""Numbers with their nouns."""

from __future__ import annotations


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
