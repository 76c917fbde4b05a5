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

from datasets.classes import VOID, ClassSet
from datasets.packed import class_numbers, load_packed, pack_image, packed_version, read_image, resize, square
from datasets.sources.taskonomy import needed_domains
from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import DEPTH, MAPS, RGB, TASKS, Encoding, get_task
from losses import LOSSES
from tests.datasets.tables import table_of
from utils.errors import UserError

SIZE = 16
CPU = torch.device("cpu")
DENSE = [name for name, task in TASKS.items() if task.dense and name not in MAPS]  # those: test_maps.py
SEGMENTS, SHADING, NORMAL = (TASKS[name].encoding for name in ("segment_semantic", "reshading", "normal"))
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


def write_all(table: Table, domain: str, values: np.ndarray) -> None:
    """The same image in every row of a table."""
    for cell in table.cells(domain):
        write(table.data_path / cell, values)


def data_of(table: Table, name: str) -> TaskData:
    return TaskData(table, table.bind(get_task(name)), SIZE, CPU)


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
    resized, mask = resize(values, valid, size, nearest=False)
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
    resized, mask = resize(values, valid, size, nearest=True)
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

    resized, mask = resize(values, valid, size, nearest=False)
    expected = smooth(values[0] * valid) / np.maximum(smooth(valid), 1e-9)
    assert mask.mean() > 0.5
    np.testing.assert_allclose(resized[0][mask].astype(float), expected[mask], atol=0.6)  # rounded


# Squares


@pytest.mark.parametrize(
    "shape, kept",
    [((6, 10), np.s_[:, 2:8]), ((11, 6), np.s_[2:8, :]), ((6, 9), np.s_[:, 1:7]), ((5, 5), np.s_[:, :])],
)
def test_cropping_takes_the_middle(shape: tuple[int, int], kept: tuple[slice, slice]) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, *shape), dtype=np.uint8)
    cropped, inside = square(values, "crop")
    np.testing.assert_array_equal(cropped, values[:, *kept])
    assert inside.shape == cropped.shape[1:] and inside.all()


@pytest.mark.parametrize(
    "shape, at", [((6, 10), np.s_[2:8, :]), ((11, 6), np.s_[:, 2:8]), ((6, 9), np.s_[1:7, :]), ((5, 5), np.s_[:, :])]
)
def test_padding_puts_margins_around(shape: tuple[int, int], at: tuple[slice, slice]) -> None:
    values = np.random.default_rng(0).integers(1, 256, (3, *shape), dtype=np.uint8)
    padded, inside = square(values, "pad")
    assert padded.shape == (3, max(shape), max(shape)) and inside.sum() == math.prod(shape)
    np.testing.assert_array_equal(padded[:, *at], values)
    assert inside[at].all() and not padded[:, ~inside].any()


def test_stretching_leaves_the_shape_to_the_resizing() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(1, 4, 6)
    stretched, inside = square(values, "stretch")
    np.testing.assert_array_equal(stretched, values)
    assert inside.all()
    resized, _ = resize(stretched, inside, 2, nearest=True)
    assert resized.tolist() == [[[7, 10], [19, 22]]]  # the nearest to the middles of 2 by 3 pixels each


# Half a picture, left and right of its middle 4, 20 or 12 columns of 8 rows.
WIDE = {"crop": (8, 8), "stretch": (16, 16), "pad": (8, 16)}


@pytest.mark.parametrize("fit", WIDE)
def test_photographs_and_masks_are_fitted_alike(tmp_path: Path, fit: str) -> None:
    table = table_of(tmp_path, 2, ["rgb", "mask"], fit=fit, classes={"mask": ClassSet(("left", "right"))})
    ids = np.zeros((8, 16), np.uint8)
    ids[:, 8:] = 1
    write_all(table, "mask", ids)
    write_all(table, "rgb", np.repeat(100 * ids[..., None] + 50, 3, axis=2))
    batch = data_of(table, "segmentation").batch(torch.arange(2))
    rows = np.s_[4:12] if fit == "pad" else np.s_[:]
    assert batch.valid[0].any(1).tolist() == [fit != "pad" or 4 <= row < 12 for row in range(SIZE)]
    assert (batch.target[:, rows, :8] == 0).all() and (batch.target[:, rows, 8:] == 1).all()
    shown = (batch.images[:, 0, rows] * 255).round()
    assert (shown[..., :7] == 50).all() and (shown[..., 9:] == 150).all()
    if fit == "pad":
        assert (batch.images[:, :, [0, 1, 2, 13, 14, 15]] == 0).all()


