"""Files that hold several images: pages of a TIFF file, and frames of an animation.

A target must be alone in its file, as nobody knows which of several is meant. Of a photograph the first is read, as
other programs do, and a line says so.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from datasets.broken import FAULTS

_SIGNATURES = (b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"RIFF", b"\x89PNG")  # of files that may hold several
_ANIMATED = ("GIF", "PNG", "WEBP")
_KIND, _SMALLER, _TRANSPARENT = 254, 1, 4  # TIFF's tag NewSubfileType, and bits of it


def n_images(image: Image.Image) -> int:
    """How many images the file of one holds that is open, and at its first.

    Smaller copies of a page and masks of what it shows (TIFF 6.0, section 8, NewSubfileType) are none, unless they come
    first; nor are the pictures that telephones and cameras with two lenses put behind a JPEG.
    """
    if image.format in _ANIMATED:
        return getattr(image, "n_frames", 1)
    if image.format != "TIFF":
        return 1
    n = 1
    try:
        while True:
            image.seek(image.tell() + 1)
            n += not image.tag_v2.get(_KIND, 0) & (_SMALLER | _TRANSPARENT)  # type: ignore[attr-defined]
    except FAULTS:  # the last page is behind, or the next one broken
        image.seek(0)
    return n


def n_images_in(path: Path) -> int:
    """How many images a file holds, see `n_images`; 1 where it cannot be read."""
    if not path.is_file():  # to open a named pipe would wait for who never writes into it
        return 1
    try:
        with path.open("rb") as file:
            if not file.read(4).startswith(_SIGNATURES):
                return 1
        with Image.open(path) as image:
            return n_images(image)
    except FAULTS:
        return 1


def check_alone(n: int) -> None:
    """ValueError where a target is one of several images."""
    if n > 1:
        raise ValueError(f"{n} images in one file where one is to be")
