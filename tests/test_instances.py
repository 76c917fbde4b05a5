"""Instance segmentation through the stages: maps from folders to the tables, and methods that train the task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import start_in
from tests.test_resuming import assert_resumes_and_spreads, begin, finish, result

FED = (
    "test_fed.py --task instances --partition equal_size --n_clients 2 --n_rounds 2 --sgd_per_epoch 2 --batch_size 4 "
    "--init_lr 1e-3 --plot_distribution False --use_accelerator False --data_path {}"
)


def draw_photographs(data_path: Path, part: str, n: int, seed: int) -> None:
    """Bright rectangles of two classes with maps of classes and of objects; beneath the last row nothing counts."""
    rng = np.random.default_rng(seed)
    for number in range(n):
        picture = rng.integers(0, 40, (32, 32, 3), np.uint8)
        ids, objects = np.zeros((2, 32, 32), np.uint8)
        for place in range(2):
            label, (width, height) = int(rng.integers(2)), rng.integers(8, 13, 2)
            left, top = 16 * place + int(rng.integers(0, 17 - width)), int(rng.integers(0, 31 - height))
            where = slice(top, top + height), slice(left, left + width)
            picture[(*where, 2 * label)] = 250
            ids[where], objects[where] = label + 1, place + 1
        ids[31], objects[31] = 255, 255
        for folder, values in (("rgb", picture), ("label", ids), ("objects", objects)):
            path = data_path / part / folder / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(path)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with photographs, their table and an initial model."""
    folder = tmp_path_factory.mktemp("instances")
    draw_photographs(folder / "data", "train", 32, 0)
    draw_photographs(folder / "data", "val", 8, 1)
    (folder / "data" / "classes.txt").write_text("background\nred\nblue\n")
    for command in (
        "extract_datapoints_for_experiments.py --source masks --data_path data --mask_classes classes.txt "
        "--void_ids 255 --instance_folder {part}/objects",
        "model_initialization.py --task instances --image_size 32 --norm group",
    ):
        finish(start_in(folder, command), folder)
    return folder


def test_all_stages(prepared: Path, tmp_path: Path) -> None:
    work, data = begin(prepared, tmp_path / "run"), prepared / "data"
    commands = (
        f"train_centralized_task_model.py --task instances --data_path {data} --n_epochs 50 --batch_size 8 "
        "--checkpoint_every 50 --use_adam True --init_lr 1e-2 --augment flip --use_accelerator False",
        f"extract_embeddings.py --task instances --data_path {data} --n_clusters 3 --from_checkpoint True "
        "--use_accelerator False",
        f"{FED.format(data)} --type embedding_based --n_clusters 3",
        f"extract_embeddings.py --task instances --data_path {data} --n_clusters 3 --features target "
        "--use_accelerator False",
        "make_tables.py",
    )
    for command in commands:
        finish(start_in(work, command), work)
        if command.startswith("train"):
            said = (work / "output.txt").read_text().splitlines()
            table = {line.split()[0]: line.split() for line in said if line.startswith((" ", "model", "constant"))}
            names = table["loss"]
            model = dict(zip(names, map(float, table["model"][1:]), strict=True))
            trivial = dict(zip(names, map(float, table["constant"][2:]), strict=True))
            assert names == ["loss", "pq", "map_50", "map"] and trivial["pq"] == trivial["map"] == 0
            assert model["pq"] > 0.03 and model["map_50"] > 0.1 and model["loss"] < trivial["loss"] / 2
    assert list(work.glob("results/**/predictions.png"))
    [rows, _], _ = result(work)
    assert {"test_pq", "local_test_map_50_worst", "train_map_mean"} <= rows[-1].keys()


@pytest.mark.parametrize("decoder", ["unet", "deeplabv3plus"])
def test_decoders_of_maps(prepared: Path, tmp_path: Path, run_here: Callable[[str], None], decoder: str) -> None:
    (tmp_path / "results").mkdir()
    run_here(
        f"model_initialization.py --task instances --decoder {decoder} --image_size 32 --data_path {prepared / 'data'}"
    )
    run_here(
        f"{FED.format(prepared / 'data')} --type iid --method fedprox --use_adam True --init_model_dir initial_models"
    )
    [rows, _], _ = result(tmp_path)
    assert np.isfinite(rows[-1]["test_loss"]) and 0 <= rows[-1]["test_pq"] <= 1


@pytest.mark.parametrize("method", ["scaffold", "fedrep"])
def test_methods_train_it(prepared: Path, tmp_path: Path, run_here: Callable[[str], None], method: str) -> None:
    begin(prepared, tmp_path / "run")
    run_here(
        f"{FED.format(prepared / 'data')} --type class_based --method {method} --augment resized_crop --init_model_dir "
        f"{prepared / 'initial_models'} --result_path {tmp_path / 'run' / 'results'}"
    )
    [rows, trivial], _ = result(tmp_path / "run")
    prefix = "personal_" if method == "fedrep" else ""
    losses = [row[f"{prefix}train_loss_mean"] for row in rows]
    assert losses[-1] < losses[0]
    assert 0 <= rows[-1][f"{prefix}train_pq_worst"] <= rows[-1][f"{prefix}train_pq_mean"] <= 1
    assert np.isfinite(trivial["test"]["loss"]) and trivial["test"]["pq"] == 0


def test_interrupted_it_resumes_to_the_last_bit_and_two_processes_find_the_same(prepared: Path, tmp_path: Path) -> None:
    assert_resumes_and_spreads(
        f"{FED.format(prepared / 'data')} --type class_based --method scaffold --evaluate_every 2", prepared, tmp_path
    )