def test_photographs_end_where_what_counts_ends(tmp_path: Path) -> None:
    """Of 7 by 16 pixels, at a size that does not divide them: no pixel of the margin has any of the photograph."""
    table = table_of(tmp_path, 2, ["rgb", "mask"], fit="pad", classes={"mask": ClassSet(("all",))})
    write_all(table, "mask", np.zeros((7, 16), np.uint8))
    write_all(table, "rgb", np.full((7, 16, 3), 200, np.uint8))
    for size in (SIZE, 32, 48):
        task = table.bind(TASKS["segmentation"])
        batch = TaskData(table, task, size, CPU).batch(torch.arange(2))
        shown = (batch.images > 0).all(1)
        assert torch.equal(shown, batch.valid) and 0 < shown.float().mean() < 1


def test_depth_by_the_nearest_pixel_has_no_value_between_objects(tmp_path: Path) -> None:
    """A near object before a far wall; the means are of both along its border. Neither is taken for the other."""
    depth = np.full((64, 64), 8000, np.uint16)
    depth[10:41, 13:38] = 1000
    packed = {}
    for way in ("mean", "nearest", "mean"):
        table = table_of(tmp_path, 2, ["rgb", "depth_euclidean"], resize=way)
        write_all(table, "rgb", np.zeros((64, 64, 3), np.uint8))
        if not packed:
            write_all(table, "depth_euclidean", depth)
        data = data_of(table, "depth_euclidean")
        packed[way] = np.asarray(data._stored).astype(np.uint16), data.version
    assert {*packed["nearest"][0].flat} == {1000, 8000} < {*packed["mean"][0].flat}
    assert packed["nearest"][1] != packed["mean"][1]


# Those of maps of objects are tested with these, in test_instances.py.
@pytest.mark.parametrize("name", [name for name in DENSE if name != "instances"])
def test_margins_count_in_no_loss(tmp_path: Path, name: str) -> None:
    task, rng = TASKS[name], np.random.default_rng(0)
    table = table_of(tmp_path, 3, needed_domains([name]), fit="pad")
    write_all(table, "rgb", rng.integers(0, 256, (8, 16, 3), dtype=np.uint8))
    for encoding in filter(None, (task.encoding, task.encoding.mask)):
        high = 18 if task.categorical else 200
        shape = (8, 16) if encoding.channels == 1 else (8, 16, 3)
        write_all(table, encoding.domain, rng.integers(1, high, shape).astype(encoding.dtype))
    data = data_of(table, name)
    batch = data.batch(torch.arange(3))
    margin = torch.ones(SIZE, SIZE, dtype=torch.bool)
    margin[4:12] = False
    assert not batch.valid[..., margin].any() and batch.valid[..., ~margin].any()
    output = torch.rand(3, data.task.out_channels, SIZE, SIZE)
    other = torch.where(margin, 100.0 - output, output)
    losses = [LOSSES[data.task.loss](each, batch.target, batch.valid) for each in (output, other)]
    assert losses[0].isfinite().all() and torch.equal(*losses)


@pytest.mark.parametrize("name", ["depth_euclidean", "normal", "reshading", "principal_curvature"])
def test_margins_are_refused_where_every_pixel_counts(tmp_path: Path, name: str) -> None:
    table = table_of(tmp_path, 3, needed_domains([name]), fit="pad")
    with pytest.raises(UserError, match=r"--published_quirks True counts every pixel.*another --fit"):
        TaskData(table, get_task(name, published_quirks=True), SIZE, CPU)


# Reading


def test_palette_reads_as_ids(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 18, (8, 8), dtype=np.uint8)
    image = Image.fromarray(ids).convert("P")
    image.putdata(ids.ravel().tolist())
    image.putpalette([255 - i for i in range(54)])
    image.save(tmp_path / "segments.png")
    with Image.open(tmp_path / "segments.png") as saved:
        assert saved.mode == "P"
    np.testing.assert_array_equal(read_image(tmp_path, "segments.png", SEGMENTS)[0], ids)


