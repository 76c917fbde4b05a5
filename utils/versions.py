"""What a run was made with: the code that bears on its numbers, its data, and the files that it read."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Modules that stages import and that only show or note what others computed.
_ASIDE = {"utils/plots.py", "utils/partition_plots.py", "utils/tables.py", "utils/versions.py"}


@cache
def code_version(script: str) -> str | None:
    """SHA-256 over the script and every module of the project that it imports, directly or through others.

    Comments, docstrings and layout have no part in it, and neither have modules that only draw or tabulate: an edit
    there leaves the numbers as they are. Remembered once computed, so that it is of the code as it was loaded and not
    of later edits. None if there is no such script in the project's root.
    """
    path = ROOT / Path(script).name
    if path.suffix != ".py" or not path.is_file():
        return None
    digest = hashlib.sha256()
    for source, code in sorted(_sources(path).items()):
        digest.update(f"{source}\n{code}\n".encode())
    return digest.hexdigest()


def _sources(script: Path) -> dict[str, str]:
    """The code of a script and of the modules that it needs, without comments and docstrings, by path."""
    found: dict[str, str] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(ROOT).as_posix()
        if name not in found and name not in _ASIDE:
            tree = _without_docstrings(ast.parse(path.read_bytes()))
            found[name] = ast.unparse(tree)
            modules = {Path(module.replace(".", "/")) for module in _imports(tree)}
            packages = {folder / "__init__" for module in modules for folder in (module, *module.parents)}
            files = [ROOT / f"{module}.py" for module in modules | packages]
            waiting += [file for file in files if file.is_file()]
    return found


def _imports(tree: ast.Module) -> set[str]:
    """The names after `import`, and those after `from` both alone and with each name that is taken from them."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return tree


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content; of a file that many runs read computed once, as long as it stays as it is."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@cache
def _digest(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(paths: Iterable[Path], start: Path) -> dict[str, str]:
    """SHA-256 of each of the files that are there; names are relative to `start`, and hold when all moves together."""
    return {os.path.relpath(path, start): file_digest(path) for path in paths if path.is_file()}


def unchanged(recorded: Mapping[str, str], start: Path) -> bool:
    """Whether all files of `digests` are still what they were."""
    return digests((start / name for name in recorded), start) == recorded


def provenance(result_path: Path, data_version: str | None = None, reads: Iterable[Path] = ()) -> dict[str, Any]:
    """What `environment.json` says of a run's origin: the versions of code and data, and the files it reads."""
    return {
        "code_version": code_version(sys.argv[0]),
        "data_version": data_version,
        "inputs": digests(reads, result_path),
    }
