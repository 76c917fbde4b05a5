"""What a run was made with: the code that bears on its numbers, its data, and the files that it read."""

from __future__ import annotations

import hashlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.program import Program

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).parents[1]
# Modules that stages import and that only show or note what others computed.
_ASIDE = {
    "utils/plots.py", "utils/partition_plots.py", "utils/program.py", "utils/progress.py", "utils/tracking.py",
    "utils/versions.py",
}  # fmt: skip


@cache
def code_version(script: str, words: frozenset[str] = frozenset()) -> dict[str, str] | None:
    """SHA-256 sums of the code that a script runs with these words among its arguments; see `Program.version`.

    Comments, docstrings and layout do not count, nor do modules that only draw or tabulate; of registries only the
    entries count that the words lead to. The code is read once, for all words, so that the sums are of the code that
    was loaded and not of later edits. None if there is no such script in the project's root.
    """
    path = ROOT / Path(script).name
    return _program(path).version(words) if path.suffix == ".py" and path.is_file() else None


@cache
def _program(path: Path) -> Program:
    return Program(path, _ASIDE)


def words_of(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The words among the values of some arguments, each alone or in a list."""
    values = (each for value in arguments.values() for each in (value if isinstance(value, list) else [value]))
    return frozenset(value for value in values if isinstance(value, str))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, computed once for many runs as long as the file does not change."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@cache
def _digest(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and values of tensors, in their order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def digests(paths: Iterable[Path], start: Path) -> dict[str, str]:
    """SHA-256 of each file that exists; names are relative to `start`, so that they hold when all is moved together."""
    return {os.path.relpath(path, start): file_digest(path) for path in paths if path.is_file()}


def unchanged(recorded: Mapping[str, str], start: Path) -> bool:
    """Whether all files of `digests` are still what they were."""
    return digests((start / name for name in recorded), start) == recorded


def provenance(args: Namespace, data_version: str | None = None, reads: Iterable[Path] = ()) -> dict[str, Any]:
    """What `environment.json` says of a run's origin: the versions of code and data, and the files it reads.

    `args` are all the run's arguments, its method's and its model's among them; which file of weights its encoder
    started from, if any, is named beside these.
    """
    weights = getattr(args, "weights", None)
    return {
        "code_version": code_version(sys.argv[0], words_of(vars(args))),
        "data_version": data_version,
        "inputs": digests(reads, args.result_path),
        **({"encoder_weights": weights} if weights else {}),
    }
