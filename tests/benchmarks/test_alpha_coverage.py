"""The benchmark of coverage, made small: intervals hold an α that they should, and draws without one are counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import alpha_coverage


def test_intervals_are_counted_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("ALPHAS", (0.001, 1.0)), ("CLIENTS", (2,)), ("SHAPES", ((3, 2),)), ("DRAWS", 8)):
        monkeypatch.setattr(alpha_coverage, name, value)
    monkeypatch.setattr(alpha_coverage, "BOOTSTRAPPED", (2, 3, 2))
    monkeypatch.setattr(alpha_coverage, "bootstrap", lambda *_: (0.0, np.inf))
    alpha_coverage.main()
    printed = capsys.readouterr().out
    assert printed.startswith("16 draws, 8 of each of 2 settings; ")
    lost = int(printed.split("settings; ")[1].split()[0])
    assert 0 < lost < 12 and f"of {16 - lost} draws" in printed
    assert "by bootstrap over clients" in printed and "100.0 ± 0.0" in printed


def test_coverage_is_the_share_of_draws_with_its_standard_error() -> None:
    rows = pd.DataFrame({"clients": [5] * 5, "alpha": [0.1] * 5, "likelihood": [1, 1, 1, 0, np.nan]})
    table = alpha_coverage.coverage(rows, ["clients"])
    assert table.to_dict("records") == [{"clients": 5, "α = 0.1": "75.0 ± 21.7"}]  # √(0.75 · 0.25 / 4)
