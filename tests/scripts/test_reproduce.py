"""The scripts of the papers' tables and figures: all are there, and refuse what they do not understand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("*/reproduce_*.sh"))
NAMES = {
    "task_perspective": {
        "class_histogram", "distributions", "tsne", "rounds_fedavg", "rounds_methods", "increase_table",
        "learning_rate", "local_steps", "predictions", "task_similarity", "backbones",
    },
    "visual_classification": {
        "table_1", "table_2", "table_3", "table_4", "table_5", "figure_4", "figure_5", "figure_6", "figure_7",
        "figure_8", "figure_9", "figure_10",
    },
    "fedcv": {
        *(f"table_{number}" for number in (*range(2, 9), *range(11, 16))),
        *(f"figure_{number}" for number in range(4, 10)),
    },
}  # fmt: skip


@pytest.mark.parametrize("paper", NAMES)
def test_one_script_for_each(paper: str) -> None:
    found = {path.stem.removeprefix("reproduce_") for path in SCRIPTS if path.parent.name == paper}
    assert found == NAMES[paper]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize(
    "arguments, text",
    [(["--scale", "huge"], "builtin or paper"), (["--fast"], "--fast"), (["--scale"], "--scale"),
     (["--data", "x"], "no table")],
)  # fmt: skip
def test_mistakes_get_one_line(script: Path, arguments: list[str], text: str) -> None:
    done = subprocess.run(["bash", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert text in done.stderr and len(done.stderr.splitlines()) == 1
