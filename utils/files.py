"""Files written beside their name and renamed: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utils.errors import UserError


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path in the folder of `path` (made if missing), renamed to it when the block ends well.

    A full disk or a folder that may not be written is a `UserError`; the old file stays in either case.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; give them the permissions that a plain open would.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, made_by: str) -> Any:
    """The JSON in `path`; a `UserError` names the stage `made_by` where it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; run {made_by} first") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run {made_by} again") from error
