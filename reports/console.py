"""Tables and sentences for a console of 120 columns; files have the full tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

WIDTH = 120


def narrow(table: pd.DataFrame, keys: Sequence[str]) -> str:
    """A table as text; columns that do not fit are put below the others, with the columns `keys` repeated.

    If the keys themselves are too wide, rows are numbered instead.
    """
    text = table.set_index([*keys]).to_string(line_width=WIDTH)
    if max(map(len, text.splitlines())) > WIDTH:
        text = table.to_string(line_width=WIDTH)
    return "\n".join(line.rstrip() for line in text.splitlines())


def wrapped(sentence: str) -> str:
    """A sentence on as many lines as it takes; paths and other long words stay whole."""
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
