"""Images decoded once: one memory-mapped array a domain, in the source's own integer depth.

`<data_path>/packed/<size>/<domain>.npy` has the shape (N, C, size, size), with the images in the order of the
selection, and `<domain>.json` says from which files it was made; it is made again when they change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from datasets.taskonomy import View
from datasets.tasks import Encoding
from utils.errors import UserError
from utils.files import locked, write_atomically, write_json
from utils.filling import fill
from utils.versions import file_digest

TRANSFORM_VERSION = 1  # to be raised when the resizing changes, so that old arrays are made again
_BLOCK = 256  # views between two chances to stop
_MODES = {"uint8": ("L", "P", "RGB", "RGBA"), "uint16": ("I;16", "I;16B", "I")}


def read_image(path: Path, encoding: Encoding) -> np.ndarray:
    """One file's stored values, (C, H, W) in `encoding.dtype`; ValueError says what is wrong with the file.

    A one-channel domain may be stored with equal channels (reshading) or a palette (segment_semantic), and
    two-channel ones (curvature) stand in the first two of three. Images that are not square lose their margins.
    """
    try:
        with Image.open(path) as image:
            if image.mode not in _MODES[encoding.dtype]:
                raise ValueError(f"pixel format {image.mode} where {encoding.domain} has {encoding.dtype}")
            values = np.asarray(image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"not a readable image ({error})") from error
    values = np.atleast_3d(values).transpose(2, 0, 1)
    if len(values) < encoding.channels:
        raise ValueError(f"{len(values)} channels where {encoding.domain} has {encoding.channels}")
    side = min(values.shape[1:])
    top, left = ((length - side) // 2 for length in values.shape[1:])
    return values[: encoding.channels, top : top + side, left : left + side].astype(encoding.dtype)


def surface(values: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Which pixels of (…, C, H, W) show a surface: (…, H, W) bool, all of them where the encoding has no mark."""
    if encoding.nothing is None:
        return np.ones(values.shape[:-3] + values.shape[-2:], bool)
    mark = np.asarray(encoding.nothing, values.dtype)[:, None, None]
    return (values != mark).any(axis=-3)


def resize(values: np.ndarray, valid: np.ndarray, size: int, categorical: bool) -> tuple[np.ndarray, np.ndarray]:
    """Resize (C, H, W) with its mask (H, W) to (size, size) each, never mixing invalid pixels into valid ones.

    The mask and ids take the nearest pixel. Other values take the antialiased bilinear mean over the valid pixels
    alone (the weights of the rest are dropped and the mean divided by what is left).
    """
    mask = torch.from_numpy(valid)[None, None].float()
    nearest = F.interpolate(mask, (size, size), mode="nearest-exact")[0, 0] > 0
    source = torch.from_numpy(values.astype(np.float32))[None]
    if categorical:
        resized = F.interpolate(source, (size, size), mode="nearest-exact")
    else:
        resized = _smooth(source * mask, size) / _smooth(mask, size).clamp(min=1e-6)
    largest = np.iinfo(values.dtype).max
    rounded = resized[0].round().clamp(0, largest).numpy().astype(values.dtype)
    return rounded, nearest.numpy()


def _smooth(values: Tensor, size: int) -> Tensor:
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True, align_corners=False)


def stored_channels(encoding: Encoding) -> int:
    """Channels of the packed array: the domain's own, and one for the mask where another domain holds it."""
    return encoding.channels + (encoding.mask is not None)


def pack_view(data_path: Path, view: View, encoding: Encoding, size: int) -> np.ndarray:
    """One view's packed values, (stored channels, size, size); ValueError names an unreadable file's fault."""
    values = read_image(_existing(data_path, view, encoding.domain), encoding)
    if encoding.mask is None:
        valid = surface(values, encoding)
    else:
        try:
            valid = surface(read_image(_existing(data_path, view, encoding.mask.domain), encoding.mask), encoding.mask)
        except ValueError as error:
            raise ValueError(f"its mask, the {encoding.mask.domain} file: {error}") from error
        if valid.shape != values.shape[1:]:
            raise ValueError(f"its size differs from that of {encoding.mask.domain}")
    resized, mask = resize(values, valid, size, encoding.categorical)
    if encoding.mask is not None:
        return np.concatenate([resized, mask[None].astype(encoding.dtype)])
    if encoding.nothing is not None:
        resized[:, ~mask] = np.asarray(encoding.nothing, encoding.dtype)[:, None]
    return resized


