"""Records of a file by what identifies them: two of one key are never one, silently."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def by_key(pairs: Iterable[tuple[K, V]], what: str) -> dict[K, V]:
    """The value of each key; ValueError where one has two that differ. `what` is what a key is, such as "image id".

    >>> by_key([(1, "cat"), (2, "dog"), (1, "cat")], "id")
    {1: 'cat', 2: 'dog'}
    """
    result: dict[K, V] = {}
    for key, value in pairs:
        if result.setdefault(key, value) != value:
            raise ValueError(f"{what} {key} stands there twice: {_shown(result[key])} and {_shown(value)}")
    return result


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else repr(value)
