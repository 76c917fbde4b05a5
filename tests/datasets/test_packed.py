"""The packed arrays: resizing under a mask, what is read and what is refused, and when packing is done again."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datasets.packed import load_packed, pack_view, packed_version, read_image, resize
from datasets.selection import Selection, read_selection
from datasets.task_data import TaskData
from datasets.taskonomy import View
from datasets.tasks import DEPTH, RGB, TASKS, get_task
from utils.errors import UserError

SIZE = 16
CPU = torch.device("cpu")
SEGMENTS, SHADING = TASKS["segment_semantic"].encoding, TASKS["reshading"].encoding
# Channels and type of each packed array; shading carries its mask along.
STORED = {
    "normal": (3, np.uint8), "depth_euclidean": (1, np.uint16), "reshading": (2, np.uint8),
    "keypoints3d": (1, np.uint16), "edge_texture": (1, np.uint16), "principal_curvature": (2, np.uint8),
    "segment_semantic": (1, np.uint8),
}  # fmt: skip


def write(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return path


def small_selection(data_path: Path, n: int = 4) -> Selection:
    """`n` views without files; the last one is held out."""
    views = tuple(View("hanson", point, 0) for point in range(n))
    labels = np.zeros(n, np.int64)
    return Selection(data_path, views, labels, labels, np.arange(n - 1), np.array([n - 1]), "")


# Resizing


@st.composite
def masked_images(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Values (2, side, side), absurd where the mask is False, and a size to resize to."""
    side, size = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low = draw(st.integers(0, 60000))
    valid = rng.random((side, side)) < draw(st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0]))
    values = rng.integers(low, low + draw(st.integers(1, 5000)), (2, side, side))
    absurd = rng.choice([0, 65535], values.shape)
    return np.where(valid, values, absurd).astype(np.uint16), valid, size


def nearest(position: int, size: int, side: int) -> list[int]:
    """The source pixels nearest to the centre of an output pixel: one, or two at the same distance."""
    centre = (position + Fraction(1, 2)) * side / size
    return sorted({math.ceil(centre) - 1, min(math.floor(centre), side - 1)})


