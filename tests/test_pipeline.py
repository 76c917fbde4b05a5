"""The stages as a user runs them, one after the other, each from what the stage before left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import run_forked, start_spread

NYU = Path(__file__).parents[2] / "shared" / "data" / "nyu_taskonomy"

# The command lines of the documentation, with fewer epochs, rounds, clusters and clients.
STAGES = (
    "extract_datapoints_for_experiments.py --client_file_name tiny.csv --data_path {data} "
    "--taskonomy_clients_to_include 3 --scene_class_file_name places_class_names.txt",
    "model_initialization.py --task {task}",
    "train_centralized_task_model.py --task {task} --n_epochs 1 --batch_size 16 --use_accelerator True "
    "--init_lr 1e-2 --data_path {data}",
    "extract_embeddings.py --task {task} --n_clusters 4 --observe_performance True --from_checkpoint True "
    "--load_model_dir trained_models/",
    "test_fed.py --alpha 0.1 --task {task} --n_rounds 1 --n_clusters 4 --type embedding_based --n_clients 4 "
    "--allow_unassigned 1 "
    "--sgd_per_epoch 2 --init_lr 1e-1 --assignment_files_path assignments/ --method fedavg",
)
SMALL = " --image_size 32"
FEDERATED = STAGES[-1].replace("--n_rounds 1", "--n_rounds 2")


@pytest.fixture
def data(own_copy: Path) -> Path:
    shutil.copy(own_copy / "rooms.csv", own_copy / "tiny.csv")
    return own_copy


@pytest.mark.parametrize("task", ["depth_euclidean", "segment_semantic", "class_scene"])
def test_the_documented_commands_run_in_order(
    data: Path, run_here: Callable, tmp_path: Path, task: str, request: pytest.FixtureRequest
) -> None:
    if task == "depth_euclidean":
        request.getfixturevalue("figures")
    for stage in STAGES:
        run_here(stage.format(task=task, data=data))
    run = tmp_path / "results/test_federated/fedavg" / task / "embedding_based/alpha0.1_seed42"
    metrics = pd.read_csv(run / "metrics.csv")
    assert metrics["round"].tolist() == [0, 1]
    assert np.isfinite(metrics[["train_loss_mean", "train_loss_std", "test_loss"]]).all(axis=None)
    for name in ("args.json", "environment.json", "heterogeneity.json", "partition.json", "summary.json"):
        assert (run / name).is_file()
    for figure in ("loss.png", "distribution.png"):
        Image.open(run / "figures" / figure).verify()
    assignments = np.load(tmp_path / f"assignments/assignments_{task}.npy")
    assert set(assignments) <= set(range(4))
    assert len(np.load(tmp_path / f"assignments/centers_{task}.npy")) == 4


@pytest.mark.parametrize("task", ["depth_euclidean", "segment_semantic"])
def test_published_quirks_go_from_the_initial_model_to_the_last_stage(
    data: Path, run_here: Callable, tmp_path: Path, task: str
) -> None:
    first, *stages = [stage.format(task=task, data=data) for stage in STAGES]
    run_here(first)
    losses = []
    for quirks in (False, True):
        run_here(f"{stages[0]}{SMALL} --published_quirks {quirks}")
        for stage in stages[1:]:
            run_here(stage)
        newest = max(tmp_path.glob("results/test_federated/**/metrics.csv"), key=lambda path: path.stat().st_mtime_ns)
        losses.append(pd.read_csv(newest)["test_loss"].iloc[-1])
    assert np.isfinite(losses).all() and losses[0] != losses[1]


def test_central_training_makes_the_initial_model_where_there_is_none(
    own_copy: Path, run_here: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = f"train_centralized_task_model.py --task normal --data_path {own_copy} --test_mode True"
    for more, options in (("", ""), ("--use_cbam True --rand_seed 7", "--init_model_dir made")):
        run_here(f"{train} {more} {options}")
        printed = capsys.readouterr().out
        run_here(f"model_initialization.py --task normal {more} --init_model_dir alone")
        [line] = [line for line in printed.splitlines() if "initial model" in line]
        made = capsys.readouterr().out.strip().replace("alone/", "made/" if options else "initial_models/")
        assert line == f"made the default initial model, because there was none: {made}"
        folder, name = made.split(" in ")[1].split("/")
        assert (tmp_path / folder / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_too_few_buildings_are_said(own_copy: Path, run_here: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    select = f"extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path {own_copy}"
    for n, said in ((1, False), (2, False), (3, True)):
        run_here(f"{select} --taskonomy_clients_to_include {n}")
        line = f"--taskonomy_clients_to_include {n}: rooms.csv lists 2; all are taken\n"
        assert (line in capsys.readouterr().out) is said


@pytest.fixture(scope="module")
def trained(rendered: Path, table: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with all stages before the federation done for normals."""
    folder = tmp_path_factory.mktemp("work")
    data = Path(shutil.copytree(rendered, folder / "data"))
    shutil.copy(data / "rooms.csv", data / "tiny.csv")
    for stage in STAGES[:-1]:
        run(folder, stage.format(task="normal", data=data) + SMALL * stage.startswith("model_init"))
    return folder


