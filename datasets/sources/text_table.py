"""Csv files that people and spreadsheets write, in whatever encoding and with whatever separator."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from utils.errors import UserError
from utils.words import some

_NOTHING = ("nan", "NaN", "<NA>")  # what a missing value is called where a program writes it as text
_ALSO_NOTHING = {"null", "none", "na", "n/a", "#n/a", "nil"}  # or is it a name?


def read_text_table(path: Path, argument: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a csv file as text, by the number of their last line, and lines that are none, with the reason.

    Cells are separated by commas, semicolons or tabs; the text is UTF-8, UTF-16 with its mark, or Windows' Latin
    letters. `UserError`, which names the argument, where the file cannot be read, a quotation mark is not closed, or a
    column has no name of its own. Columns without a name, such as the index that pandas writes, are passed over, and
    cells with Python's or NumPy's `nan` in them are empty.
    """
    text = _decoded(path, argument)
    separator = max(",;\t", key="".join(text.splitlines()[:1]).count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    lines: dict[int, list[str]] = {}
    errors: list[str] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if len(cells) == len(header) and not any(re.search(r"[\r\n\0]", cell) for cell in cells):
                lines[reader.line_num] = ["" if cell.strip() in _NOTHING else cell.strip() for cell in cells]
            elif any(cells):
                errors.append(f"{path.name}, line {reader.line_num}: not a cell for each of the {len(header)} columns")
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; is a quotation mark not closed?") from error
    named = [name for name in header if name]
    _say_nothing(path, header, lines.values())
    if len(set(named)) < len(named):
        raise UserError(f"{path}: two columns have the same name ({', '.join(named)})")
    rows = pd.DataFrame.from_dict(lines, orient="index", columns=header, dtype=str)
    return rows[named], errors


def _say_nothing(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the cells that may say that there is nothing, and are taken for names."""
    counts = Counter(
        (name, cell) for row in rows for name, cell in zip(header, row, strict=True) if cell.lower() in _ALSO_NOTHING
    )
    if counts:
        shown = some([f"{n} × {cell!r} in {name}" for (name, cell), n in counts.most_common()], 4)
        print(f"{path.name}: taken for names, where a cell without a value is to be empty: {shown}")


def _decoded(path: Path, argument: str) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); see {argument}") from error
    encodings = ("utf-16",) if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252")
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding == "cp1252":
            print(f"{path.name} is not in UTF-8: read in Windows' Latin letters (cp1252)")
        return text
    raise UserError(f"{path}: no text in UTF-8; save it so, or see {argument}")