@settings(max_examples=150, deadline=None)
@given(masked_images())
def test_resizing_takes_valid_pixels_only(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    values, valid, size = drawn
    resized, mask = resize(values, valid, size, categorical=False)
    assert resized.shape == (2, size, size) and resized.dtype == np.uint16
    lines = [nearest(i, size, len(valid)) for i in range(size)]
    around = [[valid[np.ix_(rows, columns)] for columns in lines] for rows in lines]
    assert not (mask & ~np.array([[pixels.any() for pixels in row] for row in around])).any()
    assert not (~mask & np.array([[pixels.all() for pixels in row] for row in around])).any()
    for channel, source in zip(resized, values, strict=True):
        if mask.any():
            assert source[valid].min() <= channel[mask].min()
            assert channel[mask].max() <= source[valid].max()


@settings(max_examples=60, deadline=None)
@given(masked_images())
def test_ids_are_never_averaged(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    values, valid, size = drawn
    resized, mask = resize(values, valid, size, categorical=True)
    for channel, source in zip(resized, values, strict=True):
        assert set(np.unique(channel)) <= set(np.unique(source))
        assert set(np.unique(channel[mask])) <= set(np.unique(source[valid]))


@pytest.mark.parametrize("side, size", [(48, 16), (40, 16), (16, 16), (12, 16), (64, 20)])
def test_resizing_is_the_mean_of_pillow_over_valid_pixels(side: int, size: int) -> None:
    rng = np.random.default_rng(side)
    values = rng.integers(0, 60000, (1, side, side)).astype(np.uint16)
    valid = rng.random((side, side)) < 0.8

    def smooth(array: np.ndarray) -> np.ndarray:
        return np.asarray(Image.fromarray(array.astype(np.float32)).resize((size, size), Image.Resampling.BILINEAR))

    resized, mask = resize(values, valid, size, categorical=False)
    expected = smooth(values[0] * valid) / np.maximum(smooth(valid), 1e-9)
    assert mask.mean() > 0.5
    np.testing.assert_allclose(resized[0][mask].astype(float), expected[mask], atol=0.6)  # rounded


# Reading


@pytest.mark.parametrize("shape, kept", [((6, 10), np.s_[:, 2:8]), ((11, 6), np.s_[2:8, :]), ((5, 5), np.s_[:, :])])
def test_image_loses_its_margins(tmp_path: Path, shape: tuple[int, int], kept: tuple[slice, slice]) -> None:
    values = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    read = read_image(write(tmp_path / "rgb.png", values), RGB)
    np.testing.assert_array_equal(read, values[kept].transpose(2, 0, 1))


def test_palette_reads_as_ids(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 18, (8, 8), dtype=np.uint8)
    image = Image.fromarray(ids).convert("P")
    image.putdata(ids.ravel().tolist())
    image.putpalette([255 - i for i in range(54)])
    image.save(tmp_path / "segments.png")
    with Image.open(tmp_path / "segments.png") as saved:
        assert saved.mode == "P"
    np.testing.assert_array_equal(read_image(tmp_path / "segments.png", SEGMENTS)[0], ids)


def test_first_of_equal_channels_is_read(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (4, 4), dtype=np.uint8)
    path = write(tmp_path / "shading.png", np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(read_image(path, SHADING), grey[None])


def test_16_bit_values_are_kept(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [32767, 32768, 40000], [1, 65534, 65535]], np.uint16)
    np.testing.assert_array_equal(read_image(write(tmp_path / "depth.png", values), DEPTH), values[None])


@pytest.mark.parametrize(
    "values, encoding, reason",
    [
        (np.zeros((4, 4), np.uint8), DEPTH, "pixel format L where depth_euclidean has uint16"),
        (np.zeros((4, 4), np.uint16), SEGMENTS, "pixel format I;16 where segment_semantic has uint8"),
        (np.zeros((4, 4), np.uint8), RGB, "1 channels where rgb has 3"),
    ],
)
def test_wrong_pixel_format_is_said(tmp_path: Path, values: np.ndarray, encoding: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_image(write(tmp_path / "image.png", values), encoding)


@pytest.mark.parametrize("length", [0, 20, 100, 400])
def test_truncated_image_is_refused(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "depth.png", np.random.default_rng(0).integers(0, 65536, (32, 32)).astype(np.uint16))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="not a readable image"):
        read_image(path, DEPTH)


def test_shading_counts_where_depth_does(tmp_path: Path) -> None:
    view = View("hanson", 1, 2)
    depth = np.random.default_rng(0).integers(400, 4000, (SIZE, SIZE)).astype(np.uint16)
    depth[3:7, 2:] = 65535
    shading = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE), dtype=np.uint8)
    write(tmp_path / view.path("depth_euclidean"), depth)
    write(tmp_path / view.path("reshading"), shading)
    values, mask = pack_view(tmp_path, view, SHADING, SIZE)
    np.testing.assert_array_equal(mask, depth != 65535)
    np.testing.assert_array_equal(values[mask > 0], shading[mask > 0])
    write(tmp_path / view.path("depth_euclidean"), depth[:8, :8])
    with pytest.raises(ValueError, match="size differs from that of depth_euclidean"):
        pack_view(tmp_path, view, SHADING, SIZE)
    write(tmp_path / view.path("depth_euclidean"), depth.astype(np.uint8))
    with pytest.raises(ValueError, match="its mask, the depth_euclidean file: pixel format L"):
        pack_view(tmp_path, view, SHADING, SIZE)


# Packing


@pytest.mark.parametrize("name", STORED)
def test_packed_array_is_mapped_and_in_the_order_of_the_selection(selection: Selection, name: str) -> None:
    channels, dtype = STORED[name]
    encoding = TASKS[name].encoding
    packed, unreadable = load_packed(selection.data_path, selection.views, encoding, SIZE)
    assert isinstance(packed, np.memmap)
    assert (packed.shape, packed.dtype, unreadable) == ((len(selection), channels, SIZE, SIZE), dtype, [])
    for position in (0, 17, len(selection) - 1):
        expected = pack_view(selection.data_path, selection.views[position], encoding, SIZE)
        np.testing.assert_array_equal(packed[position], expected)


