"""From files to the last table, for each kind of target that a source has: classes, values, masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.datasets.sources.finding import noise, save_image

N = 40


def folders(data: Path) -> None:
    """Two domains of two classes."""
    for number in range(N):
        save_image(
            data / ("photo", "sketch")[number % 2] / ("cat", "dog")[number // 2 % 2] / f"{number}.png",
            noise(number, 8, 12, 3),
        )


def table(data: Path) -> None:
    """Photographs with depth, of three sites."""
    rows = ["image,class,site,depth_euclidean"]
    for number in range(N):
        save_image(data / f"{number}.jpg", noise(number, 16, 12, 3))
        depth = noise(number, 16, 12).astype(np.uint16) * 16 + 16
        Image.fromarray(depth).save(data / f"depth{number}.png")
        rows.append(f"{number}.jpg,{number % 2},{number % 3},depth{number}.png")
    (data / "images.csv").write_text("\n".join(rows))


def masks(data: Path) -> None:
    """Photographs of two sequences with a box each, and masks of three classes and a void id."""
    for number in range(N):
        part, name = "test" if number % 4 == 0 else "train", f"s{number % 2}_{number}"
        save_image(data / "images" / part / f"{name}.png", noise(number, 12, 16, 3))
        save_image(data / "masks" / part / f"{name}.png", noise(number, 12, 16) % 4)
        lines = data / "labels" / part / f"{name}.txt"
        lines.parent.mkdir(parents=True, exist_ok=True)
        lines.write_text(f"{number % 3} 0.5 0.5 0.4 0.4\n")
    (data / "classes.txt").write_text("sky\nroad\ncar\n")


MASKS = "coco --categories classes.txt --mask_folder masks/{part} --void_ids 3 --group_pattern (?P<sequence>[^_]+)_"


@pytest.mark.parametrize(
    ("write", "select", "task", "groups"),
    [
        (folders, "folder", "classification", "domain"),
        (table, "csv --fit pad", "depth_euclidean", "site"),
        (masks, MASKS, "segmentation", "sequence"),
    ],
    ids=["folder", "csv", "coco"],
)
def test_all_stages(
    tmp_path: Path, run_here: Callable[[str], None], write: Callable[[Path], None], select: str, task: str, groups: str
) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    run_here(f"extract_datapoints_for_experiments.py --data_path data --source {select}")
    run_here(f"model_initialization.py --task {task} --encoder tiny --image_size 16 --norm group")
    run_here(f"train_centralized_task_model.py --task {task} --n_epochs 1 --init_lr 1e-3")
    run_here(f"extract_embeddings.py --task {task} --n_clusters 3")
    fed = f"test_fed.py --task {task} --n_clusters 3 --n_rounds 1 --sgd_per_epoch 1 --init_lr 1e-3 --n_clients 2"
    for split in ("iid", "class_based", "embedding_based"):
        run_here(f"{fed} --type {split} --partition equal_size")
    run_here(f"{fed} --type {groups}_based --partition natural")
    run_here("make_tables.py")
    splits = pd.read_csv(tmp_path / "results/tables/splits.csv")
    assert set(splits["split"]) == {"class", "embedding", groups}
    assert np.isfinite(splits[["loss", "IID", "over IID, %"]]).all(axis=None)