@pytest.mark.parametrize("kind", ["8 bits", "16 bits", "32 bits", "one bit", "equal channels"])
def test_ids_of_any_depth_are_read(tmp_path: Path, kind: str) -> None:
    ids = np.random.default_rng(0).integers(0, 2, (8, 8))
    images = {
        "8 bits": Image.fromarray(ids.astype(np.uint8)),
        "16 bits": Image.fromarray(ids.astype(np.uint16)),
        "32 bits": Image.fromarray(ids.astype(np.int32)),
        "one bit": Image.fromarray(ids.astype(bool)),
        "equal channels": Image.fromarray(np.repeat(ids[..., None], 3, axis=2).astype(np.uint8)),
    }
    images[kind].save(tmp_path / "mask.tif")
    read = read_image(tmp_path, "mask.tif", SEGMENTS)
    np.testing.assert_array_equal(class_numbers(read, ClassSet(("off", "on")))[0], ids)


def test_first_of_equal_channels_is_read(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (4, 4), dtype=np.uint8)
    write(tmp_path / "shading.png", np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(read_image(tmp_path, "shading.png", SHADING), grey[None])


@pytest.mark.parametrize("encoding", [SHADING, SEGMENTS], ids=["shading", "segments"])
@pytest.mark.parametrize("channel", [0, 1, 2])
def test_a_colour_picture_is_no_image_of_one_channel(tmp_path: Path, encoding: Encoding, channel: int) -> None:
    values = np.full((4, 4, 3), 7, np.uint8)
    values[2, 1, channel] = 8
    write(tmp_path / "picture.png", values)
    with pytest.raises(ValueError, match=f"a colour picture where {encoding.domain} has one channel"):
        read_image(tmp_path, "picture.png", encoding)


def test_16_bit_values_are_kept(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [32767, 32768, 40000], [1, 65534, 65535]], np.uint16)
    write(tmp_path / "depth.png", values)
    np.testing.assert_array_equal(read_image(tmp_path, "depth.png", DEPTH), values[None])


@pytest.mark.parametrize(
    "image, encoding, reason",
    [
        (Image.new("L", (4, 4)), DEPTH, "pixel format L where one of I;16, I;16B, I should be"),
        (Image.new("I;16", (4, 4)), SHADING, "pixel format I;16 where one of L, RGB, RGBA should be"),
        (Image.new("P", (4, 4)), SHADING, "pixel format P where one of L, RGB, RGBA should be"),  # grey is in its table
        (Image.new("F", (4, 4)), SEGMENTS, "pixel format F where one of"),
        (Image.new("L", (4, 4)), NORMAL, "1 channels where normal has 3"),
        (Image.new("I", (4, 4), 70000), DEPTH, "int32 values from 70000 to 70000 where depth_euclidean has uint16"),
        (Image.new("I", (4, 4), -1), DEPTH, "int32 values from -1 to -1 where depth_euclidean has uint16"),
    ],
)
def test_wrong_pixel_format_is_said(tmp_path: Path, image: Image.Image, encoding: Encoding, reason: str) -> None:
    image.save(tmp_path / "image.tif")
    with pytest.raises(ValueError, match=reason):
        read_image(tmp_path, "image.tif", encoding)


@pytest.mark.parametrize(
    "array, encoding, reason",
    [
        (np.full((1, 4, 4), 0.5), DEPTH, "float64 values from 0.5 to 0.5 where depth_euclidean has uint16"),
        (np.full((1, 4, 4), np.nan), DEPTH, "float64 values"),
        (np.zeros((1, 4, 4), np.uint8), DEPTH, "uint8 values"),
        (np.full((1, 4, 4), 65536), DEPTH, "int64 values from 65536 to 65536"),
        (np.full((1, 2, 4, 8), 3, np.uint8), NORMAL, "2 channels where normal has 3"),
        (np.stack([np.zeros((1, 4, 8)), np.ones((1, 4, 8))], 1).astype(np.uint16), DEPTH, "colour picture"),
    ],
    ids=["fractions", "nan", "few bits", "many bits", "few channels", "unequal channels"],
)
def test_rows_of_other_numbers_are_refused(tmp_path: Path, array: np.ndarray, encoding: Encoding, reason: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=reason):
        read_image(tmp_path, "x.npy#0", encoding)


