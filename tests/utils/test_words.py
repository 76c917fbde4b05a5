"""Nouns and rows of names."""

from __future__ import annotations

import doctest

import pytest

from utils import words
from utils.words import some


def test_the_examples_of_docstrings_hold() -> None:
    failed, tried = doctest.testmod(words)
    assert not failed and tried == 5


@pytest.mark.parametrize("n", [0, 1, 3, 4, 90])
def test_every_name_is_named_or_counted(n: int) -> None:
    names = [f"x{number}" for number in range(n)]
    said, _, more = some(names, 3).partition(" and ")
    assert len([name for name in said.split(", ") if name]) + int(more.split()[0] if more else 0) == n
