"""Detection through the stages: methods train the detector as any task's model, resume it, and spread it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import start_in
from tests.test_resuming import assert_resumes_and_spreads, begin, finish, result

FED = (
    "test_fed.py --task detection --type class_based --partition equal_size --n_clients 2 --n_rounds 2 "
    "--sgd_per_epoch 2 --batch_size 4 --init_lr 0.01 --plot_distribution False --use_accelerator False --data_path {}"
)


def draw_photographs(data_path: Path, part: str, n: int, seed: int) -> None:
    """Bright rectangles of two classes, and a bad box in the first image; the last has none."""
    rng = np.random.default_rng(seed)
    images, annotations = [], []
    for number in range(n):
        picture = rng.integers(0, 40, (24, 32, 3), np.uint8)
        for _ in range(0 if number == n - 1 else rng.integers(1, 4)):
            (width, height), label = rng.integers(6, 13, 2), int(rng.integers(2))
            x, y = int(rng.integers(0, 32 - width)), int(rng.integers(0, 24 - height))
            picture[y : y + height, x : x + width, 2 * label] = 250
            annotations.append({"image_id": number, "category_id": label + 1, "bbox": [x, y, int(width), int(height)]})
        path = data_path / "images" / part / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
        images.append({"id": number, "file_name": path.name, "width": 32, "height": 24})
    annotations.append({"image_id": 0, "category_id": 1, "bbox": [30, 3, 20, 4]})
    content = {
        "images": images,
        "annotations": [{"id": number, **each} for number, each in enumerate(annotations)],
        "categories": [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}],
    }
    (data_path / "annotations").mkdir(exist_ok=True)
    (data_path / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with photographs, their table and an initial detector."""
    folder = tmp_path_factory.mktemp("detection")
    draw_photographs(folder / "data", "train", 20, 0)
    draw_photographs(folder / "data", "val", 8, 1)
    for command in (
        "extract_datapoints_for_experiments.py --source coco --data_path data --fit pad",
        "model_initialization.py --task detection --image_size 32 --norm group",
    ):
        finish(start_in(folder, command), folder)
    assert not (folder / "data" / "missing_files.txt").exists()  # the box that reaches out of its image is cut
    return folder


@pytest.mark.parametrize("method", ["scaffold", "fedrep", "fedamp"])
def test_methods_train_the_detector(
    prepared: Path, tmp_path: Path, run_here: Callable[[str], None], method: str
) -> None:
    begin(prepared, tmp_path / "run")
    run_here(
        f"{FED.format(prepared / 'data')} --method {method} --init_model_dir {prepared / 'initial_models'} "
        f"--result_path {tmp_path / 'run' / 'results'}"
    )
    [rows, trivial], weights = result(tmp_path / "run")
    prefix = "personal_" if method != "scaffold" else ""
    losses = [row[f"{prefix}train_loss_mean"] for row in rows]
    assert losses[-1] < losses[0]
    assert 0 <= rows[-1][f"{prefix}train_map_50_worst"] <= rows[-1][f"{prefix}train_map_50_mean"] <= 1
    assert np.isfinite(trivial["test"]["loss"]) and trivial["test"]["map"] < 0.5
    if method == "fedrep":  # the head, towers and all, is each client's own
        assert {name.rpartition("conv.")[0] for name in weights["0"] if "conv." in name} == {
            f"own.decoder.head.{tower}." for tower in ("classes", "boxes")
        }


def test_interrupted_it_resumes_to_the_last_bit_and_two_processes_find_the_same(prepared: Path, tmp_path: Path) -> None:
    command = f"{FED.format(prepared / 'data')} --method scaffold --evaluate_every 2"
    assert_resumes_and_spreads(command, prepared, tmp_path)
