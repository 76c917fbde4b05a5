"""Tables and sentences for a console of 120 columns; files have the full tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reports.files import write_table
from utils.words import counted

WIDTH = 120
_BETWEEN = "  "  # columns
_NARROWEST = 9  # that the name of a column is broken to


def report_table(heading: str, table: pd.DataFrame, path: Path) -> None:
    """Write a table to `path`, and print it as `titled` by the columns that name a row; nothing where it is empty."""
    if not table.empty:
        write_table(table, path)
        print(f"{titled(heading, table, before(table, 'seeds') or [*table][:1], f'{path}.md')}\n")


def titled(heading: str, table: pd.DataFrame, keys: Sequence[str], file: str = "") -> str:
    """A table as text under its heading, with a line per row of at most 120 columns.

    The columns `keys` come first; those that all rows share stand in the heading, as does the number of seeds. In a
    table that is too wide, the names of columns are broken to the width of their cells. Then columns are left out from
    the right, and named with the `file` that has them. If the keys alone are too wide, each row is a sentence.
    """
    text = table.map(_as_text)
    shared = {name: text[name].iloc[0] for name in (*keys, "seeds") if name in text and text[name].nunique() == 1}
    if shared.keys() >= {*keys}:  # rows need a name
        del shared[keys[0]]
    alike = ", ".join(_in_words(name, value) for name, value in shared.items() if value)
    heading = wrapped(f"{heading} (all with {alike})" if alike else heading)
    own = [name for name in keys if name not in shared]
    text = text[[*own, *(name for name in text if name not in {*keys, *shared})]]
    for n_columns in range(len(text.columns), len(own), -1):
        for broken in (False, True):
            lines = _lines(text.iloc[:, :n_columns], len(own), broken)
            if max(map(len, lines)) <= WIDTH:
                others = ", ".join(text.columns[n_columns:])
                more = [wrapped(f"{file or 'not shown'}: also {others}")] if others else []
                return "\n".join([heading, *lines, *more])
    rows = (
        ", ".join(_in_words(name, value) for name, value in row.items() if value) for row in text.to_dict("records")
    )
    return "\n".join([heading, *map(wrapped, rows)])


def before(table: pd.DataFrame, column: str) -> list[str]:
    """The columns that stand before this one, where those that name a row do; none where the table is empty."""
    return [*table.loc[:, :column].columns[:-1]] if column in table else []


def wrapped(sentence: str) -> str:
    """A sentence on as many lines as it takes; paths and other long words stay whole."""
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _in_words(name: str, value: str) -> str:
    """The value of a key in a sentence."""
    if name == "seeds":
        return counted(int(value), "seed")
    return f"{value} {name.removeprefix('n_')}" if name.startswith("n_") else f"{name} {value}"


def _as_text(cell: object) -> str:
    """A cell; one without a value is a dash."""
    if isinstance(cell, float):
        return "–" if cell != cell else f"{cell:g}"
    return str(cell)


def _lines(table: pd.DataFrame, n_keys: int, broken: bool) -> list[str]:
    """The lines of a table of texts, keys to the left and others to the right, names `broken` where they can be.

    What a row has in common with the one above it, from the left, is not repeated, but for the last key.
    """
    above, keys = None, []
    for row in table.iloc[:, :n_keys].itertuples(index=False):
        n_alike = next((at for at in range(n_keys - 1) if above is None or row[at] != above[at]), n_keys - 1)
        keys.append([*[""] * n_alike, *row[n_alike:]])
        above = row
    columns = [*zip(*keys, strict=True), *table.iloc[:, n_keys:].to_numpy().T]
    names = [
        textwrap.wrap(name, max(_NARROWEST, *map(len, cells)), break_long_words=False) if broken else [name]
        for name, cells in zip(table, columns, strict=True)
    ]
    n_lines = max(map(len, names))
    texts = [[*[""] * (n_lines - len(name)), *name, *cells] for name, cells in zip(names, columns, strict=True)]
    widths = [max(map(len, column)) for column in texts]
    return [
        _BETWEEN.join(
            cell.ljust(width) if at < n_keys else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in zip(*texts, strict=True)
    ]
