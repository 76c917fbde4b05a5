"""Whether the numbers of a picture are those that were saved: what formats and Pillow change of them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
from PIL import Image

_PNG, _WIDER = b"\x89PNG\r\n\x1a\n", (2, 4, 6)  # a file's first bytes, and its header's types of colour and opacity
_FEW_BITS = re.compile(r"L;([24])")  # how Pillow calls greys of two and four bits
_AVIF = (b"ftypavif", b"ftypavis")


def is_deep_colour(path: Path) -> bool:
    """Whether a file is a PNG of 16 bits with colours or opacity, of which Pillow gives the upper 8 without a word."""
    if not path.is_file():
        return False  # a row of an array
    with path.open("rb") as file:
        head = file.read(26)
    return head.startswith(_PNG) and len(head) == 26 and head[24] == 16 and head[25] in _WIDER


def stretch_of(image: Image.Image) -> tuple[int, int]:
    """The largest number that a file may hold, and what Pillow makes of it; of an image that is not read yet.

    Greys of two and four bits become those of eight, and so do those of a PGM file, whose header has the largest, or
    else of 16.
    """
    tile = getattr(image, "tile", None)  # which images have that are of files
    name, *_, arguments = tile[0] if tile else ("", None)
    raw, *rest = arguments if isinstance(arguments, tuple) and arguments else (arguments,)
    if match := _FEW_BITS.match(str(raw)):
        return 2 ** int(match[1]) - 1, 255
    if name in ("ppm", "ppm_plain"):
        return int(rest[0]), 65535 if image.mode == "I" else 255
    return 1, 1


def as_saved(values: np.ndarray, stretch: tuple[int, int]) -> np.ndarray:
    """Numbers that Pillow has stretched, see `stretch_of`, as they stand in the file."""
    most, becomes = stretch
    if becomes == 1:
        return values
    dtype = np.uint16 if becomes > 255 else np.uint8
    return (
        values.astype(dtype) if most == becomes else np.rint(values.astype(np.float64) * most / becomes).astype(dtype)
    )


def check_ids(path: Path) -> None:
    """ValueError where a file's format has changed the numbers of pixels, as that of a JPEG file does."""
    if not path.is_file():
        return  # a row of an array
    with path.open("rb") as file:
        head = file.read(16)
        is_lossy = head.startswith(b"\xff\xd8") or head[4:12] in _AVIF
        is_lossy = is_lossy or (head[:4] == b"RIFF" and head[8:12] == b"WEBP" and _is_lossy_webp(path))
    if is_lossy:
        raise ValueError("saved with loss (JPEG, WebP, AVIF), which changes ids; save it as PNG")


def _is_lossy_webp(path: Path) -> bool:
    """Whether the first picture in a WebP file is saved with loss."""
    with path.open("rb") as file:
        file.seek(12)
        while len(head := file.read(8)) == 8:
            name, length = struct.unpack("<4sI", head)
            if name in (b"VP8 ", b"VP8L"):
                return name == b"VP8 "
            file.seek(16 if name == b"ANMF" else length + length % 2, 1)
    return False
