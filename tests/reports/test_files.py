"""Tables as files: numbers stay numbers, and nothing in a CSV is a formula."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from reports.files import write_table


@pytest.mark.parametrize(
    "cell", ["=1+2", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "+1+1", "-1 [x]", "- a", "="]
)
def test_what_a_spreadsheet_would_run_is_text(tmp_path: Path, cell: str) -> None:
    write_table(pd.DataFrame({"task": [cell, "normal"], cell: ["a", "b"]}), tmp_path / "table")
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [*csv.reader(file)] == [["task", f"'{cell}"], [f"'{cell}", "a"], ["normal", "b"]]


@pytest.mark.parametrize(
    "cell", ["-2.5", "+3", "-1e-05", "+18.2 [+7.5, +28.9]", "-0.4 ± 2.0", "-12.2", "–", "depth", "0.06 / 0.30", ""]
)
def test_numbers_and_names_stay_as_they_are(tmp_path: Path, cell: str) -> None:
    write_table(pd.DataFrame({"task": [cell], "cost": [-1.5]}), tmp_path / "table")
    with (tmp_path / "table.csv").open(newline="") as file:
        assert [*csv.reader(file)] == [["task", "cost"], [cell, "-1.5"]]
