"""How much work something is, counted instead of timed: the same on any machine, however busy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from cProfile import Profile
from pstats import Stats


@contextmanager
def at_most(n_calls: int) -> Iterator[None]:
    """What runs within calls at most so many functions, Python's and C's; one that works on an array is one call."""
    profile = Profile()
    with profile:
        yield
    assert (found := Stats(profile).total_calls) <= n_calls, found  # type: ignore[attr-defined]
