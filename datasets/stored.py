"""The pixels that a cell of the table names: an image file, or one row of an array file.

A cell is a path relative to the data folder, `rgb/a.png`, or such a path with a row behind it:

| cell | what |
|---|---|
| `x.npy`, `x.hdf5` | the array, as a map of numbers |
| `x.npy#17` | row 17 of the array |
| `x.npz#train_images/17` | row 17 of the member `train_images` |
| `x.bin#3073:3x32x32` | bytes from offset 3073 on, in the shape (3, 32, 32) |

`.bin` may also be `-ubyte`, the ending of MNIST's files. Nothing is unpickled.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngImageFile

from datasets import exr, flow_files, hdf5
from datasets.as_saved import as_saved, is_deep_colour, stretch_of
from datasets.broken import FAULTS
from datasets.frame import SIDEWAYS, Frame
from datasets.pages import check_alone, n_images
from utils.errors import UserError

# Warnings about metadata that changes no pixel: broken EXIF entries, palettes that could have an alpha channel. And of
# large images: those that Pillow takes for bombs are left out with a reason, and half as large ones are read.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

_ARRAYS = (".npy", *hdf5.ENDINGS)
_ROW = re.compile(r"(.+(?:\.(?:npy|npz|bin)|-ubyte))#([^#]+)", re.IGNORECASE)
_BYTES = re.compile(r"(\d{1,18}):(\d{1,9}(?:x\d{1,9}){1,3})")
_IN_MEMBER = re.compile(r"(.+)/(\d{1,18})")
_UNPACKING = Lock()  # two threads must not unpack the same large member twice
_START_OF_PNG = 8  # bytes before its pieces
_DEEP = "I;16"  # how Pillow's modes of 16 bits begin
_UNKNOWN_SCALE = ("I", "F")  # 32 bits, of which nobody knows what is white
_TURNS = {  # that make an image upright, by what its EXIF entry says
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def is_inside(cell: str) -> bool:
    """Whether a cell names a file that lies in the data folder, by its path alone."""
    # Tables have millions of cells: a path of each would take most of the time that reading one does.
    leads_out = cell.startswith("/") or ".." in cell.split("/")
    return bool(cell) and not leads_out and not re.search(r"[\\\0\n\r]", cell)


def file_of(cell: str) -> str:
    """The file of a cell, without the row behind it."""
    match = _ROW.fullmatch(cell)
    return match[1] if match else cell


def read_photograph(data_path: Path, cell: str, levels: tuple[float, float] | None = None) -> np.ndarray:
    """A cell's photograph in any mode, turned as its EXIF entry says: (3, H, W) uint8 RGB; ValueError if unreadable.

    `levels` are the values of 16 bits that are black and white, by default 0 and 65535.
    """
    values = _read_row(data_path, cell)
    if values is None:
        if levels is not None and is_deep_colour(data_path / cell):
            raise ValueError("a colour PNG of 16 bits, of which 8 are read and have no --levels; save it with 8")
        with _opened(data_path / cell) as (image, _):
            if image.mode in _UNKNOWN_SCALE and not _is_grey_map(image):
                raise ValueError(f"pixel format {image.mode} where a photograph should be")
            upright = _turned(image)
            if _is_grey_map(image):
                return _as_rgb(np.asarray(image, np.uint16), levels)
            # Pillow would cut 16-bit values off at 255.
            values = np.asarray(upright if image.mode.startswith(_DEEP) else upright.convert("RGB"))
    return _as_rgb(values, levels)


def deep_values(data_path: Path, cell: str) -> np.ndarray | None:
    """The numbers of a photograph of 16 bits, of colour PNG the upper 8 of them; None of others, and where unreadable.

    Whether it is one is told by a file's header.
    """
    try:
        values = _read_row(data_path, cell)
        if values is None:
            with Image.open(regular_file(data_path / cell)) as image:
                is_colour = is_deep_colour(data_path / cell)
                if not (is_colour or image.mode.startswith(_DEEP)):
                    return None
                values = np.asarray(_not_mapped(image), np.uint16)
                return values << 8 if is_colour else values
    except FAULTS:
        return None
    return values if values.dtype.kind == "u" and values.dtype.itemsize == 2 else None


def photograph_size(data_path: Path, cell: str) -> tuple[int, int]:
    """Height and width of a cell's photograph as `read_photograph` gives it, without its pixels where it is a file."""
    frame = photograph_frame(data_path, cell)
    return frame.height, frame.width


def photograph_frame(data_path: Path, cell: str) -> Frame:
    """The frame of a cell's photograph, from its header alone where it is a file; ValueError if unreadable."""
    values = _read_row(data_path, cell)
    if values is not None:
        return Frame(*_as_rgb(values).shape[1:])
    try:
        with Image.open(regular_file(data_path / cell)) as image:
            return Frame(*_upright_size(image), _turn(image))
    except FAULTS as error:
        raise ValueError(f"not a readable image ({error})") from error


