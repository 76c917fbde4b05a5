"""How the benchmarks show their measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd


def middle(values: Sequence[float], digits: int) -> str:
    """`median (min to max)`."""
    low, median, high = np.quantile(values, (0, 0.5, 1))
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def print_table(title: str, rows: Sequence[Mapping[str, object]] | pd.DataFrame) -> None:
    """A title and a Markdown table."""
    print(f"\n{title}\n\n{pd.DataFrame(rows).to_markdown(index=False)}")
