"""Versions of the code and of files, and which runs count that were made with other ones."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

ROOT = Path(__file__).parents[1]
# The version of what each stage computes, but for what has a version of its own: methods (`FedAvg.version`), tasks,
# partition rules, encoders and decoders (`version` of their entries). Raised by one where numbers change;
# `tests/test_golden.py` finds out whether they do.
ENGINE = {
    "train_centralized_task_model": 1,
    "extract_embeddings": 2,
    "extract_diffusion_features": 2,
    "test_fed": 2,
}
_PUBLISHED = {"train_federated": "test_fed"}  # names of the same stage
REUSE = ANY, SAME_VERSION, SAME_SOURCE = "any", "same_version", "same_source"
_SOURCES = ("datasets", "models", "network", "utils")  # beside the files in the root


@cache
def source_hash() -> str:
    """SHA-256 of the project's Python files as they are when this is first called, comments and all."""
    digest = hashlib.sha256()
    files = [*ROOT.glob("*.py"), *(path for folder in _SOURCES for path in (ROOT / folder).rglob("*.py"))]
    for name, path in sorted((path.relative_to(ROOT).as_posix(), path) for path in files):
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def stage_of(script: str) -> str:
    """The stage that a script is, as `ENGINE` names it: `train_federated.py` and `test_fed.py` are the same."""
    stage = Path(script).stem
    return _PUBLISHED.get(stage, stage)


def declared(record: Mapping[str, Any]) -> dict[str, int] | None:
    """The `code_version` in an `environment.json`; None in one from before versions were declared."""
    version = record.get("code_version")
    known = isinstance(version, dict) and all(isinstance(number, int) for number in version.values())
    return version if known else None


class Verdict(NamedTuple):
    """Whether a run that was made earlier counts, and in what its code differs from the present; "" if in nothing."""

    counts: bool
    difference: str


@dataclass(frozen=True)
class CodePolicy:
    """Which runs that were made earlier count: `REUSE` has any, those of the same declared versions, which is usual,
    and those whose source files were the same, too.
    """

    reuse: str = SAME_VERSION

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> CodePolicy:
        """As a script's arguments say; see `utils.args.add_code`."""
        return cls(config.get("reuse", SAME_VERSION))

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that say the same."""
        return () if self.reuse == SAME_VERSION else ("--reuse", self.reuse)

    def judge(self, record: Mapping[str, Any], now: Mapping[str, Any]) -> Verdict:
        """Compares what an `environment.json` says with `code_of` the present code."""
        was, present = declared(record), declared(now)
        if was != present:
            return Verdict(self.reuse == ANY, _difference(was, present))
        if record.get("source_hash") != now.get("source_hash"):
            return Verdict(self.reuse != SAME_SOURCE, "other source files of the same declared versions")
        return Verdict(True, "")


DECLARED = CodePolicy()  # the one that asks for nothing else


def _difference(was: dict[str, int] | None, now: dict[str, int] | None) -> str:
    if was is None or now is None:
        return "an unknown version of the code, from before versions were declared"
    parts = sorted(part for part in {*was, *now} if was.get(part) != now.get(part))
    return ", ".join(f"version {was.get(part, 'none')} of {part} (now {now.get(part, 'none')})" for part in parts)


@cache
def warn(line: str) -> None:
    """Print a warning on stderr, once in a process."""
    print(f"warning: {line}", file=sys.stderr)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, computed once for many runs as long as the file does not change."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@cache
def _digest(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ids_digest(ids: np.ndarray) -> str:
    """SHA-256 of integers (N,), whatever their dtype."""
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()


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