def test_shading_counts_where_depth_does(tmp_path: Path) -> None:
    table = table_of(tmp_path, 1, ["rgb", "reshading", "depth_euclidean"])
    depth = np.random.default_rng(0).integers(400, 4000, (SIZE, SIZE)).astype(np.uint16)
    depth[3:7, 2:] = 65535
    shading = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE), dtype=np.uint8)
    write_all(table, "depth_euclidean", depth)
    write_all(table, "reshading", shading)
    values, mask = pack_image(table, 0, SHADING, SIZE)
    np.testing.assert_array_equal(mask, depth != 65535)
    np.testing.assert_array_equal(values[mask > 0], shading[mask > 0])
    write_all(table, "depth_euclidean", depth[:8, :8])
    with pytest.raises(ValueError, match="size differs from that of depth_euclidean"):
        pack_image(table, 0, SHADING, SIZE)
    write_all(table, "depth_euclidean", depth.astype(np.uint8))
    with pytest.raises(ValueError, match="its mask, the depth_euclidean file: pixel format L"):
        pack_image(table, 0, SHADING, SIZE)


@pytest.mark.parametrize("metres, allowed", [(19.9, 20.0), (63.0, 64.0), (20.1, 20.0), (23.0, 20.0)])
def test_depth_in_another_unit_is_refused_by_its_median(tmp_path: Path, metres: float, allowed: float) -> None:
    table = table_of(tmp_path, 1, ["rgb", "depth_euclidean"], limits={"depth_euclidean": 512 * allowed})
    depth = np.full((SIZE, SIZE), 512 * metres).astype(np.uint16)
    depth[:3], depth[3:9] = 1, 65535  # near, and without a surface, which does not count
    write_all(table, "depth_euclidean", depth)
    if metres < allowed:
        assert (pack_image(table, 0, DEPTH, SIZE) == depth).all()
        return
    with pytest.raises(ValueError, match=f"its median {int(512 * metres)} is above .* depth_euclidean in another unit"):
        pack_image(table, 0, DEPTH, SIZE)


def test_an_image_without_any_surface_is_in_no_other_unit(tmp_path: Path) -> None:
    table = table_of(tmp_path, 1, ["rgb", "depth_euclidean"], limits={"depth_euclidean": 1.0})
    write_all(table, "depth_euclidean", np.full((SIZE, SIZE), 65535, np.uint16))
    assert (pack_image(table, 0, DEPTH, SIZE) == 65535).all()


# Ids of masks


@settings(deadline=None)
@given(
    classes=st.sets(st.integers(0, 65535), min_size=1, max_size=12),
    void=st.sets(st.integers(0, 65535), max_size=4),
    others=st.lists(st.integers(0, 2**31 - 1), max_size=6),
    dtype=st.sampled_from([np.int32, np.int64, np.uint16]),
)
def test_ids_become_the_numbers_of_their_classes(
    classes: set[int], void: set[int], others: list[int], dtype: type
) -> None:
    known = sorted(classes, key=lambda each: (each * 7919) % 65536)  # in any order
    present = [*known, *void, *[each for each in others if each <= np.iinfo(dtype).max]]
    ids = np.array(present, dtype).reshape(1, -1, 1)
    found = class_numbers(ids, ClassSet(tuple(map(str, known)), tuple(known), tuple(void)))
    expected = [VOID if each in void or each not in classes else known.index(each) for each in present]
    assert found.ravel().tolist() == expected and found.dtype == np.uint8 and found.shape == ids.shape


