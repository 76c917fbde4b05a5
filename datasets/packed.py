"""Images decoded once: one memory-mapped array per domain, in the source's own integer depth.

`<data_path>/packed/<size>/<domain>.npy` has the shape (N, C, size, size), with the images in the order of the
table, and `<domain>.json` says from which files it was made; it is made again when they change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.as_saved import check_ids
from datasets.boxes import BoxPacker
from datasets.classes import VOID, ClassSet
from datasets.instances import classes_and_objects, numbered
from datasets.maps import read_map
from datasets.stored import file_of, forget_members, photograph_frame, read_photograph, read_values
from datasets.table import NEAREST, Table
from datasets.tasks import DIRECTIONS, RGB, Encoding, Scale
from utils.errors import UserError
from utils.files import json_in, locked, write_array, write_atomically, write_json
from utils.filling import fill, note_of
from utils.versions import file_digest

TRANSFORM_VERSION = 3  # to be raised when the resizing changes, so that old arrays are made again
_MOST_ZEROS = 0.01  # share of an image's distances that may be 0
_BLOCK = 256  # images between two chances to stop
_WIDE = ("I;16", "I;16B", "I")
_MODES = {"uint8": ("L", "RGB", "RGBA"), "uint16": _WIDE}
_MODES_OF_IDS = ("1", "L", "P", "RGB", "RGBA", *_WIDE)


def read_image(data_path: Path, cell: str, encoding: Encoding) -> np.ndarray:
    """One cell's stored values, (C, H, W) in `encoding.dtype`, ids as they are; ValueError says what is wrong with it.

    A one-channel domain may be stored with equal channels (reshading) or a palette (masks), and two-channel ones
    (curvature) stand in the first two of three.
    """
    if encoding.photograph:
        return read_photograph(data_path, cell)
    if encoding.categorical:
        check_ids(data_path / cell)
    modes = _MODES_OF_IDS if encoding.categorical else _MODES[encoding.dtype]
    values = read_values(data_path, cell, modes, encoding.domain in DIRECTIONS)
    if len(values) < encoding.channels:
        raise ValueError(f"{len(values)} channels where {encoding.domain} has {encoding.channels}")
    if encoding.channels == 1 and (values[1:3] != values[:1]).any():
        raise ValueError(f"a colour picture where {encoding.domain} has one channel")
    values = values[: encoding.channels]
    return _to_integers(values, encoding) if encoding.categorical else _without_loss(values, encoding)


def _to_integers(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Ids as whole numbers, which may be stored as floats; ValueError for others."""
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.rint(values)).all():
        return values.astype(np.int64)
    if values.dtype.kind not in "ui":
        raise ValueError(f"{values.dtype} values where {encoding.domain} has ids, which are whole numbers")
    return values


