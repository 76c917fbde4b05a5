"""Progress: a bar on a terminal, and a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from utils.words import plural

_APART = 60.0  # seconds between two lines of a log, at least: what is done sooner needs none


def bar(iterable: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> tqdm:
    """A progress bar, with tqdm's arguments and methods; where stderr is no terminal, lines in place of it.

    A log gets at most one line per tenth of the whole, and none where the work takes less than a minute, so that
    messages are not lost among bars that were drawn over each other.

    Args:
        iterable: what to iterate over; without it, `total` and `update` tell the progress.
        shown: whether this process shows anything; of several, one does.
        options: tqdm's, such as `total`, `initial`, `desc` and `unit`.
    """
    if shown and not sys.stderr.isatty():
        return _Lines(iterable, **options)
    return tqdm(iterable, disable=not shown, **options)


def say(line: str) -> None:
    """Print a line on stderr, above a bar that is shown there."""
    tqdm.write(line, file=sys.stderr)


class _Lines(tqdm):
    """A tqdm that draws nothing, and prints a line when another tenth is done."""

    def __init__(self, iterable: Iterable[Any] | None, desc: str = "", unit: str = "it", **options: Any) -> None:
        super().__init__(iterable, disable=True, **options)
        self.what, self.unit, self.postfix = desc, unit, ""
        self._start = self._last = time.monotonic()
        self._tenths = self._tenth()

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update()

    def update(self, n: int = 1) -> None:
        """Count n more as done."""
        self.n += n
        now = time.monotonic()
        if self._tenth() > self._tenths and now - self._last >= _APART:
            self._tenths, self._last = self._tenth(), now
            values = f", {self.postfix}" if self.postfix else ""
            elapsed = self.format_interval(now - self._start)
            print(f"{self.what}: {self.n} of {self.total} {plural(self.unit)} after {elapsed}{values}", file=sys.stderr)

    def _tenth(self) -> int:
        return 10 * self.n // self.total if self.total else 0
