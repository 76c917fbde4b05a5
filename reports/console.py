"""Tables and sentences for a console of 120 columns; the whole tables are in their files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

WIDTH = 120


def narrow(table: pd.DataFrame, keys: Sequence[str]) -> str:
    """A table, of whose columns those that do not fit stand below the others, beside the same `keys` of each row.

    Where even these are too wide, the rows are numbered.
    """
    text = table.set_index([*keys]).to_string(line_width=WIDTH)
    if max(map(len, text.splitlines())) > WIDTH:
        text = table.to_string(line_width=WIDTH)
    return "\n".join(line.rstrip() for line in text.splitlines())


def wrapped(sentence: str) -> str:
    """A sentence on as many lines as it takes; paths and other long words stay whole."""
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