def _without_loss(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Stored values in `encoding.dtype`; ValueError where it is not theirs, or too narrow for them."""
    dtype = np.dtype(encoding.dtype)
    is_integer = values.dtype.kind in "ui" and values.dtype.itemsize >= dtype.itemsize
    if not is_integer or values.min() < 0 or values.max() > np.iinfo(dtype).max:
        span = f"{values.dtype} values from {values.min()} to {values.max()}"
        raise ValueError(f"{span} where {encoding.domain} has {dtype}")
    return values.astype(dtype)


def class_numbers(ids: np.ndarray, classes: ClassSet) -> np.ndarray:
    """Ids of mask files, of any shape, as the numbers of their classes, uint8, and `VOID` where they are of none.

    ValueError where no id is known, not even as void: the file is then no mask of these classes.
    """
    known = classes.ids or tuple(range(len(classes.names)))
    if not np.isin(ids, (*known, *classes.void)).any():
        raise ValueError("no pixel has the id of a class")
    beyond = max(*known, *classes.void, 0) + 1  # for all ids from here on
    numbers = np.full(beyond + 1, VOID, np.uint8)
    numbers[list(known)] = np.arange(len(known))
    numbers[list(classes.void)] = VOID
    wide = ids.astype(np.int64)
    return numbers[np.where((wide < 0) | (wide > beyond), beyond, wide)]


def surface(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Which pixels of (…, C, H, W) show a surface: (…, H, W) bool, all of them where the encoding has no mark."""
    if encoding.nothing is None:
        return np.ones(values.shape[:-3] + values.shape[-2:], bool)
    mark = np.asarray(encoding.nothing, values.dtype)[:, None, None]
    return (values != mark).any(axis=-3)


def resize(values: np.ndarray, valid: np.ndarray, size: int, nearest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Resize (C, H, W) with its mask (H, W) to (size, size) each, never mixing invalid pixels into valid ones.

    The mask takes the nearest pixel, as do ids and all that is to be `nearest`. Other values take the antialiased
    bilinear mean over the valid pixels alone (weights of the rest are dropped, and the mean divided by what is left).
    """
    mask = torch.from_numpy(valid)[None, None].float()
    smaller = F.interpolate(mask, (size, size), mode="nearest-exact")[0, 0] > 0
    source = torch.from_numpy(values.astype(np.float32))[None]
    if nearest:
        resized = F.interpolate(source, (size, size), mode="nearest-exact")
    else:
        resized = _smooth(source.where(mask > 0, 0.0), size) / _smooth(mask, size).clamp(min=1e-6)
    if values.dtype.kind == "f":
        return resized[0].numpy(), smaller.numpy()
    largest = np.iinfo(values.dtype).max
    rounded = resized[0].round().clamp(0, largest).numpy().astype(values.dtype)
    return rounded, smaller.numpy()


def _smooth(values: Tensor, size: int) -> Tensor:
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True, align_corners=False)


def square(values: np.ndarray, fit: str) -> tuple[np.ndarray, np.ndarray]:
    """Values (C, H, W) ready to be resized to a square, and which of their pixels (H, W) are of the image.

    "crop" cuts out the middle, "pad" adds margins of value 0 around it, "stretch" leaves the shape as it is.
    """
    height, width = values.shape[1:]
    if fit == "stretch" or height == width:
        return values, np.ones((height, width), bool)
    side = (min if fit == "crop" else max)(height, width)
    top, left = (abs(length - side) // 2 for length in (height, width))
    if fit == "crop":
        return values[:, top : top + side, left : left + side], np.ones((side, side), bool)
    padded, inside = np.zeros((len(values), side, side), values.dtype), np.zeros((side, side), bool)
    padded[:, top : top + height, left : left + width] = values
    inside[top : top + height, left : left + width] = True
    return padded, inside


def has_mask_channel(encoding: Encoding, fit: str) -> bool:
    """Whether the packed array has one more channel, the mask of what counts, as the values alone cannot tell."""
    return encoding.mask is not None or (fit == "pad" and encoding.nothing is None and not encoding.photograph)


def pack_image(table: Table, row: int, encoding: Encoding, size: int) -> np.ndarray:
    """One image's packed values, (stored channels, size, size); ValueError names an unreadable file's error."""
    cell = table.cells(encoding.domain)[row]
    if encoding.maps is not None:
        scale = table.info.scales.get(encoding.domain, Scale())
        values = read_map(
            table.data_path, cell, encoding, scale, [table.files[name][row] for name in table.masks(encoding.domain)]
        )
    elif encoding.photograph:
        values = read_photograph(table.data_path, cell, table.info.levels)
    else:
        values = read_image(table.data_path, cell, encoding)
    if encoding.categorical:
        values = class_numbers(values, table.info.classes[encoding.domain])
    values = _upright(values, table, row, encoding)
    if encoding.mask is None:
        valid = surface(values, encoding)
    else:
        try:
            mask = read_image(table.data_path, table.cells(encoding.mask.domain)[row], encoding.mask)
            mask = _upright(mask, table, row, encoding.mask)
        except ValueError as error:
            raise ValueError(f"its mask, the {encoding.mask.domain} file: {error}") from error
        valid = surface(mask, encoding.mask)
        if valid.shape != values.shape[1:]:
            raise ValueError(f"its size differs from that of {encoding.mask.domain}")
    check_limit(values[:, valid], table.info.limits.get(encoding.domain), encoding)
    # Both are cut in the same way; margins show no surface.
    (values, inside), (valid, _) = square(values, table.info.fit), square(valid[None], table.info.fit)
    if encoding.maps is not None and encoding.maps.flow:  # in pixels of the size that it gets
        values = values * (size / np.array(values.shape[:0:-1], np.float32))[:, None, None]
    nearest = encoding.categorical or _takes_nearest(table, encoding)
    resized, mask = resize(values, valid[0] & inside, size, nearest)
    if encoding.photograph:
        resized[:, ~mask] = 0  # smoothing takes the image's border a pixel into the margin
    if has_mask_channel(encoding, table.info.fit):
        return np.concatenate([resized, mask[None].astype(encoding.dtype)])
    if encoding.nothing is not None:
        resized[:, ~mask] = np.asarray(encoding.nothing, encoding.dtype)[:, None]
    return resized


def _takes_nearest(table: Table, encoding: Encoding) -> bool:
    """Whether values that are no ids are resized as these are, because the table says so."""
    return table.info.resize == NEAREST and not (encoding.photograph or encoding.categorical)


def pack_instances(table: Table, row: int, encoding: Encoding, size: int) -> np.ndarray:
    """One image's packed map of objects, (2, size, size) uint8; ValueError names an unreadable file's error."""
    values = read_values(table.data_path, table.cells(encoding.domain)[row], _MODES_OF_IDS)
    maps = classes_and_objects(_upright(values, table, row, encoding), table.info.classes[encoding.labelled_by])
    return numbered(*resize(*square(maps, table.info.fit), size, nearest=True))


def _upright(values: np.ndarray, table: Table, row: int, encoding: Encoding) -> np.ndarray:
    """A target (C, H, W), turned with its photograph; ValueError where it cannot be of it.

    As it is where the photograph is itself, or cannot be read, so that the image is left out for that.
    """
    if encoding.photograph:
        return values
    try:
        frame = photograph_frame(table.data_path, table.image_ids[row])
    except ValueError:
        return values
    return frame.upright(values, encoding.domain)


def check_limit(counted: np.ndarray, limit: float | None, encoding: Encoding) -> None:
    """ValueError where the median of the values that count is above what the table allows, or many of them are 0.

    What is limited is a distance, none of which is 0 in Taskonomy; elsewhere 0 is what was not measured.
    """
    if limit is None or not counted.size:
        return
    if (median := float(np.median(counted))) > limit:
        raise ValueError(f"its median {median:g} is above {limit:g}: {encoding.domain} in another unit?")
    zeros = float((counted == 0).mean())
    if zeros > _MOST_ZEROS and not encoding.categorical:
        raise ValueError(f"{zeros:.0%} of it is 0, at the camera itself: {encoding.domain} in another encoding?")


def load_packed(table: Table, encoding: Encoding, size: int) -> tuple[np.ndarray, list[int]]:
    """The packed array of a domain, memory-mapped, made first where it is missing or stale.

    Returns the array, (N, stored channels, size, size) or of boxes (N, M, 5), and the positions of images whose file
    cannot be read; these hold zeros and are to be left out. `packed/<size>/unreadable_<domain>.txt` names them and the
    reasons.
    """
    folder = table.data_path / "packed" / str(size)
    array_path, manifest_path = folder / f"{encoding.domain}.npy", folder / f"{encoding.domain}.json"
    fingerprint = _fingerprint(table, encoding, size)
    manifest, array = _packed_before(manifest_path, array_path, fingerprint)
    if array is not None:
        return array, manifest["unreadable"]
    with locked(folder / f".{encoding.domain}.lock"):  # who waits here finds it packed
        manifest, array = _packed_before(manifest_path, array_path, fingerprint)
        if array is None:
            fresh = folder / f"{encoding.domain}.new.npy"
            manifest = _pack(table, encoding, size, fresh, fingerprint)
            manifest_path.unlink(missing_ok=True)  # it must never describe another array
            fresh.replace(array_path)
            write_json(manifest_path, manifest | {"fingerprint": fingerprint})
            note_of(fresh).unlink()  # the manifest says the same
            array = np.load(array_path, mmap_mode="c", allow_pickle=False)
        return array, manifest["unreadable"]


def _packed_before(manifest_path: Path, array_path: Path, fingerprint: str) -> tuple[dict, np.ndarray | None]:
    """The manifest, and the packed array, None where the manifest has another fingerprint or no version."""
    manifest = _read_manifest(manifest_path)
    current = manifest.get("fingerprint") == fingerprint and "sha256" in manifest
    return manifest, _map(array_path) if current else None


def take_packed(table: Table, encoding: Encoding, size: int, rows: np.ndarray, other: Table) -> None:
    """Write the packed array of a table whose images are these rows of another: it needs no files of images then."""
    array, _ = load_packed(table, encoding, size)
    folder = other.data_path / "packed" / str(size)
    write_array(folder / f"{encoding.domain}.npy", array[rows])
    manifest = {"domain": encoding.domain, "images": len(rows), "size": size, "unreadable": []}
    sums = {
        "sha256": file_digest(folder / f"{encoding.domain}.npy"),
        "fingerprint": _fingerprint(other, encoding, size),
    }
    write_json(folder / f"{encoding.domain}.json", manifest | sums)


def packed_version(table: Table, encoding: Encoding, size: int) -> str | None:
    """SHA-256 of a domain's packed array; None where it is not packed yet, or its files have changed since."""
    manifest = _read_manifest(table.data_path / "packed" / str(size) / f"{encoding.domain}.json")
    current = manifest.get("fingerprint") == _fingerprint(table, encoding, size)
    return manifest.get("sha256") if current else None


def _pack(table: Table, encoding: Encoding, size: int, target: Path, fingerprint: str) -> dict:
    """Decode all images in parallel into `target`; returns the manifest's account of unreadable files.

    Where a call with the same fingerprint was stopped, this one goes on.
    """
    cells, (shape, pack, boxes) = table.cells(encoding.files), _packer(table, encoding, size)
    blocks = np.split(np.arange(len(cells)), np.arange(_BLOCK, len(cells), _BLOCK))
    title = f"packing {encoding.domain} at {size} px"
    # Threads are enough: decoding and resizing leave the interpreter lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def pack_block(array: np.ndarray, rows: np.ndarray) -> list[str | None]:
            """What is wrong with each image of a block, None where it is packed."""
            return list(pool.map(lambda row: pack_one(array, row), rows.tolist()))

        def pack_one(array: np.ndarray, row: int) -> str | None:
            """What is wrong with an image; None where it is packed."""
            try:
                array[row] = pack(row)
            except ValueError as error:
                return f"{cells[row]}: {error}"
            return None

        answers = fill(target, (len(table), *shape), encoding.dtype, fingerprint, blocks, pack_block, title)
    forget_members()
    errors = [error for block in answers for error in block]
    reasons = {row: error for row, error in enumerate(errors) if error is not None}
    unreadable = sorted(reasons)
    if len(unreadable) == len(cells):
        raise UserError(
            f"no {encoding.domain} image can be read, the first because: {reasons[0]}; "
            f"download or make the {encoding.domain} files anew"
        )
    listing = target.with_name(f"unreadable_{encoding.domain}.txt")
    listing.unlink(missing_ok=True)
    if unreadable:
        with write_atomically(listing) as temporary:
            temporary.write_text("".join(f"{reasons[position]}\n" for position in unreadable), encoding="utf-8")
        print(f"left out {len(unreadable)} unreadable {encoding.domain} images, listed in {listing}")
    left_out = {} if boxes is None else boxes.left_out(np.load(target, mmap_mode="r", allow_pickle=False), unreadable)
    return {
        "domain": encoding.domain, "images": len(cells), "size": size, "unreadable": unreadable,
        "sha256": file_digest(target), **left_out,
    }  # fmt: skip


def _packer(
    table: Table, encoding: Encoding, size: int
) -> tuple[tuple[int, ...], Callable[[int], np.ndarray], BoxPacker | None]:
    """The shape of an image's packed values, what makes them of its row, and what knows of boxes, if they are these."""
    if encoding.boxes:
        boxes = BoxPacker(table, size)
        return boxes.shape, boxes.pack, boxes
    pack = pack_instances if encoding.instances else pack_image
    channels = encoding.channels + has_mask_channel(encoding, table.info.fit)
    return (channels, size, size), lambda row: pack(table, row, encoding, size), None


def _fingerprint(table: Table, encoding: Encoding, size: int) -> str:
    """SHA-256 over everything that the packed array depends on: files with sizes and times, encoding, version."""
    # How a target is turned, and where boxes lie, is told by the photograph's file.
    info, parts = table.info, [part for part in (encoding, encoding.mask, RGB) if part is not None]
    inputs = (TRANSFORM_VERSION, encoding, size, info.fit, info.limits.get(encoding.domain))
    digest = hashlib.sha256(f"{inputs} {info.classes.get(encoding.labelled_by)}".encode())
    if encoding.photograph and info.fit == "pad":
        digest.update(b"margins without the image's border")  # others are as they were, and stay packed
    if _takes_nearest(table, encoding):
        digest.update(NEAREST.encode())
    if encoding.boxes:
        digest.update(table.fingerprint.encode())
    if encoding.photograph and info.levels is not None:
        digest.update(f"levels {info.levels}".encode())
    if encoding.maps is not None:
        scale = info.scales.get(encoding.domain)
        digest.update(f"{encoding.maps} {scale}{scale.more or '' if scale else ''}".encode())
        digest.update(b"only vectors of length 1" * encoding.maps.signed)
    status = cache(lambda name: _status(table.data_path / name))  # of an array file that has many rows once
    domains = [*dict.fromkeys(part.files for part in parts), *table.masks(encoding.domain)]
    for cells in zip(*map(table.cells, domains), strict=True):
        for cell in cells:
            digest.update(f"{cell} {status(file_of(cell))}".encode())
    return digest.hexdigest()


def _status(path: Path) -> tuple[int, int] | None:
    """Size and time of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _read_manifest(path: Path) -> dict:
    try:
        manifest = json_in(path)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _map(path: Path) -> np.ndarray | None:
    """The array in `path`, memory-mapped; None where it is missing or cut short."""
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