def read_pair(path: Path) -> flow_files.Pair:
    """A file's pair of depth maps; ValueError where it holds none, or one that lies outside the data folder."""
    pair = flow_files.Pair.read(path)
    for cell in (pair.depth, pair.depth_next):
        if not is_inside(cell):
            raise ValueError(f"{cell!r} is not a path within the data folder")
    return pair


def values_size(data_path: Path, cell: str) -> tuple[int, int]:
    """Height and width of what `read_values` gives, or of EXR or files of flow, from the header alone of a file.

    ValueError as there.
    """
    if cell.lower().endswith(exr.ENDING):
        return exr.exr_size(data_path / cell)
    if cell.lower().endswith(flow_files.PAIR):
        cell = read_pair(data_path / cell).depth
    if cell.lower().endswith(flow_files.FLO):
        return flow_files.flo_size(data_path / cell)
    values = _read_row(data_path, cell)
    if values is None and cell.lower().endswith(_ARRAYS):
        values = open_array(data_path / cell)
    if values is not None:
        return _channels_first(values).shape[1:]
    try:
        with Image.open(regular_file(data_path / cell)) as image:
            return _upright_size(image)
    except FAULTS as error:
        raise ValueError(f"not a readable image ({error})") from error


def read_values(data_path: Path, cell: str, modes: tuple[str, ...], directions: bool = False) -> np.ndarray:
    """A cell's values as they are stored, (C, H, W), turned as its own EXIF entry says.

    Whether something is, which one bit tells, is 0 and 1. ValueError if it is unreadable, one of several images in a
    file, in none of Pillow's `modes`, or turned and holds `directions`.
    """
    values = _read_row(data_path, cell)
    if values is None and cell.lower().endswith(_ARRAYS):
        values = np.array(open_array(data_path / cell))
    if values is None:
        if is_deep_colour(data_path / cell):
            raise ValueError("a PNG of 16 bits with colours or opacity, of which 8 would be read; save it as .npy")
        with _opened(data_path / cell, is_target=True) as (image, stretch):
            if image.mode not in modes:
                raise ValueError(f"pixel format {image.mode} where one of {', '.join(modes)} should be")
            if directions and _turn(image) is not None:
                raise ValueError(
                    "its own EXIF entry turns it, and directions cannot be turned with it; save it upright"
                )
            values = as_saved(np.asarray(_turned(image)), stretch)
    return _channels_first(values.astype(np.uint8) if values.dtype == bool else values)


def open_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file, mapped: a header that claims terabytes takes none. ValueError where there is none.

    That of an HDF5 file is read.
    """
    if path.suffix.lower() in hdf5.ENDINGS:
        return hdf5.read_hdf5(path)
    try:
        array = np.load(regular_file(path), mmap_mode="r", allow_pickle=False)
    except FAULTS as error:
        raise ValueError(f"cannot be read as a NumPy array of numbers ({error})") from error
    if not isinstance(array, np.ndarray):
        raise ValueError("cannot be read as a NumPy array of numbers (it is an archive)")
    return array


def regular_file(path: Path) -> Path:
    """The path; OSError where it is of no file: to open a named pipe would wait for who never writes into it."""
    if path.exists() and not path.is_file():
        raise OSError("no file")
    return path


@contextmanager
def _opened(path: Path, is_target: bool = False) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """An image that is read, and of a target what Pillow has made of its numbers, see `stretch_of`.

    ValueError where it cannot be read, or is a target and not alone in its file.
    """
    try:
        image = _not_mapped(Image.open(regular_file(path)))
        n, stretch = (n_images(image), stretch_of(image)) if is_target else (1, (1, 1))
        image.load()
    except FAULTS as error:
        raise ValueError(f"not a readable image ({error})") from error
    check_alone(n)
    with image:
        yield image, stretch


def _not_mapped(image: Image.Image) -> Image.Image:
    """An image that is not read yet and will not be mapped where it is a TIFF file that lies on its side.

    Pillow (13.0) maps plain grey ones in the shape that they have upright, which mixes their rows; without a name, it
    reads them.
    """
    if image.format == "TIFF" and _turn(image) in SIDEWAYS:
        image.filename = ""  # type: ignore[attr-defined]
    return image


def _is_grey_map(image: Image.Image) -> bool:
    """Whether an image is a PGM file of more than 8 bits: Pillow makes its largest number 65535."""
    return image.format == "PPM" and image.mode == "I"


def _upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of an image whose pixels are not read yet, when it is turned as its EXIF entry says."""
    # Of a TIFF file, Pillow gives the upright size at once, and turns the pixels as it reads them.
    is_upright = _turn(image) not in SIDEWAYS or image.format == "TIFF"
    return image.size[::-1] if is_upright else image.size


