"""The scripts of the papers' tables and figures: each runs an experiment of its own, with arguments and environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    [*ROOT.glob("scripts/*/reproduce_*.sh"), *ROOT.glob("scripts/feddifrc/*.sh"), ROOT / "run_pipeline.sh"]
)
NAMES = {
    "task_perspective": {
        "class_histogram", "distributions", "tsne", "rounds_fedavg", "rounds_methods", "increase_table",
        "learning_rate", "local_steps", "predictions", "task_similarity", "backbones", "rates", "trained_encoder",
        "clusters_of_what", "methods", "method_rates", "privacy", "robustness", "neighbours",
        "non_participating_clients", "instances", "instances_coco128",
    },
    "visual_classification": {
        "table_1", "table_2", "table_3", "table_4", "table_5", "figure_4", "figure_5", "figure_6", "figure_7",
        "figure_8", "figure_9", "figure_10", "rates", "uneven_clients", "uneven_rates",
    },
    "fedcv": {
        *(f"table_{number}" for number in (*range(2, 9), *range(11, 16))),
        *(f"figure_{number}" for number in range(4, 10)), "detector",
    },
}  # fmt: skip
# In place of Python: new enough, with nothing lacking; a sweep notes its arguments.
PYTHON = """#!/bin/sh
case "$1" in run_sweep.py) echo "$@" >> "$CALLS" ;; esac
"""


def calls(folder: Path, script: Path, *arguments: str, **variables: str) -> list[list[str]]:
    """The arguments of run_sweep.py that a script gives, for each time that it runs it."""
    python = folder / "environment/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": f"{folder}/environment", "CALLS": f"{folder}/calls"}
    done = subprocess.run(
        ["bash", script, *arguments], env=environment | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [line.split()[2:] for line in (folder / "calls").read_text().splitlines()]


@pytest.mark.parametrize("paper", NAMES)
def test_one_script_for_each(paper: str) -> None:
    found = {path.stem.removeprefix("reproduce_") for path in SCRIPTS if path.parent.name == paper}
    assert found == NAMES[paper]


def test_one_script_for_each_table_of_feddifrc() -> None:
    found = [path.stem.split("_")[0] for path in SCRIPTS if path.parent.name == "feddifrc"]
    assert found == ["domains", "figure6", "imagenet", "imagenet", *(f"table{n}" for n in range(1, 9))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_runs_an_experiment_that_is_there(script: Path, tmp_path: Path) -> None:
    found = calls(tmp_path, script, "--test_mode", "--data", "photos")
    number = script.stem.removeprefix("reproduce_").split("_")[0].removeprefix("table").removeprefix("figure")
    for experiment, *arguments in found:
        assert (ROOT / experiment).is_file() and number.replace("run", "pipeline") in experiment
        assert arguments[-3:] == ["--test_mode", "--data", "photos"]
    assert len(found) == (2 if script.stem == "reproduce_figure_5" and script.parent.name != "fedcv" else 1)


def test_no_script_has_a_loop_or_a_record_of_its_own() -> None:
    for script in SCRIPTS:
        lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
        assert len(lines) <= 2, script


def test_lists_come_from_the_environment_and_arguments_go_before(tmp_path: Path) -> None:
    [found] = calls(
        tmp_path,
        ROOT / "run_pipeline.sh",
        "--data",
        "photos",
        TASKS="normal depth_euclidean",
        METHODS="fedavg moon",
        ALPHAS="0.1 1",
        SEEDS="3",
        N_CLUSTERS="8",
        JOBS="2",
        GPUS="0 1",
        VIEWS_PER_BUILDING="7",
    )
    assert " ".join(found) == (
        "experiments/task_perspective/pipeline.toml --tasks normal depth_euclidean --methods fedavg moon "
        "--alphas 0.1 1 --seeds 3 --n_clusters 8 --jobs 2 --gpus 0 1 --data rooms:7 --data photos"
    )


@pytest.mark.parametrize(
    "arguments, variables, words",
    [
        ((), {}, []),
        (("--test_mode",), {}, ["--seeds", "0", "--test_mode"]),
        (("--scale", "builtin"), {"DATA_PATH": "d"}, ["--scale", "builtin"]),
        (
            ("--scale", "paper"),
            {"DATA_PATH": "/d", "VIEWS_PER_BUILDING": "7"},
            ["--data_path", "/d", "--scale", "paper"],
        ),
    ],
)
def test_the_pipeline(tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], words: list[str]) -> None:
    [found] = calls(tmp_path, ROOT / "run_pipeline.sh", *arguments, **variables)
    assert found[1:] == words
