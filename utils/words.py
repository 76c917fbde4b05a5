"""Numbers with their nouns."""

from __future__ import annotations


def plural(noun: str) -> str:
    """The plural of a noun.

    >>> plural("batch")
    'batches'
    """
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "class"), counted(20, "class")
    ('1 class', '20 classes')
    """
    return f"{number} {noun if number == 1 else plural(noun)}"
