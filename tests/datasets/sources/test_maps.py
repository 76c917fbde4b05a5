"""Photographs with maps of one's own, in the layouts of RGB-D data sets, and what is wrong with some of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.cameras import Camera
from datasets.packed import load_packed
from datasets.task_data import TaskData
from datasets.tasks import MAPS, NOTHING, Scale, get_task
from tests.datasets.sources.finding import find, noise, save_image, select
from tests.datasets.tables import select_views
from utils.errors import UserError

CPU = torch.device("cpu")
DEPTH = {"target": ["depth"], "target_folder": ["depth"], "unit": [0.001], "invalid": [0.0]}
NYU = Path(__file__).parents[4] / "shared" / "data" / "nyu_taskonomy"


def save_depth(path: Path, seed: int, height: int = 12, width: int = 16) -> None:
    """Millimetres between half a metre and three, with a corner where nothing was measured."""
    values = np.random.default_rng(seed).integers(500, 3000, (height, width)).astype(np.uint16)
    values[: height // 4, : width // 4] = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


@pytest.fixture
def scannet(tmp_path: Path) -> Path:
    """Scenes with a folder of photographs and one of depth, which is smaller and not quite of the same shape."""
    for scene, n in (("scene0000_00", 4), ("scene0000_01", 3), ("scene0001_00", 3)):
        for number in range(n):
            save_image(tmp_path / scene / "color" / f"{number}.jpg", noise(number, 24, 32, 3))
            save_depth(tmp_path / scene / "depth" / f"{number}.png", number, 119, 160)
    return tmp_path


@pytest.fixture
def seven_scenes(tmp_path: Path) -> Path:
    """Sequences with photographs and depth side by side, and poses."""
    for scene, sequence in (("chess", "seq-01"), ("chess", "seq-02"), ("fire", "seq-01"), ("fire", "seq-02")):
        for number in range(5):
            name = tmp_path / scene / sequence / f"frame-{number:06}"
            save_image(name.with_suffix(".color.png"), noise(number, 12, 16, 3))
            save_depth(name.with_suffix(".depth.png"), number)
            name.with_suffix(".pose.txt").write_text("1 0 0 0")
    return tmp_path


def test_scannet(scannet: Path) -> None:
    table = select("maps", scannet, image_folder="{scene}/color", **DEPTH | {"target_folder": ["{scene}/depth"]})
    assert table.files["depth"][4] == "scene0000_01/depth/0.png" and len(table) == 10
    assert table.groups["scene"].tolist() == ["scene0000_00"] * 4 + ["scene0000_01"] * 3 + ["scene0001_00"] * 3
    assert table.info.scales == {"depth": Scale(0.001, (0.0,))} and table.class_names == ()
    batch = TaskData(table, get_task("depth", "metric"), 16, CPU).batch(torch.arange(10))
    assert batch.target[batch.valid].min() >= 0.5 and batch.target.max() <= 3


def test_seven_scenes(seven_scenes: Path) -> None:
    folder = "{scene}/{sequence}"
    of_names = {"image_suffix": ".color.png", "target_suffix": [".depth.png"], "together": "sequence"}
    table = select("maps", seven_scenes, image_folder=folder, **DEPTH | {"target_folder": [folder]}, **of_names)
    assert table.files["depth"][0] == "chess/seq-01/frame-000000.depth.png" and len(table) == 20
    assert set(table.groups["sequence"]) == {"chess/seq-01", "chess/seq-02", "fire/seq-01", "fire/seq-02"}
    assert set(table.groups["scene"]) == {"chess", "fire"}
    # A quarter is held out: one whole sequence.
    assert len(table.test) == 5 and len(set(table.groups["sequence"][table.test])) == 1
    with pytest.raises(UserError, match=r"color\.png would be its own depth; see --image_suffix and --target_suffix"):
        select("maps", seven_scenes, image_folder=folder, **DEPTH | {"target_folder": [folder]})
    with pytest.raises(UserError, match="no column 'video', whose images stay together"):
        find(
            "maps",
            seven_scenes,
            image_folder=folder,
            **DEPTH | {"target_folder": [folder]},
            **of_names | {"together": "video"},
        )


def test_parts_and_several_targets(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("val", 2)):
        for number in range(n):
            save_image(tmp_path / part / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
            save_depth(tmp_path / part / "depth" / f"{number}.png", number)
            normals = np.full((12, 16, 3), (128, 128, 255), np.uint8)
            normals[0] = 0
            save_image(tmp_path / part / "normals" / f"{number}.png", normals)
    both = {"target": ["depth", "normals"], "target_folder": ["{part}/depth", "{part}/normals"], "unit": [0.001, 1.0]}
    table = select("maps", tmp_path, image_folder="{part}/rgb", invalid=[0.0], **both)
    assert (len(table.train), len(table.test)) == (3, 2) and table.info.domains == ("rgb", "depth", "normals")
    assert table.info.scales == {"depth": Scale(0.001, (0.0,)), "normals": Scale(1.0, (0.0,))}
    batch = TaskData(table, get_task("normals"), 12, CPU).batch(torch.arange(2))
    assert not batch.valid[:, 0, 0].any() and batch.valid[:, 0, 1:].all()
    torch.testing.assert_close(batch.target[:, 2, 1:], torch.ones(2, 11, 12), atol=1e-4, rtol=0)
    with pytest.raises(UserError, match="--unit: 3 values for 2 targets; give one, or one for each"):
        find("maps", tmp_path, image_folder="{part}/rgb", **both | {"unit": [1.0, 1.0, 1.0]})
    with pytest.raises(UserError, match="--target depth depth names one twice"):
        find("maps", tmp_path, image_folder="{part}/rgb", **both | {"target": ["depth", "depth"]})


def test_one_target_may_have_several_values_for_what_was_not_measured(tmp_path: Path) -> None:
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
        values = np.full((12, 16), 2000, np.uint16)
        values[:2], values[-3:] = 0, 65535
        save_image(tmp_path / "depth" / f"{number}.png", values)
    table = select("maps", tmp_path, **DEPTH | {"invalid": [0.0, 65535.0]})
    assert table.info.scales == {"depth": Scale(0.001, (0.0, 65535.0))}
    batch = TaskData(table, get_task("depth", "metric"), 12, CPU).batch(torch.arange(2))
    assert batch.valid[:, 0, :, 0].tolist() == [[False] * 2 + [True] * 7 + [False] * 3] * 2


def test_what_is_wrong_with_a_map_is_named(tmp_path: Path) -> None:
    """Ten photographs, of which each but the first two has another fault."""
    for number in range(10):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
        save_depth(tmp_path / "depth" / f"{number}.png", number)
    folder = tmp_path / "depth"
    (folder / "2.png").unlink()
    (folder / "3.png").write_bytes(b"nothing")
    save_depth(folder / "4.png", 4, 12, 12)
    save_image(folder / "5.png", noise(5, 12, 16))
    Image.fromarray(np.zeros((12, 16), np.uint16)).save(folder / "6.png")
    (folder / "7.png").unlink()
    np.save(folder / "7.npy", np.full((12, 16), np.nan))
    Image.fromarray(np.full((12, 16), 65000, np.uint16)).save(folder / "8.png")
    save_image(folder / "9.png", noise(9, 12, 16, 3))
    table = select("maps", tmp_path, image_folder="rgb", test_fraction=0.5, **DEPTH)
    assert table.image_ids == ("rgb/0.png", "rgb/1.png")
    lines = (tmp_path / "missing_files.txt").read_text().splitlines()
    expected = (
        "depth/2.png: there is no such map",
        "depth/3.png: not a readable image",
        "depth/5.png: 8 bits where depth has 16 or more",
        "depth/6.png: no pixel counts: 0 of 192 are not finite, the others 0",
        "depth/7.npy: no pixel counts: 192 of 192 are not finite",
        "depth/8.png: its median 65 is above 20: depth in another unit? see --unit, --invalid",
        "depth/9.png: a colour picture where depth has one channel",
        "depth/4.png: 12 x 12 pixels, another shape than its photograph's 16 x 12",
    )
    assert len(lines) == len(expected) and all(map(str.startswith, lines, expected))


def test_what_does_not_count_by_its_mask(tmp_path: Path) -> None:
    """Masks of half the size, one of which is of another shape, one of which is missing and one leaves nothing."""
    for number in range(6):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 8, 16, 3))
        Image.fromarray(np.full((8, 16), 2000, np.uint16)).save(save_image(tmp_path / "depth" / f"{number}.png"))
        mask = np.full((4, 8), 2, np.uint8)
        mask[1, 3] = 1
        save_image(tmp_path / "ok" / f"{number}.png", mask)
    save_image(tmp_path / "ok" / "3.png", np.full((8, 8), 2, np.uint8))
    (tmp_path / "ok" / "4.png").unlink()
    save_image(tmp_path / "ok" / "5.png", np.ones((8, 16), np.uint8))
    masks = DEPTH | {"valid_folder": ["ok"], "valid_from": 2.0}
    table = select("maps", tmp_path, fit="stretch", test_fraction=0.4, **masks)
    assert table.info.domains == ("rgb", "depth", "depth_valid") and table.info.scales["depth"].valid_from == 2
    assert (tmp_path / "missing_files.txt").read_text().splitlines() == [
        "depth/3.png: its mask ok/3.png has 1 channels of 8 x 8 pixels, and it 16 x 8",
        "ok/4.png: there is no such mask of what counts; see --valid_folder and --valid_suffix",
        "depth/5.png: no pixel counts",
    ]
    packed = load_packed(table, MAPS["depth"], 16)[0]
    missing = np.zeros((16, 16), bool)
    missing[4:8, 6:8] = True  # two rows become four
    assert all(np.array_equal(each[0] == NOTHING, missing) for each in packed) and packed.max() == np.float32(2)
    save_image(tmp_path / "ok" / "0.png", np.full((4, 8), 3, np.uint8))  # and it is packed again
    assert (load_packed(table, MAPS["depth"], 16)[0][0] == np.float32(2)).all()


def test_numbers_of_files_pair_them(tmp_path: Path) -> None:
    for stamp in ("1.00", "1.10", "1.20", "1.30"):
        save_image(tmp_path / "rgb" / f"{stamp}.png", noise(0, 12, 16, 3))
    for stamp in ("1.004", "1.09", "1.33", "1.211"):
        save_depth(tmp_path / "depth" / f"{stamp}.png", 0)
    table = select("maps", tmp_path, nearest_within=0.02, test_fraction=0.4, **DEPTH)
    assert table.files["depth"] == ("depth/1.004.png", "depth/1.09.png", "depth/1.211.png")
    assert (tmp_path / "missing_files.txt").read_text() == (
        "rgb/1.30.png: no depth whose number is near enough; see --nearest_within\n"
    )
    save_depth(tmp_path / "depth" / "average.png", 0)
    with pytest.raises(UserError, match=r"depth/average\.png: .* 'average' is none; see --image_prefix and"):
        find("maps", tmp_path, nearest_within=0.02, **DEPTH)


def test_a_camera_is_of_depth_of_one_size(tmp_path: Path) -> None:
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(0, 12, 16, 3))
        save_depth(tmp_path / "depth" / f"{number}.png", 0, *((12, 16) if number else (24, 32)))
    along = DEPTH | {"distance": "ray", "intrinsics": [20.0, 20.0, 8.0, 6.0]}
    with pytest.raises(UserError, match="--intrinsics are those of maps of one size, and these have 2"):
        find("maps", tmp_path, **along)
    with pytest.raises(UserError, match="--distance ray is of --target depth"):
        find("maps", tmp_path, **along | {"target": ["regression"]})
    with pytest.raises(UserError, match="--distance disparity needs --intrinsics"):
        find("maps", tmp_path, **DEPTH, distance="disparity")
    (tmp_path / "depth" / "0.png").unlink()
    table = select("maps", tmp_path, test_fraction=0.4, **along)
    assert table.info.scales["depth"].camera == Camera("ray", (20.0, 20.0, 8.0, 6.0))
    in_z = select("maps", tmp_path, test_fraction=0.4, **DEPTH)
    assert in_z.fingerprint != table.fingerprint
    first, second = (load_packed(each, MAPS["depth"], 12)[0].copy() for each in (table, in_z))
    assert (first <= second).all() and (first[second > 0] < second[second > 0]).mean() > 0.9


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["scene", "rgb", "depth", "class"])
def test_a_group_of_names_called_as_another_column_is_refused_before_maps_are_read(
    scannet: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("datasets.maps.read_map", lambda *_: pytest.fail("a map is read"))
    folders = DEPTH | {"image_folder": "{scene}/color", "target_folder": ["{scene}/depth"]}
    with pytest.raises(UserError, match=rf"--group_pattern: \(\?P<{name}>…\) would be a natural group called like"):
        find("maps", scannet, **folders, group_pattern=f"(?P<{name}>.)")


def test_nothing_that_fits_is_one_line(scannet: Path) -> None:
    folders = {"image_folder": "{scene}/color", **DEPTH | {"target_folder": ["{scene}/depth"]}}
    with pytest.raises(UserError, match=r"none of 10 .*its median \d+ is above 20: depth in another unit\? see --unit"):
        find("maps", scannet, **folders | {"unit": [1.0]})
    with pytest.raises(UserError, match=r"6% of it is 0, at the camera itself: .* see --unit, --invalid"):
        find("maps", scannet, **folders | {"invalid": []}, max_median_depth=30.0)
    with pytest.raises(UserError, match=r"none of 10 photographs.*scene0000_00/d/0\.png: there is no such map"):
        find("maps", scannet, **folders | {"target_folder": ["{scene}/d"]})
    with pytest.raises(UserError, match=r"no photograph in .*colour; see --image_folder"):
        find("maps", scannet, **folders | {"image_folder": "{scene}/colour"})
    with pytest.raises(UserError, match=r"--source maps needs --target, one of depth, .*, regression, motion, and"):
        find("maps", scannet, image_folder="{scene}/color")


def test_targets_are_those_of_the_taskonomy_source(tmp_path: Path) -> None:
    """The same files, read as Taskonomy's and as anybody's: bit for bit at their own size, else within its rounding."""
    if not NYU.is_dir():
        pytest.skip("the photographs of nyu_taskonomy are not here")
    cells = sorted((NYU / "rgb/taskonomy/nyu_a").iterdir())[:12]
    (tmp_path / "class_scene").symlink_to(NYU / "class_scene")
    for rgb in cells:
        for domain in ("rgb", "depth_euclidean"):
            cell = f"{domain}/taskonomy/nyu_a/{rgb.name.replace('_rgb.', f'_{domain}.')}"
            (tmp_path / cell).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / cell).symlink_to(NYU / cell)
    theirs = select_views(tmp_path, ["nyu_a"], ["depth_euclidean"])
    ours = select(
        "maps",
        tmp_path,
        image_folder="rgb/taskonomy/{building}",
        image_suffix="_domain_rgb.png",
        target=["depth"],
        target_folder=["depth_euclidean/taskonomy/{building}"],
        target_suffix=["_domain_depth_euclidean.png"],
        unit=[1 / 512],
        invalid=[65535.0],
    )
    assert 4 < len(theirs) <= len(ours) == 12 and ours.groups["building"].tolist() == ["nyu_a"] * 12
    at = torch.tensor([ours.image_ids.index(name) for name in theirs.image_ids])
    for size in (112, 32):
        for variant in ("scaled", "metric", "log"):
            first = TaskData(theirs, get_task("depth_euclidean", variant), size, CPU).batch(torch.arange(len(at)))
            second = TaskData(ours, get_task("depth", variant), size, CPU).batch(at)
            assert torch.equal(first.images, second.images) and torch.equal(first.valid, second.valid)
            tolerance = 0.0 if size == 112 else 0.5 / 512 * 1.01 * (4 if variant == "log" else 1)
            torch.testing.assert_close(first.target, second.target, rtol=0, atol=tolerance)


def test_a_camera_of_another_size_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
        save_depth(tmp_path / "depth" / f"{number}.png", number)
    for cx, says in ((8.0, False), (16.0, False), (80.0, True)):
        find("maps", tmp_path, **DEPTH | {"distance": "ray", "intrinsics": [20.0, 20.0, cx, 6.0]})
        line = f"cx {cx:g} and cy 6 lie outside of maps of 16 x 12 pixels: are they those of a picture of another size?"
        assert (line in capsys.readouterr().out) == says


def test_maps_without_a_photograph_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        save_depth(tmp_path / "depth" / f"{number}.png", number)
        if number:
            save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
    assert len(find("maps", tmp_path, **DEPTH).rows) == 4
    assert "left out 1 file of depth without a photograph: depth/0.png\n" in capsys.readouterr().out


def test_edges_may_have_one_bit(tmp_path: Path) -> None:
    edge = noise(0, 12, 16) > 128
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 12, 16, 3))
        save_image(tmp_path / "edges" / f"{number}.png", edge)
    table = select("maps", tmp_path, fit="stretch", target=["edges"], target_folder=["edges"])
    packed, _ = load_packed(table, MAPS["edges"], 4)
    np.testing.assert_allclose(packed[0, 0].mean(), edge.mean(), atol=0.1)