@pytest.mark.parametrize("ids", [np.full((1, 4, 4), 40, np.uint8), np.full((1, 4, 4), 2**31 - 1, np.int32)])
def test_a_mask_in_which_no_id_is_known_is_refused(ids: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no pixel has the id of a class"):
        class_numbers(ids, ClassSet(("a", "b"), (3, 7), (255,)))
    assert (class_numbers(np.full((1, 4, 4), 255, np.uint8), ClassSet(("a", "b"), (3, 7), (255,))) == VOID).all()


def test_negative_ids_count_nowhere() -> None:
    ids = np.array([[[-1, 0, -100, 1]]], np.int16)
    assert class_numbers(ids, ClassSet(("a", "b"))).ravel().tolist() == [VOID, 0, VOID, 1]


@pytest.mark.parametrize("dtype", [bool, np.float32, np.float64, np.int8, ">u4", np.uint64])
def test_ids_in_arrays_of_any_type_are_whole_numbers(tmp_path: Path, dtype: type) -> None:
    ids = np.random.default_rng(0).integers(0, 2, (8, 8)).astype(dtype)
    np.save(tmp_path / "mask.npy", np.asfortranarray(ids))
    read = read_image(tmp_path, "mask.npy", SEGMENTS)
    assert read.dtype.kind in "ui" and np.array_equal(read[0], ids.astype(int))


@pytest.mark.parametrize(
    "values", [np.full((4, 4), 0.5), np.full((4, 4), np.nan), np.full((4, 4), "1"), np.zeros((4, 4), [("id", "u1")]),
               np.zeros((4, 4), complex)],
)  # fmt: skip
def test_what_is_no_whole_number_is_no_id(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "mask.npy", values)
    with pytest.raises(ValueError, match="values where segment_semantic has ids, which are whole numbers"):
        read_image(tmp_path, "mask.npy", SEGMENTS)


def test_void_pixels_of_a_mask_do_not_count(tmp_path: Path) -> None:
    table = table_of(tmp_path, 2, ["rgb", "mask"], classes={"mask": ClassSet(("road", "car"), (7, 26), (255,))})
    ids = np.zeros((SIZE, SIZE), np.uint8)
    ids[:4], ids[4:8], ids[8:12] = 7, 26, 255  # the last is not one of the classes
    write_all(table, "mask", ids)
    write_all(table, "rgb", np.zeros((SIZE, SIZE, 3), np.uint8))
    batch = data_of(table, "segmentation").batch(torch.tensor([0]))
    assert batch.target[0, ::4, 0].tolist() == [0, 1, 0, 0]
    assert batch.valid[0, ::4, 0].tolist() == [True, True, False, False]


# Packing


@pytest.mark.parametrize("name", STORED)
def test_packed_array_is_mapped_and_in_the_order_of_the_table(table: Table, name: str) -> None:
    channels, dtype = STORED[name]
    encoding = TASKS[name].encoding
    packed, unreadable = load_packed(table, encoding, SIZE)
    assert isinstance(packed, np.memmap)
    assert (packed.shape, packed.dtype, unreadable) == ((len(table), channels, SIZE, SIZE), dtype, [])
    for position in (0, 17, len(table) - 1):
        np.testing.assert_array_equal(packed[position], pack_image(table, position, encoding, SIZE))


@pytest.mark.parametrize("domain", ["rgb", "normal", "depth_euclidean", "segment_semantic", "principal_curvature"])
def test_at_its_own_size_an_image_is_packed_as_it_is(table: Table, domain: str) -> None:
    encoding = RGB if domain == "rgb" else TASKS[domain].encoding
    packed, _ = load_packed(table, encoding, 32)
    for position, cell in list(enumerate(table.cells(domain)))[::11]:
        values = np.atleast_3d(Image.open(table.data_path / cell))[..., : encoding.channels]
        if domain == "segment_semantic":
            values = np.where(values == 0, VOID, values)  # 0 is "uncertain"
        np.testing.assert_array_equal(packed[position], values.transpose(2, 0, 1))


def test_packed_once_until_a_file_changes(own_copy: Path) -> None:
    table = read_table(own_copy)
    array = own_copy / f"packed/{SIZE}/normal.npy"

    def pack() -> tuple[np.ndarray, tuple[int, int]]:
        packed, _ = load_packed(table, NORMAL, SIZE)
        status = array.stat()
        return np.array(packed), (status.st_ino, status.st_mtime_ns)

    first, made = pack()
    assert pack()[1] == made
    source = own_copy / table.cells("normal")[5]
    os.utime(source, ns=(0, 0))
    touched, again = pack()
    assert again != made
    np.testing.assert_array_equal(touched, first)
    write(source, np.full((32, 32, 3), 200, np.uint8))
    changed, last = pack()
    assert last != again
    assert (changed[5] == 200).all()
    np.testing.assert_array_equal(np.delete(changed, 5, 0), np.delete(first, 5, 0))


def test_other_images_are_packed_anew(tmp_path: Path) -> None:
    whole = table_of(tmp_path, 3)
    for value, cell in enumerate(whole.image_ids):
        write(tmp_path / cell, np.full((SIZE, SIZE, 3), value, np.uint8))
    for chosen in ([0, 1], [0, 1, 2], [2, 0]):
        table = table_of(tmp_path, len(chosen))
        table.files["rgb"] = tuple(whole.image_ids[i] for i in chosen)
        packed, _ = load_packed(table, RGB, SIZE)
        assert packed[:, 0, 0, 0].tolist() == chosen


@pytest.mark.parametrize(
    "changes",
    [{"fit": "stretch"}, {"classes": {"mask": ClassSet(("b", "a"), (1, 0))}}, {"limits": {"mask": 300.0}}],
    ids=["fit", "classes", "limits"],
)
def test_what_the_table_says_of_its_images_is_packed_anew(tmp_path: Path, changes: dict[str, object]) -> None:
    said = {"classes": {"mask": ClassSet(("a", "b"))}}
    table, other = (table_of(tmp_path, 1, ["rgb", "mask"], **each) for each in (said, said | changes))
    write_all(table, "mask", np.eye(SIZE, 20, dtype=np.uint8))
    encoding = TASKS["segmentation"].encoding
    first, _ = load_packed(table, encoding, SIZE)
    assert packed_version(table, encoding, SIZE) is not None and packed_version(other, encoding, SIZE) is None
    second, _ = load_packed(other, encoding, SIZE)
    assert (first == second).all() == ("limits" in changes)


def test_rows_of_one_file_are_packed_until_it_changes(tmp_path: Path) -> None:
    table = table_of(tmp_path, 3)
    table.files["rgb"] = tuple(f"x.npz#images/{row}" for row in (2, 0, 1))
    for add in (0, 50):
        images = np.arange(3, dtype=np.uint8).repeat(SIZE * SIZE * 3).reshape(3, SIZE, SIZE, 3) + np.uint8(add)
        np.savez(tmp_path / "x.npz", images=images)
        packed, unreadable = load_packed(table, RGB, SIZE)
        assert packed[:, 0, 0, 0].tolist() == [2 + add, add, 1 + add] and not unreadable


def test_unreadable_images_are_listed_and_left_out(own_copy: Path, table: Table) -> None:
    whole = data_of(table, "depth_euclidean")
    cells = table.cells("depth_euclidean")
    truncated, narrow, text, far, gone = *table.train[[2, 9, 30, 31]].tolist(), int(table.test[4])
    (own_copy / cells[truncated]).write_bytes((own_copy / cells[truncated]).read_bytes()[:300])
    write(own_copy / cells[narrow], np.full((32, 32), 9, np.uint8))
    (own_copy / cells[text]).write_text("no picture")
    write(own_copy / cells[far], np.full((32, 32), 63 * 512, np.uint16))
    (own_copy / cells[gone]).unlink()
    broken = sorted((truncated, narrow, text, far, gone))

    data = data_of(read_table(own_copy), "depth_euclidean")
    assert np.flatnonzero(~data.readable).tolist() == broken
    np.testing.assert_array_equal(data.train, np.setdiff1d(table.train, broken))
    np.testing.assert_array_equal(data.test, np.setdiff1d(table.test, broken))
    listing = (own_copy / f"packed/{SIZE}/unreadable_depth_euclidean.txt").read_text().splitlines()
    reasons = dict(line.split(": ", 1) for line in listing)
    assert list(reasons) == [cells[position] for position in broken]
    for position, reason in ((truncated, "not a readable image"), (narrow, "pixel format L"), (text, "not a readable"),
                             (far, "its median 32256 is above 10240"), (gone, "No such file")):  # fmt: skip
        assert reason in reasons[cells[position]]
    intact = torch.from_numpy(np.flatnonzero(data.readable))
    for mine, theirs in zip(vars(data.batch(intact)).values(), vars(whole.batch(intact)).values(), strict=True):
        assert torch.equal(mine, theirs)


def test_list_of_unreadable_images_goes_with_the_last_of_them(tmp_path: Path) -> None:
    table = table_of(tmp_path, 2)
    listing = tmp_path / f"packed/{SIZE}/unreadable_rgb.txt"
    write(tmp_path / table.image_ids[0], np.zeros((SIZE, SIZE, 3), np.uint8))
    assert load_packed(table, RGB, SIZE)[1] == [1] and listing.is_file()
    write(tmp_path / table.image_ids[1], np.zeros((SIZE, SIZE, 3), np.uint8))
    assert load_packed(table, RGB, SIZE)[1] == []
    assert not listing.exists()


def test_truncated_array_is_packed_again(tmp_path: Path) -> None:
    table = table_of(tmp_path, 1)
    write_all(table, "rgb", np.full((SIZE, SIZE, 3), 7, np.uint8))
    load_packed(table, RGB, SIZE)
    array = tmp_path / f"packed/{SIZE}/rgb.npy"
    array.write_bytes(array.read_bytes()[:200])
    assert (load_packed(table, RGB, SIZE)[0] == 7).all()


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no rgb image can be read.*point_0_view_0.*No such file"):
        data_of(table_of(tmp_path), "class_scene")


@pytest.mark.parametrize("part", [[0, 1, 2], [3]], ids=["train", "test"])
def test_a_part_without_readable_images_is_an_error(tmp_path: Path, part: list[int]) -> None:
    table = table_of(tmp_path)
    for position, cell in enumerate(table.image_ids):
        if position not in part:
            write(tmp_path / cell, np.zeros((SIZE, SIZE, 3), np.uint8))
    with pytest.raises(UserError, match=r"class_scene: . training and . test images; run extract_datapoints"):
        data_of(table, "class_scene")


def test_batch_is_decoded_from_16_bit_values(tmp_path: Path) -> None:
    table = table_of(tmp_path, 4, ["rgb", "depth_euclidean"])
    for position in range(4):
        write(tmp_path / table.image_ids[position], np.full((SIZE, SIZE, 3), 51 * position, np.uint8))
        depth = np.full((SIZE, SIZE), 512 + position, np.uint16)
        depth[0], depth[1] = 40000, 65535
        write(tmp_path / table.cells("depth_euclidean")[position], depth)
    data = TaskData(table, get_task("depth_euclidean", "metric"), SIZE, CPU)
    batch = data.batch(torch.tensor([3, 1]))
    assert batch.images[:, 0, 0, 0].tolist() == pytest.approx([0.6, 0.2])  # 153/255, 51/255
    assert batch.target[:, 0, 5, 5].tolist() == pytest.approx([515 / 512, 513 / 512])
    assert (batch.target[:, 0, 0] == 78.125).all()  # 40000/512, above what a signed 16-bit number holds
    assert batch.valid[:, 0, :, 0].tolist() == [[True, False, *[True] * (SIZE - 2)]] * 2


@pytest.mark.parametrize(
    "name", [name for name in TASKS if name not in ("segmentation", *MAPS)]
)  # the rooms lack these
def test_batches_of_every_task_are_finite_and_have_its_shapes(table: Table, name: str) -> None:
    data = data_of(table, name)
    task, batch = data.task, data.batch(torch.tensor([4, 0, 40]))
    assert batch.images.shape == (3, 3, SIZE, SIZE)
    assert batch.images.min() >= 0 and batch.images.max() <= 1
    if task.boxes:
        assert batch.target.shape[2] == 5 and batch.target[batch.valid].min() >= 0
        return
    shape = (3,) if not task.dense else (3, SIZE, SIZE) if task.categorical else (3, task.out_channels, SIZE, SIZE)
    shape = (3, 5, SIZE, SIZE) if task.instances else shape
    assert batch.target.shape == shape and batch.target.isfinite().all()
    assert batch.valid.dtype == torch.bool and batch.valid.any()
    assert torch.broadcast_shapes(batch.valid.shape, shape) == shape


def test_an_array_that_says_no_version_is_packed_once_more(tmp_path: Path) -> None:
    table = table_of(tmp_path, 2)
    for number, cell in enumerate(table.image_ids):
        write(tmp_path / cell, np.full((20, 20, 3), number, np.uint8))
    before, _ = load_packed(table, RGB, SIZE)
    version = packed_version(table, RGB, SIZE)
    manifest = tmp_path / "packed" / str(SIZE) / "rgb.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: value for name, value in said.items() if name != "sha256"}))
    assert packed_version(table, RGB, SIZE) is None
    after, _ = load_packed(table, RGB, SIZE)
    assert (after == before).all() and packed_version(table, RGB, SIZE) == version is not None
