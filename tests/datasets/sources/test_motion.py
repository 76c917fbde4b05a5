"""Pairs of photographs with files of flow in the layouts of data sets, and RGB-D videos with poses; and bad pairs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.sources.time_stamps import by_numbers, next_frame
from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from tests.datasets.flows import flow_of, write_flo, write_kitti
from tests.datasets.sources.finding import find, noise, save_image, select
from utils.errors import UserError

FLOW = {"target": ["motion"], "fit": "stretch", "test_fraction": 0.4}
H, W = 12, 16


def batch_of(table: Table, size: int = 16):
    data = TaskData(table, get_task("motion"), size, torch.device("cpu"))
    return data, data.batch(torch.arange(len(table)))


def check_flows(table: Table, seeds: list[int]) -> None:
    """Stretched to 16 x 16 from 16 x 12: x stays, y is a third longer."""
    data, batch = batch_of(table)
    assert batch.images.shape == (len(table), 6, 16, 16) and data.readable.all()
    for target, valid, seed in zip(batch.target, batch.valid[:, 0], seeds, strict=True):
        x, y = flow_of(seed, H, W)[:, -1, -1]
        assert valid[8, 8] and not valid[0, 0]
        np.testing.assert_allclose(target[:, 8, 8], (x, y * 16 / 12), rtol=1e-5)


def test_middlebury(tmp_path: Path) -> None:
    for number, scene in enumerate(("RubberWhale", "Dimetrodon", "Venus")):
        for frame in (10, 11):
            save_image(tmp_path / "other-data" / scene / f"frame{frame}.png", noise(frame + number, H, W, 3))
        write_flo(tmp_path / "other-gt-flow" / scene / "flow10.flo", flow_of(number, H, W))
    told = {
        "image_folder": "other-data/{scene}", "image_prefix": "frame", "image_suffix": "10.png",
        "target_folder": ["other-gt-flow/{scene}"], "target_prefix": ["flow"], "target_suffix": ["10.flo"],
    }  # fmt: skip
    table = select("maps", tmp_path, **FLOW, **told)
    assert table.files["rgb_next"][0] == "other-data/Dimetrodon/frame11.png"
    check_flows(table, [1, 0, 2])


def test_sintel_leaves_out_the_last_frame_of_each_video(tmp_path: Path) -> None:
    for sequence, n in (("alley_1", 4), ("ambush_2", 3)):
        for number in range(1, n + 1):
            save_image(tmp_path / "clean" / sequence / f"frame_{number:04}.png", noise(number, H, W, 3))
            if number < n:
                write_flo(tmp_path / "flow" / sequence / f"frame_{number:04}.flo", flow_of(number, H, W))
    told = {"image_folder": "clean/{sequence}", "target_folder": ["flow/{sequence}"], "together": "sequence"}
    found = find("maps", tmp_path, **FLOW, **told)
    assert found.errors == [
        "clean/alley_1/frame_0005.png: there is no such second frame",
        "clean/ambush_2/frame_0004.png: there is no such second frame",
    ]
    table = select("maps", tmp_path, **FLOW | told | {"test_fraction": 0.6})
    check_flows(table, [1, 2, 3, 1, 2])
    assert len(set(table.groups["sequence"][table.train])) == len(set(table.groups["sequence"][table.test])) == 1


def test_what_sintel_masks_say_is_covered_or_invalid_counts_nowhere(tmp_path: Path) -> None:
    """Its masks are above 0 where a pixel does not count: the first covers a column, the second a row."""
    for number in range(1, 6):
        save_image(tmp_path / "clean" / "alley_1" / f"frame_{number:04}.png", noise(number, H, H, 3))
        write_flo(tmp_path / "flow" / "alley_1" / f"frame_{number:04}.flo", np.full((2, H, H), 0.25, np.float32))
        covered, invalid = np.zeros((2, H, H), np.uint8)
        covered[:, 3] = invalid[5] = 255
        save_image(tmp_path / "occlusions" / "alley_1" / f"frame_{number:04}.png", covered)
        save_image(tmp_path / "invalid" / "alley_1" / f"frame_{number:04}.png", invalid)
    (tmp_path / "invalid" / "alley_1" / "frame_0003.png").unlink()
    folders = {"image_folder": "clean/{sequence}", "target_folder": ["flow/{sequence}"]}
    masks = {"valid_folder": ["occlusions/{sequence}", "invalid/{sequence}"], "valid_from": 0.0, "valid_to": 0.0}
    table = select("maps", tmp_path, **FLOW, **folders, **masks)
    assert table.info.domains == ("rgb", "rgb_next", "motion", "motion_valid", "motion_valid_2")
    assert "invalid/alley_1/frame_0003.png: there is no such mask" in (tmp_path / "missing_files.txt").read_text()
    _, batch = batch_of(table, H)
    counts = torch.ones(H, H, dtype=torch.bool)
    counts[:, 3] = counts[5] = False
    assert len(table) == 3 and all(torch.equal(valid, counts) for valid in batch.valid[:, 0] > 0)
    save_image(tmp_path / "invalid" / "alley_1" / "frame_0001.png", np.zeros((H, H), np.uint8))
    _, batch = batch_of(read_table(tmp_path), H)
    assert batch.valid[0, 0].sum() == counts.sum() + H - 1  # packed again, as one of its files has changed


def test_flying_chairs(tmp_path: Path) -> None:
    for number in range(1, 5):
        for frame in (1, 2):
            save_image(tmp_path / "data" / f"{number:05}_img{frame}.ppm", noise(number, H, W, 3))
        write_flo(tmp_path / "data" / f"{number:05}_flow.flo", flow_of(number, H, W))
    told = {"image_folder": "data", "image_suffix": "_img1.ppm", "target_folder": ["data"]}
    check_flows(select("maps", tmp_path, **FLOW, **told, target_suffix=["_flow.flo"]), [1, 2, 3, 4])


def test_kitti(tmp_path: Path) -> None:
    for number in range(4):
        for frame in (10, 11):
            save_image(tmp_path / "image_2" / f"{number:06}_{frame}.png", noise(number, H, W, 3))
        write_kitti(tmp_path / "flow_occ" / f"{number:06}_10.png", flow_of(number, H, W))
    told = {"image_folder": "image_2", "image_suffix": "_10.png", "target_folder": ["flow_occ"]}
    check_flows(select("maps", tmp_path, **FLOW, **told, target_suffix=["_10.png"]), [0, 1, 2, 3])


def test_arrays(tmp_path: Path) -> None:
    for number in range(5):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, H, W, 3))
        flow = flow_of(number, H, W)
        values = np.concatenate([np.nan_to_num(flow), np.isfinite(flow[:1])]) if number % 2 else flow
        (tmp_path / "flow").mkdir(exist_ok=True)
        np.save(tmp_path / "flow" / f"{number}.npy", values.transpose(1, 2, 0))
    check_flows(select("maps", tmp_path, **FLOW, target_folder=["flow"]), [0, 1, 2, 3])


def test_bad_pairs_are_named(tmp_path: Path) -> None:
    for number in (*range(8, 21), 22):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, H, W, 3))
        write_flo(tmp_path / "flow" / f"{number}.flo", flow_of(number, H, W))
    save_image(tmp_path / "rgb" / "13.png", noise(1, 2 * H, 2 * W, 3))
    wrong = (tmp_path / "flow" / "14.flo").read_bytes()
    (tmp_path / "flow" / "14.flo").write_bytes(b"PIEX" + wrong[4:])
    (tmp_path / "flow" / "15.flo").write_bytes(wrong[:-8])
    (tmp_path / "flow" / "16.flo").unlink()
    write_flo(tmp_path / "flow" / "11.flo", flow_of(1, H, 2 * W))
    (tmp_path / "rgb" / "18.png").write_bytes(b"nothing")
    table = select("maps", tmp_path, **FLOW, target_folder=["flow"])
    assert [Path(cell).stem for cell in table.image_ids] == ["10", "19", "8", "9"]
    faults = (tmp_path / "missing_files.txt").read_text().splitlines()
    for part in (
        "rgb/13.png: 32 x 24 pixels, and the frame before it has 16 x 12",
        "rgb/14.png: 16 x 12 pixels, and the frame before it has 32 x 24",
        "flow/14.flo: it does not begin with the tag 202021.25 of .flo files",
        "flow/15.flo: 382 numbers where 16 x 12 pixels have 384",
        "flow/16.png: there is no such map; see --target_folder, --target_prefix and --target_suffix",
        "rgb/18.png: not a readable image",
        "rgb/21.png: there is no such second frame",
        "rgb/23.png: there is no such second frame",
        "flow/11.flo: 32 x 12 pixels, another shape than its photograph's 16 x 12",
    ):
        assert any(fault.startswith(part) for fault in faults), (part, faults)


def test_no_pair_is_one_line(tmp_path: Path) -> None:
    save_image(tmp_path / "rgb" / "a.png", noise(1, H, W, 3))
    with pytest.raises(UserError, match=r"none of 1 photographs has its maps.*rgb/a.png: there is no such second"):
        find("maps", tmp_path, **FLOW, target_folder=["flow"])


def test_pictures_of_flow_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, H, W, 3))
        save_image(tmp_path / "flow" / f"{number}.png", noise(number, H, W, 3))
    with pytest.raises(UserError, match="8 bits where motion has 16 or more: a picture of it"):
        find("maps", tmp_path, **FLOW, target_folder=["flow"])


def test_the_next_frame_has_the_next_number() -> None:
    names = {"a/000099.png": "a/000100.png", "9.jpg": "10.jpg", "a1_img1.ppm": "a1_img2.ppm", "a/b.png": "a/b.png"}
    assert {name: next_frame(name) for name in names} == names
    assert sorted(["b10", "b9", "a"], key=by_numbers) == ["a", "b9", "b10"]


# Videos of a wall 2 m ahead, whose camera moves to the right by 5 cm a frame: at 32 pixels a metre, 0.8 a frame.

CAMERA = {"intrinsics": [32.0, 32.0, 7.5, 5.5], "unit": [0.001], "invalid": [0.0]}


def save_frame(image: Path, depth: Path, seed: int) -> None:
    save_image(image, noise(seed, H, W, 3))
    values = np.full((H, W), 2000, np.uint16)
    values[0] = 0
    depth.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(depth)


def pose_at(x: float) -> np.ndarray:
    """Of a camera that looks along the world's x, and moves to its own right."""
    pose = np.eye(4)
    pose[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
    pose[:3, 3] = (1, -x, 2)
    return pose


def check_video(table: Table, step: int) -> None:
    _, batch = batch_of(table)
    known, stays = batch.valid[:, 0], torch.arange(16) - 0.8 * step > -0.5
    assert not known[:, 0].any() and (known[:, 8] == stays).all()
    np.testing.assert_allclose(batch.target[:, :, 8, 8], [[-0.8 * step, 0.0]] * len(table), atol=1e-4)


@pytest.fixture
def seven_scenes(tmp_path: Path) -> Path:
    for sequence in ("seq-01", "seq-02", "seq-03"):
        for number in range(6):
            frame = tmp_path / "chess" / sequence / f"frame-{number:06}"
            save_frame(frame.with_suffix(".color.png"), frame.with_suffix(".depth.png"), number)
            np.savetxt(frame.with_suffix(".pose.txt"), pose_at(0.05 * number))
    return tmp_path


SEVEN_SCENES = CAMERA | {
    "image_folder": "{scene}/{sequence}", "image_suffix": ".color.png", "target_folder": ["{scene}/{sequence}"],
    "target_suffix": [".depth.png"], "pose_folder": "{scene}/{sequence}", "pose_suffix": ".pose.txt",
    "together": "sequence", "fit": "stretch", "test_fraction": 0.5,
}  # fmt: skip


def test_seven_scenes(seven_scenes: Path) -> None:
    table = select("motion", seven_scenes, **SEVEN_SCENES, frame_step=2)
    assert len(table) == 3 * 4 and table.files["rgb_next"][0] == "chess/seq-01/frame-000002.color.png"
    assert set(table.groups["sequence"][table.train]).isdisjoint(table.groups["sequence"][table.test])
    check_video(table, 2)
    assert table.serves(get_task("depth")) and table.serves(get_task("motion"))


def test_frames_without_depth_or_pose_are_named(seven_scenes: Path) -> None:
    folder = seven_scenes / "chess" / "seq-01"
    (folder / "frame-000000.pose.txt").write_text("-inf " * 16)
    (folder / "frame-000002.pose.txt").unlink()
    (folder / "frame-000004.depth.png").unlink()
    np.savetxt(seven_scenes / "chess" / "seq-02" / "frame-000000.pose.txt", 2 * np.eye(4))
    found = find("motion", seven_scenes, **SEVEN_SCENES)
    assert len(found.rows) == 0 + 4 + 5
    where = "chess/seq-01/frame-00000"
    assert found.errors[0].startswith(f"{where}4.depth.png: there is no such map")
    for fault, part in zip(
        sorted(found.errors[1:]),
        (
            f"{where}0.color.png: its pose {where}0.pose.txt is not",
            f"{where}1.color.png: its pose cannot be read",
            f"{where}2.color.png: its pose cannot be read",
            f"{where}3.color.png: its second frame {where}4.color.png has",
            "chess/seq-02/frame-000000.color.png: its pose chess/seq-02/frame-000000.pose.txt has no rotation",
        ),
        strict=True,
    ):
        assert fault.startswith(part), fault


def test_the_same_selection_again_leaves_the_files_of_pairs(seven_scenes: Path) -> None:
    """So what is packed of them stays packed, unless a depth map is newer."""
    select("motion", seven_scenes, **SEVEN_SCENES)
    files = sorted((seven_scenes / "motion").rglob("*.json"))
    for file in files:
        os.utime(file, (2e9, 2e9))
    assert len(files) == 15
    new = seven_scenes / "chess" / "seq-02" / "frame-000003.depth.png"
    os.utime(new, (3e9, 3e9))
    select("motion", seven_scenes, **SEVEN_SCENES)
    written = [file for file in files if file.stat().st_mtime != 2e9]
    assert [f"{file.parent.name} {file.name}" for file in written] == [
        "seq-02 frame-000002.color.json",
        "seq-02 frame-000003.color.json",
    ]
    np.savetxt(seven_scenes / "chess" / "seq-01" / "frame-000000.pose.txt", pose_at(0.01))
    select("motion", seven_scenes, **SEVEN_SCENES)
    assert files[0].stat().st_mtime != 2e9 and files[1].stat().st_mtime == 2e9


def test_scannet_counts_its_frames_as_numbers(tmp_path: Path) -> None:
    for number in range(8, 13):
        save_frame(tmp_path / "s0" / "color" / f"{number}.jpg", tmp_path / "s0" / "depth" / f"{number}.png", number)
        (tmp_path / "s0" / "pose").mkdir(exist_ok=True)
        np.savetxt(tmp_path / "s0" / "pose" / f"{number}.txt", pose_at(0.05 * number))
    told = {"image_folder": "{scene}/color", "target_folder": ["{scene}/depth"], "pose_folder": "{scene}/pose"}
    table = select("motion", tmp_path, **CAMERA | {"fit": "stretch", "test_fraction": 0.5}, **told)
    files = zip(table.files["rgb"], table.files["rgb_next"], strict=True)
    assert {(Path(a).stem, Path(b).stem) for a, b in files} == {("8", "9"), ("9", "10"), ("10", "11"), ("11", "12")}
    check_video(table, 1)


def test_tum_pairs_photographs_depth_and_poses_by_time(tmp_path: Path) -> None:
    lines = ["# timestamp tx ty tz qx qy qz qw"]
    for number in range(6):
        time = 1305031102.0 + 0.1 * number
        save_frame(
            tmp_path / "desk" / "rgb" / f"{time:.6f}.png",
            tmp_path / "desk" / "depth" / f"{time + 0.012:.6f}.png",
            number,
        )
        x, y, z = pose_at(0.05 * number)[:3, 3]
        lines.append(f"{time + 0.004:.4f} {x} {y} {z} -0.5 0.5 -0.5 0.5")
        lines.append(f"{time + 0.05:.4f} 9 9 9 0 0 0 1")
    (tmp_path / "desk" / "groundtruth.txt").write_text("\n".join(lines))
    told = {"image_folder": "{sequence}/rgb", "target_folder": ["{sequence}/depth"], "nearest_within": 0.02}
    table = select(
        "motion",
        tmp_path,
        **CAMERA | {"fit": "stretch", "test_fraction": 0.5},
        **told,
        trajectory="{sequence}/groundtruth.txt",
        frame_step=3,
    )
    assert len(table) == 3
    check_video(table, 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pose_folder": None}, "needs --pose_folder or --trajectory"),
        ({"intrinsics": []}, "needs --target_folder, of depth, and --intrinsics fx fy cx cy"),
        ({"frame_step": 6}, "no pair of photographs with depth and poses"),
    ],
)
def test_what_videos_need(seven_scenes: Path, change: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        find("motion", seven_scenes, **SEVEN_SCENES | change)
