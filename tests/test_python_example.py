"""The example of README's section "From Python" runs as it stands, on rendered rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from datasets.table import Table
from tests.conftest import ROOT


def test_example_gives_the_rounds_that_the_run_directory_holds(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample_rooms").symlink_to(table.data_path)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    rounds = names["rounds"]
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    assert rounds["test_loss"].iloc[-1] < rounds["test_loss"].iloc[0]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "results/mine/metrics.csv"), rounds, check_dtype=False)