def load_packed(data_path: Path, views: Sequence[View], encoding: Encoding, size: int) -> tuple[np.ndarray, list[int]]:
    """The packed array of a domain, memory-mapped, made first where it is missing or stale.

    Returns the array, (N, stored channels, size, size), and the positions of views whose file cannot be read; these
    hold zeros and are to be left out. `packed/<size>/unreadable_<domain>.txt` names them and the reasons.
    """
    folder = data_path / "packed" / str(size)
    array_path, manifest_path = folder / f"{encoding.domain}.npy", folder / f"{encoding.domain}.json"
    fingerprint = _fingerprint(data_path, views, encoding, size)
    manifest, array = _packed_before(manifest_path, array_path, fingerprint)
    if array is not None:
        return array, manifest["unreadable"]
    with locked(folder / f".{encoding.domain}.lock"):  # who waits here finds it packed
        manifest, array = _packed_before(manifest_path, array_path, fingerprint)
        if array is None:
            fresh = folder / f"{encoding.domain}.new.npy"
            manifest = _pack(data_path, views, encoding, size, fresh, fingerprint)
            manifest_path.unlink(missing_ok=True)  # it must never speak of another array
            fresh.replace(array_path)
            write_json(manifest_path, manifest | {"fingerprint": fingerprint})
            fresh.with_suffix(".filled.json").unlink()  # the manifest says the same
            array = np.load(array_path, mmap_mode="c", allow_pickle=False)
        return array, manifest["unreadable"]


def _packed_before(manifest_path: Path, array_path: Path, fingerprint: str) -> tuple[dict, np.ndarray | None]:
    """The manifest, and the packed array, None where it is not of this fingerprint or says no version of itself."""
    manifest = _read_manifest(manifest_path)
    current = manifest.get("fingerprint") == fingerprint and "sha256" in manifest
    return manifest, _map(array_path) if current else None


def packed_version(data_path: Path, views: Sequence[View], encoding: Encoding, size: int) -> str | None:
    """SHA-256 of a domain's packed array; None where it is not packed yet, or its files have changed since."""
    manifest = _read_manifest(data_path / "packed" / str(size) / f"{encoding.domain}.json")
    current = manifest.get("fingerprint") == _fingerprint(data_path, views, encoding, size)
    return manifest.get("sha256") if current else None


def _pack(
    data_path: Path, views: Sequence[View], encoding: Encoding, size: int, target: Path, fingerprint: str
) -> dict:  # fmt: skip
    """Decode all views in parallel into `target`; returns the manifest's account of unreadable files.

    Where a call with the same fingerprint was stopped, this one goes on.
    """
    shape = (len(views), stored_channels(encoding), size, size)
    blocks = np.split(np.arange(len(views)), np.arange(_BLOCK, len(views), _BLOCK))
    title = f"packing {encoding.domain} at {size} px"
    # Threads are enough: decoding and resizing leave the interpreter lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def pack_block(array: np.ndarray, rows: np.ndarray) -> list[str | None]:
            return list(pool.map(lambda row: pack_one(array, row), rows.tolist()))

        def pack_one(array: np.ndarray, row: int) -> str | None:
            try:
                array[row] = pack_view(data_path, views[row], encoding, size)
            except ValueError as error:
                return f"{views[row].path(encoding.domain)}: {error}"
            return None

        answers = fill(target, shape, encoding.dtype, fingerprint, blocks, pack_block, title)
    faults = [fault for block in answers for fault in block]
    reasons = {row: fault for row, fault in enumerate(faults) if fault is not None}
    unreadable = sorted(reasons)
    if len(unreadable) == len(views):
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
    return {
        "domain": encoding.domain, "images": len(views), "size": size, "unreadable": unreadable,
        "sha256": file_digest(target),
    }  # fmt: skip


def _existing(data_path: Path, view: View, domain: str) -> Path:
    path = view.find(data_path, domain)
    if path is None:
        raise ValueError(f"the {domain} file is missing")
    return path


def _fingerprint(data_path: Path, views: Sequence[View], encoding: Encoding, size: int) -> str:
    """SHA-256 over everything that the packed array depends on: files with sizes and times, encoding, version."""
    digest = hashlib.sha256(f"{TRANSFORM_VERSION} {encoding} {size}".encode())
    for view in views:
        for part in filter(None, (encoding, encoding.mask)):
            path = view.find(data_path, part.domain)
            status = path.stat() if path else None
            digest.update(f"{view} {path and path.name} {status and (status.st_size, status.st_mtime_ns)}".encode())
    return digest.hexdigest()


def _read_manifest(path: Path) -> dict:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _map(path: Path) -> np.ndarray | None:
    """The array in `path`, memory-mapped; None where it is missing or cut short."""
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
