"""Whole experiments, from their files to their figures, in test mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets.table import Table
from tests.conftest import ROOT

TAUGHT = """
title = "Thumbnails as a teacher, beside no teacher"
data = "data"
result_path = "taught"
tasks = ["class_scene"]
methods = ["fedavg", "feddifrc"]
splits = ["class_based"]
alphas = [1]
seeds = [0]
central = false
guidance = "thumbnails"
teacher = { features = "image" }
fed = { contrast = "classes", n_clients = 3, clients_per_round = 3, min_client_ds_len = 1 }

[[vary.steps]]

[[vary.steps]]
fed = { momentum = 0.9 }  # as in the scale: the same runs in other words

[make]
tables = true
probes = true
"""


@pytest.fixture
def folder(rendered: Path, table: Table, tmp_path: Path) -> Path:
    """A working folder with images in `data`."""
    shutil.copytree(rendered, tmp_path / "data")
    return tmp_path


def test_the_images_alone(folder: Path, run_anywhere: Callable) -> None:
    file = ROOT / "experiments/task_perspective/class_histogram.toml"
    done = run_anywhere(folder, f"run_sweep.py --experiment {file} --data data --test_mode")
    shown = "results/data_test/extract_datapoints/data/figures/class_histogram.png"
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == shown and (folder / shown).is_file(), done.stderr


def test_runs_without_a_central_model_and_their_figure(folder: Path, run_anywhere: Callable) -> None:
    file = ROOT / "experiments/visual_classification/figure_10.toml"
    command = f"run_sweep.py --experiment {file} --data data --tasks class_scene --alphas 100 --n_clients 4 --jobs 1"
    done = run_anywhere(folder, command)
    assert done.returncode == 0 and "2 jobs: 0 done before, 2 now, 0 failed" in done.stdout, done.stderr
    figure = "results/visual_classification/builtin_data/distributions/figures/distributions_class_scene.png"
    assert done.stdout.splitlines()[-1] == figure and (folder / figure).is_file()


def test_a_teacher_is_asked_once_and_what_is_said_twice_runs_once(folder: Path, run_anywhere: Callable) -> None:
    (folder / "taught.toml").write_text(TAUGHT)
    command = "run_sweep.py --experiment taught.toml --test_mode --jobs 2"
    done = run_anywhere(folder, command)
    assert done.returncode == 0 and "4 jobs: 0 done before, 4 now, 0 failed" in done.stdout, done.stderr
    assert (folder / "taught_test/guidance/thumbnails/guidance.json").is_file()
    assert len(list(folder.glob("taught_test/test_federated/*/*/*/*/linear_probe.json"))) == 2
    assert "6 jobs: 5 done, 1 new" in run_anywhere(folder, f"{command} --dry_run True").stdout


def test_the_plan_of_public_photographs_has_one_first_stage(tmp_path: Path, run_anywhere: Callable) -> None:
    """Their own: the one for a folder in Taskonomy's layout would not find a list of buildings there."""
    done = run_anywhere(tmp_path, "run_sweep.py --data nyu --tasks normal --seeds 0 --dry_run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("extract_datapoints_for_experiments.py") == 1 and "--source nyu" in done.stdout
