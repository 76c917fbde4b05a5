"""The command that this process carries out: its own command line or, in a process of a sweep, that of a job."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_of_job: Sequence[str] = ()


def command_line() -> list[str]:
    """The script and its arguments."""
    return [*(_of_job or sys.argv)]


@contextmanager
def in_place_of_own(command: Sequence[str]) -> Iterator[None]:
    """Within this, scripts that are called here read and record this command instead of the process's own."""
    global _of_job
    before, _of_job = _of_job, command
    try:
        yield
    finally:
        _of_job = before
