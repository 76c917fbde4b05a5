"""Large arrays that are filled block by block, and taken up again where the program was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from utils import progress
from utils.files import json_in, new_array, write_atomically, write_json

BETWEEN_NOTES = 30.0  # seconds of work that a kill may cost


def fill(
    path: Path,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    inputs: str,
    blocks: Sequence[np.ndarray],
    work: Callable[[np.memmap, np.ndarray], Any],
    title: str,
) -> list[Any]:
    """Make the `.npy` file `path` by `work(array, rows)` for each block of rows; other rows are 0.

    Until it is complete the array lies in `<name>.part.npy`; `<name>.filled.json` says from what and how far it is
    filled. A later call with the same `inputs` goes on there, with others it begins anew.

    Args:
        path: where the whole array goes.
        shape: of the array.
        dtype: of the array.
        inputs: names everything that the values depend on, e.g. a SHA-256 sum.
        blocks: the rows that are filled at a time.
        work: fills rows of the array; what it returns must be JSON.
        title: of the progress bar.

    Returns:
        What `work` has returned for each block. `UserError` where the disk is full or write-protected.
    """
    part, note = _unfilled(path), note_of(path)
    record = {"inputs": inputs, "shape": list(shape), "dtype": str(np.dtype(dtype)), "blocks": len(blocks)}
    array, done = _begun(part if part.is_file() else path, note, record)
    if not part.is_file() and len(done) == len(blocks):
        return done
    if array is None or not part.is_file():
        with write_atomically(part) as temporary:
            note.unlink(missing_ok=True)  # it says what is done of another array, and this one has only zeros
            new_array(temporary, shape, dtype)
        array, done = np.load(part, mmap_mode="r+", allow_pickle=False), []
    sizes = [len(rows) for rows in blocks]
    bar = progress.bar(total=sum(sizes), initial=sum(sizes[: len(done)]), desc=title, unit="image")
    saved_at = time.monotonic()
    try:
        for rows in blocks[len(done) :]:
            done.append(work(array, rows))
            bar.update(len(rows))
            if time.monotonic() - saved_at >= BETWEEN_NOTES:
                _note(array, note, record, done)
                saved_at = time.monotonic()
    except KeyboardInterrupt:
        _note(array, note, record, done)
        raise
    finally:
        bar.close()
    _note(array, note, record, done)
    part.replace(path)
    return done


def is_filled(path: Path, inputs: str) -> bool:
    """Whether the array `path` is complete and of these inputs."""
    try:
        return path.is_file() and not _unfilled(path).is_file() and json_in(note_of(path))["inputs"] == inputs
    except (OSError, ValueError, KeyError, TypeError):
        return False


def merge(path: Path, shape: tuple[int, ...], dtype: DTypeLike, inputs: str, parts: Mapping[Path, np.ndarray]) -> None:
    """Put the rows that several arrays have into one, complete and of these inputs, and remove the several.

    Args:
        path: of the whole array.
        shape: of it; rows that no part has are 0.
        dtype: of it.
        inputs: as for `fill`.
        parts: arrays, each with the rows of the whole array that it has.
    """
    with write_atomically(path) as temporary:
        array = new_array(temporary, shape, dtype)
        for part, rows in parts.items():
            array[rows] = np.load(part, mmap_mode="r", allow_pickle=False)
        array.flush()
    write_json(note_of(path), {"inputs": inputs})
    for part in parts:
        remove(part)


def note_of(path: Path) -> Path:
    """The file that says from what and how far the array `path` is filled."""
    return path.with_suffix(".filled.json")


def remove(path: Path) -> None:
    """Remove an array, filled or not yet filled, and before it its note, which must never describe another."""
    for file in (note_of(path), path, _unfilled(path)):
        file.unlink(missing_ok=True)


def _unfilled(path: Path) -> Path:
    """Where the array `path` lies until it is filled."""
    return path.with_suffix(".part.npy")


def _note(array: np.memmap, note: Path, record: dict[str, Any], done: list[Any]) -> None:
    array.flush()
    write_json(note, {**record, "done": done})


def _begun(part: Path, note: Path, record: dict[str, Any]) -> tuple[np.memmap | None, list[Any]]:
    """The array and the results of the blocks that are done; None for the array where nothing can be taken over."""
    try:
        saved = json_in(note)
        array = np.load(part, mmap_mode="r+", allow_pickle=False)
        done = saved.pop("done")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError):
        return None, []
    fits = saved == record and array.shape == tuple(record["shape"]) and str(array.dtype) == record["dtype"]
    return (array, done) if fits and isinstance(done, list) else (None, [])