@pytest.mark.parametrize("domain", ["rgb", "normal", "depth_euclidean", "segment_semantic", "principal_curvature"])
def test_at_its_own_size_an_image_is_packed_as_it_is(selection: Selection, domain: str) -> None:
    encoding = RGB if domain == "rgb" else TASKS[domain].encoding
    packed, _ = load_packed(selection.data_path, selection.views, encoding, 32)
    for position, view in list(enumerate(selection.views))[::11]:
        values = np.atleast_3d(Image.open(view.find(selection.data_path, domain)))[..., : encoding.channels]
        np.testing.assert_array_equal(packed[position], values.transpose(2, 0, 1))


def test_packed_once_until_a_file_changes(own_copy: Path) -> None:
    views = read_selection(own_copy).views
    array = own_copy / f"packed/{SIZE}/normal.npy"

    def pack() -> tuple[np.ndarray, tuple[int, int]]:
        packed, _ = load_packed(own_copy, views, TASKS["normal"].encoding, SIZE)
        status = array.stat()
        return np.array(packed), (status.st_ino, status.st_mtime_ns)

    first, made = pack()
    assert pack()[1] == made
    source = own_copy / views[5].path("normal")
    os.utime(source, ns=(0, 0))
    touched, again = pack()
    assert again != made
    np.testing.assert_array_equal(touched, first)
    write(source, np.full((32, 32, 3), 200, np.uint8))
    changed, last = pack()
    assert last != again
    assert (changed[5] == 200).all()
    np.testing.assert_array_equal(np.delete(changed, 5, 0), np.delete(first, 5, 0))


def test_other_views_are_packed_anew(tmp_path: Path) -> None:
    views = [View("hanson", point, 0) for point in range(3)]
    for value, view in enumerate(views):
        write(tmp_path / view.path("rgb"), np.full((SIZE, SIZE, 3), value, np.uint8))
    for chosen in ([0, 1], [0, 1, 2], [2, 0]):
        packed, _ = load_packed(tmp_path, [views[i] for i in chosen], RGB, SIZE)
        assert packed[:, 0, 0, 0].tolist() == chosen


def test_unreadable_images_are_listed_and_left_out(own_copy: Path, selection: Selection) -> None:
    task = get_task("depth_euclidean")
    whole = TaskData(selection, task, SIZE, CPU)
    truncated, narrow, text, gone = *selection.train[[2, 9, 30]], selection.test[4]
    paths = {position: own_copy / selection.views[position].path(task.name) for position in (truncated, narrow, text)}
    paths[truncated].write_bytes(paths[truncated].read_bytes()[:300])
    write(paths[narrow], np.full((32, 32), 9, np.uint8))
    paths[text].write_text("no picture")
    (own_copy / selection.views[gone].path(task.name)).unlink()
    broken = sorted((truncated, narrow, text, gone))

    data = TaskData(read_selection(own_copy), task, SIZE, CPU)
    assert np.flatnonzero(~data.readable).tolist() == broken
    np.testing.assert_array_equal(data.train, np.setdiff1d(selection.train, broken))
    np.testing.assert_array_equal(data.test, np.setdiff1d(selection.test, broken))
    listing = (own_copy / f"packed/{SIZE}/unreadable_depth_euclidean.txt").read_text().splitlines()
    assert [line.split(": ")[0] for line in listing] == [str(selection.views[i].path(task.name)) for i in broken]
    assert sorted(line.split(": ")[1][:12] for line in listing) == sorted(
        ["not a readab", "pixel format", "not a readab", "the depth_eu"]
    )
    intact = torch.from_numpy(np.flatnonzero(data.readable))
    for mine, theirs in zip(vars(data.batch(intact)).values(), vars(whole.batch(intact)).values(), strict=True):
        assert torch.equal(mine, theirs)


def test_list_of_unreadable_images_goes_with_the_last_of_them(tmp_path: Path) -> None:
    views = [View("hanson", point, 0) for point in range(2)]
    listing = tmp_path / f"packed/{SIZE}/unreadable_rgb.txt"
    write(tmp_path / views[0].path("rgb"), np.zeros((SIZE, SIZE, 3), np.uint8))
    assert load_packed(tmp_path, views, RGB, SIZE)[1] == [1] and listing.is_file()
    write(tmp_path / views[1].path("rgb"), np.zeros((SIZE, SIZE, 3), np.uint8))
    assert load_packed(tmp_path, views, RGB, SIZE)[1] == []
    assert not listing.exists()


