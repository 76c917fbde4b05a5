"""The scripts of FedDifRC's tables: one each, and what they do not understand is one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "feddifrc").glob("*_*.sh"))


def test_one_script_for_each_table_and_figure() -> None:
    names = [f"table{n}" for n in range(1, 9)]
    assert [path.stem.split("_")[0] for path in SCRIPTS] == ["figure6", *names]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("arguments, text", [(["--fast"], "--fast"), (["--data_path"], "needed"), ([], "needed")])
def test_mistakes_get_one_line(script: Path, arguments: list[str], text: str) -> None:
    done = subprocess.run(["bash", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert text in done.stderr and len(done.stderr.splitlines()) == 1
