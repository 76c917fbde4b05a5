"""Tables as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from utils.files import write_atomically

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would run
_NUMBER = r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?"
# Our own cells: a number, with its standard deviation or its interval.
_HARMLESS = re.compile(rf"{_NUMBER}( ± {_NUMBER}| \[{_NUMBER}, {_NUMBER}\])?")


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as Markdown, LaTeX and CSV: `path` with three endings, in a folder that is made if needed.

    In the CSV, a name or cell that a spreadsheet would take for a formula has an apostrophe before it.
    """
    markdown = table.to_markdown(index=False)
    latex = table.to_latex(index=False, escape=True)
    csv = table.map(_as_text).rename(columns=_as_text).to_csv(index=False)
    for ending, text in ((".md", f"{markdown}\n"), (".tex", latex), (".csv", csv)):
        with write_atomically(path.with_name(f"{path.name}{ending}")) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _as_text(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    risky = isinstance(cell, str) and cell.startswith(_FORMULA) and not _HARMLESS.fullmatch(cell)
    return f"'{cell}" if risky else cell
