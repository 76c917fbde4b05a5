"""Files written beside their name and renamed: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike
from safetensors import SafetensorError

from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # on Windows, where files that others have open cannot be replaced, either
    print("error: this runs on Linux and macOS; on Windows, run it in WSL", file=sys.stderr)
    sys.exit(2)


_UNFINISHED = ".unfinished-"  # how names of folders begin in which a file is being written


def as_file_name(text: str) -> str:
    """A text as a file's name: what file systems or shells may take amiss is an underscore.

    >>> as_file_name("timm:vit_tiny/16"), as_file_name("0.1")
    ('timm_vit_tiny_16', '0.1')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (whose folder is made if missing), renamed to it when the block ends well.

    A full disk or a folder that may not be written is a `UserError`; the old file stays in either case. What killed
    processes have left in the folder is removed when a process first writes there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(path.parent.resolve())
        folder, handle = _own_folder(path.parent)
    except OSError as error:
        raise _refused(path, error) from error
    temporary = folder / f"unfinished{path.suffix}"
    try:
        temporary.touch()
        yield temporary
        # Some writers make files private; give them the permissions that a plain open would.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _own_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, locked until its handle is closed or this process is gone.

    A folder, because whoever writes a file may put another in its place, which would not be locked.
    """
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=_UNFINISHED))
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # where there are no locks, nothing is taken for left
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)  # before it was locked, another process took it for left


@cache
def _remove_unfinished(parent: Path) -> None:
    """Remove what gone processes were writing in a folder, once in a process: there may be many files."""
    for folder in parent.glob(f"{_UNFINISHED}*"):
        with suppress(OSError):  # another process writes there, or has removed it
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def files_below(folder: Path, pattern: str) -> list[Path]:
    """The files in a folder and in all folders below it whose names fit a pattern, sorted; without unfinished ones.

    Other processes may write there meanwhile: where a folder goes before it is looked into, `Path.rglob` fails.
    """
    return sorted(
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        if not Path(parent).name.startswith(_UNFINISHED)
        for name in names
        if fnmatch(name, pattern)
    )


@contextmanager
def locked(path: Path, refusal: str = "") -> Iterator[None]:
    """Hold the lock of this file while the block runs: one process at a time is in it, and a killed one lets go.

    The others wait; with a `refusal` they raise it as a `UserError` at once. The file stays, empty. A file system
    that knows no locks does without.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise _refused(path, error) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise UserError(refusal) from None
        yield


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, to the temporary path of `write_atomically`; OSError where the disk refuses."""
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:  # it hides the error of the system in its text
        raise OSError(None, str(error)) from error


def new_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> np.memmap:
    """A new `.npy` file of zeros, memory-mapped, whose space on the disk is taken at once; OSError where it is full.

    Without that, the first write to a page without space would kill the process.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # others: a file system that cannot
                raise
    return array


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a `.npy` file, atomically."""
    with write_atomically(path) as temporary:
        np.save(temporary, array)


def write_from(path: Path, start: int, array: np.ndarray) -> None:
    """Write an array's bytes into a file from byte `start` on, and cut off what was there; UserError where refused."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if start else "wb") as file:
            file.truncate(start)
            file.seek(start)
            file.write(array.tobytes())
    except OSError as error:
        raise _refused(path, error) from error


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def json_in(path: Path) -> Any:
    """The JSON in `path`; OSError where it cannot be read, ValueError where it is none, or of endless brackets."""
    return json_of(path.read_text(encoding="utf-8-sig"))


def json_of(text: str) -> Any:
    """The JSON that a text is; ValueError where it is none, of endless brackets, or with a name twice in one object."""
    try:
        return json.loads(text, object_pairs_hook=_object_of)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a name that stands there twice, Python would keep the last value alone."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands there twice in one object")
    return content


def read_json(path: Path, made_by: str) -> Any:
    """The JSON in `path`; a `UserError` names the stage `made_by` where it is missing or broken."""
    try:
        return json_in(path)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; run {made_by} first") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run {made_by} again") from error


def _refused(path: Path, error: OSError) -> UserError:
    # NumPy only counts what it could not write.
    reason = os.strerror(errno.ENOSPC) if "requested and" in str(error) else error.strerror or error
    return UserError(f"{path}: cannot be written ({reason}); make room or give another folder")