def test_truncated_array_is_packed_again(tmp_path: Path) -> None:
    view = View("hanson", 0, 0)
    write(tmp_path / view.path("rgb"), np.full((SIZE, SIZE, 3), 7, np.uint8))
    load_packed(tmp_path, [view], RGB, SIZE)
    array = tmp_path / f"packed/{SIZE}/rgb.npy"
    array.write_bytes(array.read_bytes()[:200])
    assert (load_packed(tmp_path, [view], RGB, SIZE)[0] == 7).all()


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no rgb image can be read.*point_0_view_0.*the rgb file is missing"):
        TaskData(small_selection(tmp_path), get_task("class_scene"), SIZE, CPU)


@pytest.mark.parametrize("part", [[0, 1, 2], [3]], ids=["train", "test"])
def test_a_part_without_readable_images_is_an_error(tmp_path: Path, part: list[int]) -> None:
    chosen = small_selection(tmp_path)
    for position, view in enumerate(chosen.views):
        if position not in part:
            write(tmp_path / view.path("rgb"), np.zeros((SIZE, SIZE, 3), np.uint8))
    with pytest.raises(UserError, match=r"class_scene: . training and . held-out images; run extract_datapoints"):
        TaskData(chosen, get_task("class_scene"), SIZE, CPU)


def test_batch_is_decoded_from_16_bit_values(tmp_path: Path) -> None:
    chosen = small_selection(tmp_path)
    for position, view in enumerate(chosen.views):
        write(tmp_path / view.path("rgb"), np.full((SIZE, SIZE, 3), 51 * position, np.uint8))
        depth = np.full((SIZE, SIZE), 512 + position, np.uint16)
        depth[0], depth[1] = 40000, 65535
        write(tmp_path / view.path("depth_euclidean"), depth)
    data = TaskData(chosen, get_task("depth_euclidean", "metric"), SIZE, CPU)
    batch = data.batch(torch.tensor([3, 1]))
    assert batch.images[:, 0, 0, 0].tolist() == pytest.approx([0.6, 0.2])  # 153/255, 51/255
    assert batch.target[:, 0, 5, 5].tolist() == pytest.approx([515 / 512, 513 / 512])
    assert (batch.target[:, 0, 0] == 78.125).all()  # 40000/512, above what a signed 16-bit number holds
    assert batch.valid[:, 0, :, 0].tolist() == [[True, False, *[True] * (SIZE - 2)]] * 2


@pytest.mark.parametrize("name", TASKS)
def test_batches_of_every_task_are_finite_and_have_its_shapes(selection: Selection, name: str) -> None:
    task = get_task(name)
    batch = TaskData(selection, task, SIZE, CPU).batch(torch.tensor([4, 0, 40]))
    assert batch.images.shape == (3, 3, SIZE, SIZE)
    assert batch.images.min() >= 0 and batch.images.max() <= 1
    shape = (3,) if not task.dense else (3, SIZE, SIZE) if task.categorical else (3, task.out_channels, SIZE, SIZE)
    assert batch.target.shape == shape and batch.target.isfinite().all()
    assert batch.valid.dtype == torch.bool and batch.valid.any()
    assert torch.broadcast_shapes(batch.valid.shape, shape) == shape


def test_an_array_that_says_no_version_is_packed_once_more(tmp_path: Path) -> None:
    selection = small_selection(tmp_path, 2)
    for view in selection.views:
        write(tmp_path / view.path("rgb"), np.full((20, 20, 3), view.point, np.uint8))
    before, _ = load_packed(tmp_path, selection.views, RGB, SIZE)
    version = packed_version(tmp_path, selection.views, RGB, SIZE)
    manifest = tmp_path / "packed" / str(SIZE) / "rgb.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: value for name, value in said.items() if name != "sha256"}))
    assert packed_version(tmp_path, selection.views, RGB, SIZE) is None
    after, _ = load_packed(tmp_path, selection.views, RGB, SIZE)
    assert (after == before).all() and packed_version(tmp_path, selection.views, RGB, SIZE) == version is not None
