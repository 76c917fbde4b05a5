"""What several sources share: names of parts, images in folders, and classes as numbers."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from datasets.classes import ClassSet
from datasets.pages import n_images_in
from datasets.sources.names import alike
from datasets.stored import file_of, is_inside
from datasets.tasks import CLASS
from utils import progress
from utils.errors import UserError
from utils.words import counted, some

DOMAIN = "domain"  # the group column of where images come from
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
OTHER_PICTURES = (  # whose files are no photographs here, though somebody may take them for such
    ".apng", ".avif", ".heic", ".heif", ".ico", ".j2k", ".jfif", ".jpe", ".jp2", ".jxl", ".pbm", ".pnm", ".tga", ".svg",
    ".psd", ".exr", ".hdr", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw", ".dcm", ".nii", ".mp4", ".avi", ".mov",
    ".mkv",
)  # fmt: skip
_TWO_PATHS = re.compile(r"(\S*/\S+)\s+\S*/\S+")  # of a photograph and its mask, as in the lists of SBD
_NUMBER = re.compile(r"-?\d+(\.\d*)?", re.ASCII)
_PARTS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test",
    "testing": "test", "t10k": "test",  # MNIST's own name of its test images
}  # fmt: skip


def part_named(name: str) -> str | None:
    """The part (train, val or test) that folders, columns and arrays call by this name; None for other names."""
    return _PARTS.get(name.strip().lower())


def not_read(name: str) -> bool:
    """Whether a file is of pictures by its ending, and of none that is read."""
    return not name.startswith(".") and name.lower().endswith(OTHER_PICTURES)


def say_not_read(folder: str, names: Iterable[str]) -> None:
    """Print how many files of a folder have which endings that are not read; nothing where there are none."""
    endings = Counter(Path(name).suffix.lower() for name in names if not_read(name))
    if endings:
        shown = ", ".join(f"{n} {ending}" for ending, n in endings.most_common())
        print(f"left out files of {folder} whose endings are not read as photographs: {shown}")


def say_no_part(folder: str, names: Sequence[str]) -> None:
    """Print the folders with photographs whose names begin with no part, where `{part}` stands in `folder`."""
    if names:
        print(
            f"left out folders of {folder} with photographs, called like no split (train, val, test): {some(names, 8)}"
        )


def say_pages(data_path: Path, cells: Sequence[str]) -> None:
    """Print how many photographs are one of several images in their file; the first is read."""
    files = [cell for cell in cells if file_of(cell) == cell]
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda cell: n_images_in(data_path / cell), files)
        amounts = list(progress.bar(answers, total=len(files), desc="images of each file", unit="file"))
    if several := sum(n > 1 for n in amounts):
        most, cell = max(zip(amounts, files, strict=True))
        print(
            f"{counted(several, 'photograph')} with several images in the file, up to {most} in {cell}: the first of "
            "each is read"
        )


def names_in(path: Path) -> Iterator[str]:
    """The photographs that a list of Pascal VOC's names, one a line, without their endings; none without the list.

    Names may have dots and spaces. What is not UTF-8 is replaced: then no such photograph is there, which is said.
    """
    for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines() if path.is_file() else ():
        pair = _TWO_PATHS.fullmatch(name := line.strip())
        name = pair[1] if pair else name
        ending = next((suffix for suffix in IMAGE_ENDINGS if name.lower().endswith(suffix)), "")
        if name := name[: len(name) - len(ending)]:
            yield name


def list_images(data_path: Path, deepest: int) -> tuple[list[str], list[str]]:
    """The cells of all image files under a folder, sorted, and the files that are left out, with the reason.

    Hidden files and folders are passed over, and what lies more than `deepest` folders deep is not looked for. A file
    that links show at several places is taken once, where it lies itself if it is among them.
    """
    cells: list[str] = []
    errors: list[str] = []
    for entry in walk(data_path, deepest, (*IMAGE_ENDINGS, *OTHER_PICTURES)):
        cell = Path(entry.path).relative_to(data_path).as_posix()
        is_image = entry.name.lower().endswith(IMAGE_ENDINGS)
        error = file_error(data_path, cell) if is_image else "a picture whose ending is not read"
        if error is None:
            cells.append(cell)
        else:
            errors.append(f"{cell!r}: {error}")
    unique, again = taken_once(data_path, cells)
    return unique, sorted(errors + again)


def taken_once(data_path: Path, cells: Sequence[str]) -> tuple[list[str], list[str]]:
    """The cells, sorted, without those that are by a link the file of another one, and these, with the reason."""
    real, root = dict(zip(cells, real_paths(data_path, cells), strict=True)), data_path.resolve()
    taken: dict[Path, str] = {}
    again = []
    for cell in sorted(cells, key=lambda cell: (real[cell] != root / cell, cell)):
        if (first := taken.setdefault(real[cell], cell)) != cell:
            again.append(f"{cell!r}: by a link the same file as {first!r}")
    return sorted(taken.values()), again


def real_paths(data_path: Path, cells: Iterable[str]) -> Iterator[Path]:
    """Where the files of cells are, behind all links."""
    resolved = cache(Path.resolve)
    for cell in cells:
        path = resolved((data_path / cell).parent) / Path(cell).name
        yield Path(os.path.realpath(path)) if path.is_symlink() else path


def walk(folder: Path, deepest: int, endings: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
    """The files with these endings, in small letters or not, in a folder and up to `deepest` folders in it.

    Hidden ones are passed over; there are none where there is no folder.
    """
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in seen:
        if entry.is_dir():
            if deepest:
                yield from walk(Path(entry.path), deepest - 1, endings)
        elif entry.name.lower().endswith(endings):
            yield entry


def file_error(data_path: Path, cell: str) -> str | None:
    """Why a file cannot be an image of the table, as far as its name and size tell; None where it can."""
    if not is_inside(cell) or file_of(cell) != cell or not _is_text(cell):
        return "a name that the table cannot hold"
    try:
        status = (data_path / cell).stat()
    except OSError as error:
        return "no such file" if isinstance(error, FileNotFoundError) else error.strerror
    if not stat.S_ISREG(status.st_mode):
        return "no file"
    return None if status.st_size else "an empty file"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return True


def number_classes(
    texts: Sequence[str], names: Mapping[int, str] | None = None
) -> tuple[np.ndarray, dict[str, ClassSet]]:
    """The images' classes as numbers, (N,) int64, -1 where the text is empty, and what `DatasetInfo.classes` says.

    The classes are the texts that occur, sorted, as numbers where all are whole numbers. With `names`, the texts are
    ids already, and these the names by id. `UserError` where one has no name, or is a negative number among numbers.
    Classes that differ only in capitals, spaces or the coding of accents are reported.
    """
    different = set(texts) - {""}
    if all(map(_NUMBER.fullmatch, different)) and (
        negative := sorted(text for text in different if text.startswith("-"))
    ):
        raise UserError(f"class {negative[0]!r}: classes are numbered from 0 on, and no class is no text")
    if names:
        order = [str(number) for number in names]
        if strange := sorted(different - set(order)):
            is_row = list(names) == list(range(len(names)))
            known = f"0..{len(names) - 1}" if is_row else some(order, 12)
            raise UserError(f"class {strange[0]!r} is not one of {known}, which have names")
    else:
        order = (
            sorted(different, key=lambda text: (int(text), text))
            if all(map(_is_number, different))
            else sorted(different)
        )
        _say_lookalikes(order)
    if not order:
        return np.full(len(texts), -1), {}
    numbers = {"": -1, **{text: number for number, text in enumerate(order)}}
    called = tuple(names.values()) if names else tuple(order)
    return np.array([numbers[text] for text in texts], np.int64), {CLASS: ClassSet(called)}


def _say_lookalikes(names: Sequence[str]) -> None:
    """Print the classes that are told apart by capitals, spaces, the coding of accents or zeros in front alone."""
    if several := [text.partition("called ")[2] for text in alike(dict(enumerate(names)))]:
        print(f"{', '.join(several)} are taken for different classes; if they are one, write them alike")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