def _turned(image: Image.Image) -> Image.Image:
    """The image as its EXIF entry says."""
    turn = _turn(image)
    return image if turn is None else image.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What makes an image upright, by its EXIF entry; None where it is, or that cannot be read."""
    try:
        if isinstance(image, PngImageFile) and not _may_tell_turn(Path(os.fsdecode(image.filename))):
            return None
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except FAULTS:
        return None
    return _TURNS.get(orientation) if isinstance(orientation, int) else None


def _may_tell_turn(path: Path) -> bool:
    """Whether a PNG file has metadata: to look for some behind its pixels, Pillow would decode all of these."""
    with path.open("rb") as file:
        file.seek(_START_OF_PNG)
        while len(head := file.read(8)) == 8:
            length, name = struct.unpack(">I4s", head)
            if name in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"):
                return True
            file.seek(length + 4, os.SEEK_CUR)
    return False


def _read_row(data_path: Path, cell: str) -> np.ndarray | None:
    """The array that a cell with a row names; None for other cells."""
    match = _ROW.fullmatch(cell)
    if match is None:
        return None
    path, row = data_path / match[1], match[2]
    try:
        if parsed := _BYTES.fullmatch(row):
            shape, offset = tuple(map(int, parsed[2].split("x"))), int(parsed[1])
            if offset + math.prod(shape) > path.stat().st_size:
                raise ValueError("the file ends before")
            values = np.memmap(path, np.uint8, "r", offset, shape)
        elif parsed := _IN_MEMBER.fullmatch(row):
            with _UNPACKING:
                member = _member(path, parsed[1], path.stat().st_mtime_ns)
            if isinstance(member, str):
                raise ValueError(member)
            values = member[int(parsed[2])]
        elif row.isascii() and row.isdigit():
            values = open_array(path)[int(row)]
        else:
            raise ValueError("it is not a number")
    except FAULTS as error:
        raise ValueError(f"row {row} of {match[1]} cannot be read ({error})") from error
    return np.array(values)


@dataclass(frozen=True)
class Member:
    """An array of an `.npz` file that is open: shape, type, memory order ("C" or "F"), and the stream of its bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: Literal["C", "F"]
    stream: IO[bytes]


@contextmanager
def open_member(path: Path, name: str) -> Iterator[Member]:
    """Open an array of an `.npz` file, reading its header only.

    ValueError where there is none or it would have to be unpickled; also from the block, where it is broken.
    """
    try:
        with zipfile.ZipFile(regular_file(path)) as archive, archive.open(f"{name}.npy") as stream:
            is_first = npy.read_magic(stream) == (1, 0)
            shape, fortran, dtype = (npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0)(stream)
            if dtype.hasobject:
                raise ValueError("it is pickled, and nothing is unpickled; save it as an array of numbers or text")
            yield Member(shape, dtype, "F" if fortran else "C", stream)
    except FAULTS as error:
        raise ValueError(f"{path.name} has no readable array {name} ({error})") from error


@lru_cache(maxsize=8)
def _member(path: Path, name: str, modified: int) -> np.ndarray | str:
    """An array of an `.npz` file, memory-mapped, or what is wrong with it: found out once, and not for every row.

    However large it is, it takes no memory: it is unpacked into an unnamed file beside `path`, which disappears when
    the array is no longer used (see `forget_members`).
    """
    try:
        with open_member(path, name) as member:
            return _unpacked(member, path.parent)
    except ValueError as error:
        return str(error)


def _unpacked(member: Member, folder: Path) -> np.ndarray:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            shutil.copyfileobj(member.stream, file, 1 << 20)
            file.flush()
            return np.memmap(file, member.dtype, "r", 0, member.shape, member.order)
    except OSError as error:
        raise UserError(f"{folder}: cannot unpack an array there ({error.strerror or error}); make room") from error


def read_member(path: Path, name: str) -> np.ndarray:
    """An array of an `.npz` file as a whole, for small ones; ValueError where there is none or it is broken."""
    with open_member(path, name) as member:
        return np.frombuffer(member.stream.read(), member.dtype).reshape(member.shape, order=member.order)


def forget_members() -> None:
    """Let go of unpacked arrays, and with them of the space on the disk."""
    _member.cache_clear()


def _channels_first(values: np.ndarray) -> np.ndarray:
    """(H, W), (H, W, C) or (C, H, W) as (C, H, W)."""
    if values.ndim == 2 and values.size:
        return values[None]
    if values.ndim != 3 or not values.size:
        raise ValueError(f"an array of shape {values.shape} is not an image")
    return values if values.shape[0] <= 4 < values.shape[2] else values.transpose(2, 0, 1)


def _as_rgb(values: np.ndarray, levels: tuple[float, float] | None = None) -> np.ndarray:
    """Grey or colour values of 8 or 16 bits as (3, H, W) uint8; `levels` as of `read_photograph`."""
    values = _channels_first(values)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # of either byte order
        if levels is None:
            values = (values >> 8).astype(np.uint8)
        else:
            black, white = levels
            bright = (values.astype(np.float32) - black) / (white - black)
            values = np.rint(255 * bright.clip(0, 1)).astype(np.uint8)
    if values.dtype != np.uint8 or len(values) not in (1, 3, 4):
        raise ValueError(
            f"{len(values)} channels of {values.dtype} where a photograph has 1, 3 or 4 of uint8 or uint16"
        )
    return values[:3] if len(values) > 1 else values.repeat(3, axis=0)
