"""Maps of one's own as targets: what their files may hold, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.augmentation import augmented
from datasets.cameras import Camera
from datasets.maps import read_map
from datasets.packed import load_packed
from datasets.table import DatasetInfo, Table
from datasets.task_data import TaskData
from datasets.tasks import MAPS, NOTHING, Scale, get_task
from utils.errors import UserError

SIZE = 16
MM = Scale(0.001, (0.0,))
EXTENSIONS = {"png": np.uint16, "tif": np.float32, "npy": np.float64}


def write(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values) if path.suffix == ".npy" else Image.fromarray(values).save(path)
    return path


def read(path: Path, task: str = "depth", scale: Scale = MM) -> np.ndarray:
    return read_map(path.parent, path.name, MAPS[task], scale)


def data_of(folder: Path, name: str, maps: Sequence[np.ndarray], scale: Scale, fit: str = "crop", *variant: object):
    """The task on these maps, of which the last is held out."""
    for number, values in enumerate(maps):
        write(folder / "rgb" / f"{number}.png", np.zeros((*values.shape[:2], 3), np.uint8))
        write(folder / name / f"{number}.npy", values)
    photographs = [each.domain for each in get_task(name).photographs]
    files = {domain: tuple(f"rgb/{i}.png" for i in range(len(maps))) for domain in photographs}
    files[name] = tuple(f"{name}/{i}.npy" for i in range(len(maps)))
    about = DatasetInfo("maps", (*photographs, name), scales={name: scale}, fit=fit)
    places = np.arange(len(maps))
    table = Table(folder, about, files, np.full(len(maps), -1), {}, places[:-1], places[:0], places[-1:], "")
    return TaskData(table, get_task(name, *variant), SIZE, torch.device("cpu"))


# Reading


@pytest.mark.parametrize("ending", EXTENSIONS)
def test_values_are_in_their_unit_and_what_is_invalid_is_nothing(tmp_path: Path, ending: str) -> None:
    stored = np.array([[0, 1500, 1501], [65000, 250, 0]]).astype(EXTENSIONS[ending])
    values = read(write(tmp_path / f"depth.{ending}", stored))
    assert (values.shape, values.dtype) == ((1, 2, 3), np.float32)
    np.testing.assert_allclose(values[0], [[NOTHING, 1.5, 1.501], [65.0, 0.25, NOTHING]], rtol=1e-6)


def test_several_invalid_values_and_what_is_not_finite(tmp_path: Path) -> None:
    stored = np.array([[np.nan, 2.0], [np.inf, 9.0], [-1.0, 4.0]])
    values = read(write(tmp_path / "depth.npy", stored), scale=Scale(1.0, (-1.0, 9.0)))
    assert values[0].tolist() == [[NOTHING, 2.0], [NOTHING, NOTHING], [NOTHING, 4.0]]


def test_negative_distances_are_refused_unless_they_are_invalid(tmp_path: Path) -> None:
    path = write(tmp_path / "depth.npy", np.array([[2.0, -1.0, 3.0]]))
    with pytest.raises(ValueError, match=r"1 of 3 distances are negative, the least -0\.001; see --invalid"):
        read(path)
    assert read(path, scale=Scale(1.0, (-1.0,)))[0].tolist() == [[2.0, NOTHING, 3.0]]
    assert read(path, "regression", Scale())[0].tolist() == [[2.0, -1.0, 3.0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_invalid_values_are_as_exact_as_the_file(tmp_path: Path, dtype: type) -> None:
    least = -3.4028235e38  # no measurement, in many a GeoTIFF
    with np.errstate(over="ignore"):
        stored = np.array([[least, 0.1, 0.5]]).astype(dtype)
    values = read(write(tmp_path / "depth.npy", stored), scale=Scale(1.0, (least, 0.1)))
    assert values[0].tolist() == [[NOTHING, NOTHING, 0.5]]


def test_three_equal_channels_with_nan_are_one(tmp_path: Path) -> None:
    stored = np.repeat(np.array([[np.nan, 2.0], [3.0, 4.0]], np.float32)[..., None], 3, axis=2)
    assert read(write(tmp_path / "depth.npy", stored), scale=Scale()).tolist() == [[[NOTHING, 2.0], [3.0, 4.0]]]


@pytest.mark.parametrize("dtype, most", [(np.uint8, 255), (np.uint16, 65535), (np.float32, None)])
def test_whole_numbers_of_normals_go_from_minus_1_to_1(tmp_path: Path, dtype: type, most: int | None) -> None:
    normals = np.random.default_rng(0).normal(size=(4, 6, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    stored = normals if most is None else np.rint((normals + 1) / 2 * most)
    stored[0, 0] = 0 if most is None else most // 2 + 1  # no direction
    stored[0, 1] = 7 if most is None else 0
    invalid = (7.0,) if most is None else (0.0,)
    values = read(write(tmp_path / "n.npy", stored.astype(dtype)), "normals", Scale(1.0, invalid))
    assert (values[:, 0, :2] == NOTHING).all()
    np.testing.assert_allclose(values[:, 1:], normals[1:].transpose(2, 0, 1), atol=1e-6 if most is None else 1 / most)


def test_a_grey_picture_has_one_channel_and_transparency_does_not_count(tmp_path: Path) -> None:
    grey = np.repeat(np.arange(12, dtype=np.uint8).reshape(3, 4, 1), 3, axis=2)
    scale = Scale(0.1)
    np.testing.assert_allclose(read(write(tmp_path / "e.png", grey), "edges", scale)[0], grey[..., 0] * 0.1, rtol=1e-6)
    rgba = np.concatenate([200 + grey, grey[..., :1]], axis=2)
    assert read(write(tmp_path / "n.png", rgba), "normals", Scale()).shape == (3, 3, 4)


@pytest.mark.parametrize(
    "task, values, line",
    [
        ("depth", np.full((4, 4), 9, np.uint8), "8 bits where depth has 16 or more"),
        ("depth", np.zeros((4, 4), np.uint16), r"no pixel counts: 0 of 16 are not finite, the others 0"),
        ("depth", np.full((4, 4), np.nan), "no pixel counts: 16 of 16 are not finite$"),
        ("depth", np.arange(48, dtype=np.uint16).reshape(4, 4, 3), "a colour picture where depth has one channel"),
        ("depth", np.full((4, 4), "a"), "<U1 values where depth has numbers"),
        ("depth", np.zeros(4), r"an array of shape \(4,\) is not an image"),
        ("normals", np.ones((4, 4), np.uint8), "1 channels where normals has 3"),
        ("normals", np.full((4, 4, 3), 128, np.uint8), "all vectors are shorter than 0.5 or longer than 1.5, with"),
        ("regression", np.full((4, 4), 1e300), r"values up to 1e\+297, more than 32 bits hold; see --unit, --invalid"),
        ("normals", np.full((4, 4, 3), 255, np.uint8), "longer than 1.5, with a median of 1.73, where"),
        ("normals", np.full((4, 4, 3), 100.0), "longer than 1.5, with a median of 173"),
        (
            "normals",
            np.full((4, 4, 3), (0.0, 0.0, 0.7)),
            "the median length of its vectors is 0.7, where it should be 1",
        ),
        ("normals", np.full((4, 4, 3), 7), "int64 values where directions have 8 or 16 bits, or floats"),
    ],
)
def test_what_is_no_map_is_said(tmp_path: Path, task: str, values: np.ndarray, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        read(write(tmp_path / "m.npy", values), task, Scale() if task == "normals" else MM)


def test_broken_files_are_said(tmp_path: Path) -> None:
    for name, line in (("a.png", "not a readable image"), ("a.npy", "cannot be read as a NumPy array")):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(ValueError, match=line):
            read(tmp_path / name)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as a NumPy array"):
        read(tmp_path / "objects.npy")


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_unit_is_a_positive_number(unit: float) -> None:
    with pytest.raises(ValueError, match="is not a positive number"):
        Scale(unit)


def directions(seed: int, *shape: int) -> np.ndarray:
    """Random vectors of length 1, (…, 3)."""
    vectors = np.random.default_rng(seed).normal(size=(*shape, 3))
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_black_white_and_grey_show_no_direction(tmp_path: Path) -> None:
    normals = directions(0, 6, 8)
    stored = np.rint((normals + 1) / 2 * 255).astype(np.uint8)
    stored[0], stored[1], stored[2] = 0, 255, 128
    values = read(write(tmp_path / "n.png", stored), "normals", Scale())
    assert (values[:, :3] == NOTHING).all()
    np.testing.assert_allclose(values[:, 3:], normals[3:].transpose(2, 0, 1), atol=1 / 255)


@pytest.mark.parametrize("nowhere", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_that_are_half_of_n_plus_1_are_recognised(tmp_path: Path, dtype: type, nowhere: float) -> None:
    normals = directions(0, 6, 8)
    stored = ((normals + 1) / 2).astype(dtype)
    stored[:4] = nowhere  # most of it
    values = read(write(tmp_path / "n.npy", stored), "normals", Scale())
    assert (values[:, :4] == NOTHING).all()
    np.testing.assert_allclose(values[:, 4:], normals[4:].transpose(2, 0, 1), atol=4e-3)


def test_floats_of_one_octant_are_taken_as_they_are(tmp_path: Path) -> None:
    normals = np.abs(directions(0, 6, 8))
    values = read(write(tmp_path / "n.npy", normals), "normals", Scale())
    np.testing.assert_allclose(values, normals.transpose(2, 0, 1), rtol=1e-6)


@pytest.mark.parametrize("dtype, most", [(np.int8, 127), (np.int16, 32767)])
def test_signed_whole_numbers_of_normals(tmp_path: Path, dtype: type, most: int) -> None:
    normals = directions(0, 6, 8)
    values = read(write(tmp_path / "n.npy", np.rint(normals * most).astype(dtype)), "normals", Scale())
    np.testing.assert_allclose(values, normals.transpose(2, 0, 1), atol=1 / most)


def test_rotated_bits_are_sun_rgb_ds(tmp_path: Path) -> None:
    # As its toolbox reads them: bitor(bitshift(depth, -3), bitshift(depth, 16 - 3)).
    millimetres = np.array([[0, 1, 5000, 8191, 8192, 60001]], np.uint16)
    stored = np.array([[int(f"{each:016b}"[3:] + f"{each:016b}"[:3], 2) for each in millimetres[0]]], np.uint16)
    values = read(write(tmp_path / "d.png", stored), scale=Scale(0.001, (0.0,), rotated=True))
    np.testing.assert_allclose(values[0, 0, 1:], millimetres[0, 1:] / 1000, rtol=1e-6)
    assert values[0, 0, 0] == NOTHING
    with pytest.raises(ValueError, match="float64 values, of which no bits are rotated; see --bits"):
        read(write(tmp_path / "d.npy", stored * 1.0), scale=Scale(rotated=True))


def test_bits_offset_rays_and_a_mask_work_together(tmp_path: Path) -> None:
    """The offset is of the numbers before their bits were rotated; the mask says nothing of a pixel that is invalid."""
    millimetres = np.array([[3900, 0, 2900]], np.uint16)
    path = write(tmp_path / "depth.png", (millimetres << 3) | (millimetres >> 13))
    write(tmp_path / "valid.png", np.array([[1, 1, 0]], np.uint8))
    ray = Camera("ray", (1.0, 1.0, 4 / 3, 0.0))  # of the first pixel the ray is 5/3 of the depth in z
    scale = Scale(0.001, (0.0,), rotated=True, offset=100.0, camera=ray)
    values = read_map(path.parent, path.name, MAPS["depth"], scale, ["valid.png"])
    np.testing.assert_allclose(values[0], [[2.4, NOTHING, NOTHING]], rtol=1e-6)


# Targets


@pytest.mark.parametrize("variant", ["scaled", "metric", "log"])
def test_depth_targets_are_those_of_metres(tmp_path: Path, variant: str) -> None:
    rng = np.random.default_rng(0)
    millimetres = [rng.integers(200, 60000, (SIZE, SIZE)).astype(np.uint16) for _ in range(3)]
    for values in millimetres:
        values[:2] = 0
    data = data_of(tmp_path, "depth", millimetres, MM, "crop", variant)
    batch = data.batch(torch.arange(3))
    metres = torch.from_numpy(np.stack(millimetres).astype(np.float64) / 1000)[:, None]
    assert (batch.valid == (metres > 0)).all() and (batch.target[~batch.valid] == 0).all()
    expected = {
        "scaled": metres / metres.amax(dim=(1, 2, 3), keepdim=True),
        "metric": metres,
        "log": metres.log(),
    }[variant]
    torch.testing.assert_close(batch.target[batch.valid].double(), expected[batch.valid], rtol=1e-5, atol=1e-6)
    [physical] = data.in_physical_units(torch.arange(3), batch.target)
    torch.testing.assert_close(physical[batch.valid].double(), metres[batch.valid], rtol=1e-5, atol=1e-6)


def test_normals_edges_and_regression_maps(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(2, SIZE, SIZE, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    batch = data_of(tmp_path / "n", "normals", list(normals), Scale()).batch(torch.arange(2))
    np.testing.assert_allclose(batch.target.numpy(), normals.transpose(0, 3, 1, 2), atol=1e-6)
    edges = [rng.integers(0, 200, (SIZE, SIZE)).astype(np.uint8) for _ in range(2)]
    batch = data_of(tmp_path / "e", "edges", edges, Scale()).batch(torch.arange(2))
    for target, stored in zip(batch.target, edges, strict=True):
        np.testing.assert_allclose(target[0], stored / stored.max(), rtol=1e-6)
    heights = [rng.normal(0, 30, (SIZE, SIZE)) for _ in range(2)]
    batch = data_of(tmp_path / "h", "regression", heights, Scale(0.1)).batch(torch.arange(2))
    np.testing.assert_allclose(batch.target[:, 0], 0.1 * np.stack(heights), rtol=1e-5)
    assert batch.valid.all()


@pytest.mark.parametrize("name", MAPS)
def test_margins_and_what_is_nothing_count_nowhere(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(2)
    channels = MAPS[name].channels
    shape = (8, 16) if channels == 1 else (8, 16, channels)
    maps = [rng.normal(2, 0.1, shape).astype(np.float32) for _ in range(2)]
    for values in maps:
        values /= np.sqrt(np.square(values).sum(-1, keepdims=True)) if channels > 1 else 1
        values[:, 12:] = np.nan
    batch = data_of(tmp_path, name, maps, Scale(), "pad").batch(torch.arange(2))
    expected = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    expected[4:12, :12] = True
    assert (batch.valid[:, 0] == expected).all() and batch.target.isfinite().all()
    assert (batch.target[:, :, ~expected] == 0).all() and (batch.target[:, :, expected] != 0).all()


def test_resizing_takes_the_mean_of_what_is_known(tmp_path: Path) -> None:
    """Twice as small, antialiasing aside: blocks of a constant keep it, however much of them is unknown."""
    values = np.repeat(np.repeat(np.arange(1.0, 5.0).reshape(2, 2), 16, axis=0), 16, axis=1)
    values[np.random.default_rng(0).random(values.shape) < 0.3] = np.nan
    batch = data_of(tmp_path, "regression", [values] * 2, Scale()).batch(torch.arange(1))
    inner = batch.target[0, 0, 2:6, 2:6][batch.valid[0, 0, 2:6, 2:6]]
    np.testing.assert_allclose(inner, 1.0, rtol=1e-6)
    assert 0.5 < batch.valid.float().mean() < 0.9


def test_another_unit_packs_anew(tmp_path: Path) -> None:
    values = [np.full((SIZE, SIZE), 3.0)] * 2
    first = data_of(tmp_path, "regression", values, Scale())
    assert (np.array(load_packed(first.table, MAPS["regression"], SIZE)[0]) == 3.0).all()
    second = data_of(tmp_path, "regression", values, Scale(2.0))
    assert (np.array(load_packed(second.table, MAPS["regression"], SIZE)[0]) == 6.0).all()


def test_what_is_rotated_is_packed_again(tmp_path: Path) -> None:
    depth = [np.full((SIZE, SIZE), 1200 << 3, np.uint16)] * 2
    plain = data_of(tmp_path, "depth", depth, Scale(0.001), "crop", "metric").batch(torch.arange(1))
    rotated = data_of(tmp_path, "depth", depth, Scale(0.001, rotated=True), "crop", "metric").batch(torch.arange(1))
    assert (plain.target == 9.6).all() and (rotated.target == 1.2).all()


def test_normals_in_the_axes_of_the_world_are_not_mirrored(tmp_path: Path) -> None:
    maps = list(directions(0, 2, SIZE, SIZE))
    frames = torch.tensor([[0, 0, SIZE, SIZE, 1]])
    of_camera, of_world = (data_of(tmp_path, "normals", maps, Scale(world=world)) for world in (False, True))
    mirrored = augmented(of_camera.batch(torch.arange(1)), frames, of_camera.task).target
    torch.testing.assert_close(mirrored[:, 0], -of_camera.batch(torch.arange(1)).target[:, 0].flip(-1))
    with pytest.raises(UserError, match=r"cannot be mirrored with their images; give --augment none"):
        augmented(of_world.batch(torch.arange(1)), frames, of_world.task)
