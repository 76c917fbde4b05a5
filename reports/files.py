"""Tables as files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from utils.files import write_atomically


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as Markdown, LaTeX and CSV: `path` with three endings, in a folder that is made if needed."""
    markdown = table.to_markdown(index=False)
    latex, csv = table.to_latex(index=False, escape=True), table.to_csv(index=False)
    for ending, text in ((".md", f"{markdown}\n"), (".tex", latex), (".csv", csv)):
        with write_atomically(path.with_suffix(ending)) as temporary:
            temporary.write_text(text, encoding="utf-8")
