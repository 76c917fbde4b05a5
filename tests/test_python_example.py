"""The examples of README and of docs/python.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from datasets.table import Table
from tests.conftest import ROOT
from tests.settings_page import pages


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_example_gives_the_rounds_that_the_run_directory_holds(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = examples("README.md")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample_rooms").symlink_to(table.data_path)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    rounds = names["rounds"]
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    assert rounds["test_loss"].iloc[-1] < rounds["test_loss"].iloc[0]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "results/mine/metrics.csv"), rounds, check_dtype=False)


def test_example_of_ones_own_photographs_runs_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = examples("docs/python.md")[0]
    colours = np.random.default_rng(0)
    for name, level in (("cat", 60), ("dog", 200)):
        for number in range(40):
            pixels = (level + colours.integers(-50, 50, (40, 40, 3))).astype(np.uint8)
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    (tmp_path / "task-perspective-het").symlink_to(ROOT)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "test_accuracy" in done.stdout and "constant baseline: 0.69" in done.stdout  # ln 2
    rounds = pd.read_csv(tmp_path / "runs/mine/metrics.csv")
    assert rounds["round"].tolist() == [0, 1, 2, 3] and {path.name for path in tmp_path.iterdir()} == {
        "photos",
        "program.py",
        "runs",
        "task-perspective-het",
    }


def test_example_of_a_configuration_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(examples("docs/python.md")[1], {})
    assert f"prints `{capsys.readouterr().out.strip()}`." in (ROOT / "docs/python.md").read_text(encoding="utf-8")


def test_the_page_of_all_settings_is_made_of_them() -> None:
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tests.settings_page"
