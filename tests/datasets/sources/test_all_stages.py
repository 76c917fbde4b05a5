"""From files to the last table, for each kind of target that a source has: classes, values, masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.datasets.flows import flow_of, write_flo
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


def rgbd(data: Path) -> None:
    """Two scenes of two sequences in 7-Scenes' layout, with depth in millimetres."""
    for number in range(N):
        frame = data / ("chess", "fire")[number % 2] / f"seq-{number // 2 % 2:02}" / f"frame-{number:06}"
        save_image(frame.with_suffix(".color.png"), noise(number, 12, 16, 3))
        depth = noise(number, 12, 16).astype(np.uint16) * 10
        Image.fromarray(depth).save(frame.with_suffix(".depth.png"))


def cityscapes(data: Path) -> None:
    """Three cities in Cityscapes' layout."""
    for number in range(N):
        city = ("aachen", "bochum", "zurich")[number % 3]
        name = f"train/{city}/{city}_{number:06}_000019"
        save_image(data / "leftImg8bit" / f"{name}_leftImg8bit.png", noise(number, 12, 16, 3))
        save_image(data / "gtFine" / f"{name}_gtFine_labelIds.png", noise(number, 12, 16) % 4 * 8)
        save_image(data / "gtFine" / f"{name}_gtFine_color.png", noise(number, 12, 16, 3))
    (data / "classes.txt").write_text("0: void\n8: sidewalk\n24: person\n")


def videos(data: Path) -> None:
    """Four videos of each of two scenes, as Sintel's, whose last frames have no next one."""
    for number in range(N):
        sequence, frame = f"{('alley', 'market')[number % 2]}/{number // 2 % 4}", f"frame_{number // 8:04}"
        save_image(data / "clean" / sequence / f"{frame}.png", noise(number, 12, 16, 3))
        write_flo(data / "flow" / sequence / f"{frame}.flo", flow_of(number, 12, 16))


VIDEOS = (
    "maps --target motion --image_folder clean/{scene}/{sequence} --target_folder flow/{scene}/{sequence} "
    "--together sequence"
)
RGBD = (
    "maps --target depth --image_folder {scene}/{sequence} --image_suffix .color.png "
    "--target_folder {scene}/{sequence} --target_suffix .depth.png --unit 0.001 --invalid 0"
)
CITYSCAPES = (
    "masks --image_folder leftImg8bit/train/{city} --image_suffix _leftImg8bit.png --mask_folder gtFine/train/{city} "
    "--mask_suffix _gtFine_labelIds.png --mask_classes classes.txt --void_ids 0"
)
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
    kinds = ("iid", "class_based", "embedding_based", f"{groups}_based --partition natural")
    splits = run_stages(tmp_path, run_here, write, select, task, kinds)
    assert set(splits["type"]) == {"class", "embedding", groups}


@pytest.mark.parametrize(
    ("write", "select", "task", "groups"),
    [
        (rgbd, RGBD, "depth", "scene"),
        (cityscapes, CITYSCAPES, "segmentation", "city"),
        (videos, VIDEOS, "motion", "scene"),
    ],
    ids=["maps", "cityscapes", "videos"],
)
def test_all_stages_within_natural_groups(
    tmp_path: Path, run_here: Callable[[str], None], write: Callable[[Path], None], select: str, task: str, groups: str
) -> None:
    kinds = (f"iid --within {groups}", f"embedding_based --within {groups}")
    splits = run_stages(tmp_path, run_here, write, select, task, kinds)
    assert set(splits["type"]) == {"embedding"} and splits["Hellinger"].notna().all()
    [folder] = (tmp_path / "results/test_federated/fedavg" / task / "embedding_based").iterdir()
    assert folder.name.startswith(f"within_{groups}_")
    images = pd.read_csv(tmp_path / "data/filtered_file_paths.csv").set_index("rgb")
    partition = pd.read_csv(folder / "partition.csv")
    owners = images.loc[partition["image_id"], groups].groupby(partition["user_id"].to_numpy()).nunique()
    assert len(owners) == 3 and (owners == 1).all()


def run_stages(
    folder: Path,
    run_here: Callable[[str], None],
    write: Callable[[Path], None],
    select: str,
    task: str,
    kinds: Sequence[str],
) -> pd.DataFrame:
    """What each partition type costs: the last stage's table."""
    (folder / "data").mkdir()
    write(folder / "data")
    run_here(f"extract_datapoints_for_experiments.py --data_path data --source {select}")
    run_here(f"model_initialization.py --task {task} --encoder tiny --image_size 16 --norm group")
    run_here(f"train_centralized_task_model.py --task {task} --n_epochs 1 --init_lr 1e-3")
    run_here(f"extract_embeddings.py --task {task} --n_clusters 3")
    fed = f"test_fed.py --task {task} --n_clusters 3 --n_rounds 1 --sgd_per_epoch 1 --init_lr 1e-3"
    for kind in kinds:
        clients = 3 if "--within" in kind else 2
        rule = "" if "--partition" in kind else "--partition equal_size"
        run_here(f"{fed} --type {kind} --n_clients {clients} {rule}")
    run_here("make_tables.py")
    splits = pd.read_csv(folder / "results/tables/splits.csv")
    assert np.isfinite(splits[["loss", "IID", "over IID, %"]]).all(axis=None)
    return splits