def run(folder: Path, command: str) -> str:
    """Run a script in a working folder; returns what it printed."""
    done = run_forked(folder, command)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_federated_runs_repeat_spread_and_compare(trained: Path) -> None:
    command = FEDERATED.format(task="normal")
    for _ in range(2):
        run(trained, command)
    folder = trained / "results/test_federated/fedavg/normal"
    columns = ["train_loss_mean", "train_loss_std", "test_loss", "test_angle_mean"]
    first, second = (pd.read_csv(folder / f"embedding_based/alpha0.1_seed42{n}/metrics.csv") for n in ("", "_2"))
    assert first[columns].equals(second[columns])

    for process in start_spread(trained, command, 2):
        process.join()
        assert process.exitcode == 0, (trained / "output.txt").read_text()[-3000:]
    spread = pd.read_csv(folder / "embedding_based/alpha0.1_seed42_3/metrics.csv")
    assert np.allclose(first[columns], spread[columns], rtol=1e-4)
    runs = (folder / f"embedding_based/alpha0.1_seed42{number}/heterogeneity.json" for number in ("", "_3"))
    uneven = [json.loads(path.read_text()) for path in runs]
    assert uneven[0] == pytest.approx(uneven[1], rel=1e-5)  # the gradients come from both processes

    # Another method on the saved partition, with none of the arguments that made it.
    saved = folder / "embedding_based/alpha0.1_seed42"
    run(trained, f"test_fed.py --task normal --method fedprox --n_rounds 1 --sgd_per_epoch 2 --partition_file {saved}")
    again = trained / "results/test_federated/fedprox/normal/embedding_based/alpha0.1_seed42"
    assert (again / "partition.npy").read_bytes() == (saved / "partition.npy").read_bytes()
    assert json.loads((again / "partition.json").read_text())["partition_file"] == str(saved)
    assert json.loads((again / "args.json").read_text())["n_clients"] == 4
    uneven = [json.loads((run / "summary.json").read_text())["heterogeneity"] for run in (saved, again)]
    assert uneven[0] == uneven[1] == json.loads((saved / "heterogeneity.json").read_text())
    assert uneven[0]["frechet"] > 0 and uneven[0]["gradient_dispersion"] > 0

    run(trained, command.replace("embedding_based", "class_based"))
    run(trained, command.replace("embedding_based", "iid"))
    table = run(trained, "make_tables.py")
    assert "client train" in table and "global test" in table
    for ending in ("md", "tex", "csv", "png"):
        assert (trained / f"results/tables/comparison.{ending}").stat().st_size > 0
    similarity = pd.read_csv(trained / "results/tables/task_similarity_ami.csv", index_col=0)
    assert list(similarity) == list(similarity.index) == ["normal", "classes"]
    Image.open(trained / "results/tables/task_similarity.png").verify()
    loss = json.loads((folder / "class_based/alpha0.1_seed42/summary.json").read_text())["last"]["test_loss"]
    written = pd.read_csv(trained / "results/tables/comparison.csv")
    assert written.loc[written["data"] == "global test", "class"].iloc[0] == pytest.approx(loss, abs=1e-4)


def test_a_mistake_gets_one_line_and_exit_code_2(trained: Path) -> None:
    done = run_forked(trained, "test_fed.py --task normal --n_clusters 7")
    [line] = done.stderr.strip().splitlines()
    assert done.returncode == 2 and line.startswith("error: ") and "--n_clusters 4" in line


@pytest.mark.skipif(not NYU.is_dir(), reason=f"the photographs of {NYU.name} are not here")
def test_stages_one_to_four_on_photographs(run_script: Callable, tmp_path: Path) -> None:
    data = tmp_path / "photographs"
    two_of_three = shutil.ignore_patterns("point_*[1245789]_view_*")
    shutil.copytree(NYU, data, copy_function=os.symlink, ignore=two_of_three)
    folder = "--init_model_dir initial_models"
    run_script(
        f"extract_datapoints_for_experiments.py --client_file_name nyu.csv --data_path {data} "
        "--taskonomy_clients_to_include 1"
    )
    for task in ("depth_euclidean", "reshading"):
        run_script(f"model_initialization.py --task {task} --image_size 32 --norm group {folder}")
        run_script(f"train_centralized_task_model.py --task {task} --n_epochs 1 --init_lr 0.05")
        run_script(f"extract_embeddings.py --task {task} --n_clusters 16")
        run_script(f"test_fed.py --task {task} --n_clusters 16 --n_clients 10 --n_rounds 1 --sgd_per_epoch 2")
        runs = tmp_path / "results/test_federated/fedavg" / task
        metrics = pd.read_csv(next(runs.rglob("metrics.csv")))
        assert np.isfinite(metrics["test_loss"]).all()
