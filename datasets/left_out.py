"""What a source leaves out, counted by reason: the errors that it names say where, then why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_MOST_REASONS = 4  # of a line
_ASIDE = re.compile(r"\s*\([^()]*\)|'[^']*'|\"[^\"]*\"")
_OWN = re.compile(r"\S*/\S+|-?\d[\d.]*(?:e[-+]?\d+)?")  # paths and numbers, which are others in each error


def reason_of(error: str) -> str:
    """Why something was left out, without what is its own.

    >>> reason_of("images/a.jpg: box 0.1 0.2 0.1 0.4 has no area")
    'box … … … … has no area'
    """
    _, colon, why = _ASIDE.sub("", error).rpartition(": ")
    return _OWN.sub("…", why).strip() if colon else "no such file"


def by_reason(errors: Iterable[str]) -> list[tuple[str, int]]:
    """The reasons, the commonest first, and how often each is one."""
    return Counter(map(reason_of, errors)).most_common()


def main_error(errors: Sequence[str]) -> str:
    """What an error adds where nothing is left: the commonest reason with an example; empty without errors."""
    if not errors:
        return ""
    [(reason, n), *_] = by_reason(errors)
    example = next(error for error in errors if reason_of(error) == reason)
    return f"; the commonest error, {n} of {len(errors)}: {example}"


def in_a_line(errors: Sequence[str]) -> str:
    """How often each reason is one: `8 × there is no such mask; 2 × an empty file`."""
    reasons = by_reason(errors)
    more = len(reasons) - _MOST_REASONS
    shown = [f"{n} × {reason}" for reason, n in reasons[:_MOST_REASONS]]
    return "; ".join(shown) + (f"; and {more} other reasons" if more > 0 else "")
