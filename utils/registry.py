"""Registries: the pieces of one kind by the names that arguments take."""

from __future__ import annotations

from typing import TypeVar

Entry = TypeVar("Entry")
# Declares that a run uses only those entries of a module's dictionary which it names: by a word among its
# arguments, by a word in another entry that it works with (a task names its loss), or where the code looks one up
# (`LOSSES["l1"]`). The version of a run's code then covers these entries and none of the others.
Registry = dict[str, Entry]
