"""How scripts read their arguments.

A script of the project's root imports of the project at its top only this module, `utils.settings`, `utils.stage` and
`utils.errors`; whatever else it needs, it imports in the function that needs it, and before it has read its arguments
only modules that import no PyTorch and the like.
So `--help` and a wrong argument are answered at once, and Ctrl-C while packages are imported (which takes seconds) ends
the script like at any other time. For the same reason modules that declare arguments, those of the federated methods
among them, import such packages for types alone, or in the function that computes with them.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from utils.command import command_line
from utils.errors import UserError
from utils.renamed import NAMES, present_value

# What `--help` puts arguments under, in this order.
_HEADINGS = (
    "grid",
    "data",
    "source",
    "model",
    "clusters",
    "partition",
    "training",
    "local training",
    "adapters",
    "method",
    "aggregation",
    "attack",
    "privacy",
    "non-participating clients",
    "output",
    "running",
)


class _Formatter(argparse.HelpFormatter):
    """Puts behind an argument's text its choices, where they are many, and its default, where that is informative."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if choices := _many(action.choices):
            text += f": {choices}"
        if default in (argparse.SUPPRESS, None, [], ()):
            return text
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)
        return f"{text} (default: {shown.replace('%', '%%')})"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """As argparse's, but a line that is indented stays one of its own."""
        first, *rest = text.split("\n  ")
        wrapper = textwrap.TextWrapper(width, initial_indent=f"{indent}  ", subsequent_indent=f"{indent}    ")
        return "\n".join([super()._fill_text(first, width, indent), *map(wrapper.fill, rest)])

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Callable[[int], tuple[str, ...]]:
        if _many(action.choices):
            return lambda size: (default_metavar,) * size
        return super()._metavar_formatter(action, default_metavar)


def _many(choices: Iterable[Any] | None) -> str:
    """The choices in a line, if they are too many to stand before the text."""
    line = ", ".join(map(str, choices or ()))
    return line if len(line) > 40 else ""


def boolean(text: str) -> bool:
    """An argparse type: True or False."""
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")


_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\Z", re.IGNORECASE)
FLAG: dict[str, Any] = {"type": boolean, "nargs": "?", "const": True, "metavar": "True|False"}


Group = argparse._ArgumentGroup  # arguments under a heading of their own, which has no public name


class Parser(argparse.ArgumentParser):
    """Reads `--flag True` and arguments from `@file`; errors are one line each, a `UserError`."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, allow_abbrev=False, formatter_class=_Formatter)
        self._words: list[str] = []
        self._negative_number_matcher = _NEGATIVE  # argparse's own takes -1e9 for an argument's name
        self._before_help: list[Callable[[Sequence[str]], None]] = []
        self._headings = {title: Group(self, title) for title in _HEADINGS}
        self._action_groups += self._headings.values()  # groups that stay empty are not shown

    def add_flag(self, name: str, default: bool | None, text: str) -> None:
        """A boolean written `--name True`, `--name False`, or bare for True."""
        self.add_argument(name, default=default, help=text, **FLAG)

    def group(self, title: str) -> Group:
        """The arguments under a heading, one of `_HEADINGS`."""
        return self._headings[title]

    def before_help(self, narrow: Callable[[Sequence[str]], None]) -> None:
        """Call `narrow` with the command line's words before `--help` is printed, to leave out what they rule out."""
        self._before_help.append(narrow)

    def format_help(self) -> str:
        """As argparse's, of the arguments that belong to what the command line has chosen."""
        for narrow in self._before_help:
            narrow(self._words)
        return super().format_help()

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's, but a misspelt argument is named first, before a required one that it leaves missing."""
        words = self._present(command_line()[1:] if args is None else args)
        known = self._option_string_actions
        for name in (word.partition("=")[0] for word in words if word.startswith("--")):
            if name not in known and (similar := difflib.get_close_matches(name, known, n=1, cutoff=0.75)):
                self.error(f"unrecognized arguments: {name}, did you mean {similar[0]}?")
        return super().parse_args(words, namespace)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse's, with the arguments of each `@file` in its place."""
        self._words = self._present(command_line()[1:] if args is None else args)
        return super().parse_known_args(self._words, namespace)

    def _present(self, args: Sequence[str]) -> list[str]:
        """These words, with those of each `@file` in its place, and arguments and values by their names of today."""
        words: list[str] = []
        known, argument = self._option_string_actions, ""
        for word in _expanded(args):
            if not word.startswith("--"):
                words.append(present_value(argument, word))
                continue
            name, equals, value = word.partition("=")
            new = f"--{NAMES.get(name[2:])}"
            name = new if name not in known and new in known else name
            argument = name[2:]
            words.append(f"{name}{equals}{present_value(argument, value)}")
        return words

    def words_of(self, values: Mapping[str, Any]) -> list[str]:
        """Arguments as the command line has them, by name; None, and an empty list, as not given."""
        words = []
        for name, value in values.items():
            each = [*map(str, value)] if isinstance(value, list | tuple) else [str(value)] * (value is not None)
            action = self._option_string_actions.get(f"--{name}")
            if action is not None and action.nargs is None:  # of one word, in which commas stand between
                each = [",".join(each)] * bool(each)
            words += [f"--{name}", *each] if each else []
        return words

    def error(self, message: str) -> NoReturn:
        """One line instead of argparse's usage text."""
        raise UserError(f"{message} (--help lists the arguments)")


def argument_words(path: Path, within: tuple[Path, ...] = ()) -> list[str]:
    """The arguments in a file: several a line, # for comments, `@file` for those of a further file.

    `within` are the files that name this one. UserError where it is missing, broken, or among these.
    """
    words: list[str] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            words += shlex.split(line, comments=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: not a readable file of arguments ({reason})") from error
    if path.resolve() in within:
        raise UserError(f"{path}: this file of arguments names itself, directly or by way of others; take that out")
    return list(_expanded(words, (*within, path.resolve())))


def _expanded(words: Iterable[str], within: tuple[Path, ...] = ()) -> Iterable[str]:
    for word in words:
        yield from argument_words(Path(word[1:]), within) if word.startswith("@") else (word,)


def number(
    to: type, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf, below: float = math.inf
) -> Callable:
    """An argparse type: a finite int or float within bounds, or an error that names the bound."""

    def parse(text: str) -> int | float:
        """The number in a text."""
        try:
            value = to(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"{text!r} is not {'a whole' if to is int else 'a'} number") from None
        if not (math.isfinite(value) and above < value < below and least <= value <= most):
            bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
            bounds += [f"at most {most:g}"] * (most < math.inf) + [f"below {below:g}"] * (below < math.inf)
            raise argparse.ArgumentTypeError(f"{text} must be {' and '.join(bounds) or 'finite'}")
        return value

    return parse


POSITIVE_INT = number(int, least=1, most=sys.maxsize)  # what can be counted to
POSITIVE = number(float, above=0)


def share_or_number(text: str) -> float:
    """An argparse type: a share below 1, or a whole number of at least 1; `count_of` says what it comes to."""
    value = number(float, least=0)(text)
    if value >= 1 and value != int(value):
        raise argparse.ArgumentTypeError(f"{text} is neither a share below 1 nor a whole number")
    return value


def count_of(share_or_number: float, n: int) -> int:
    """What a share, rounded, or a number comes to among n."""
    return int(share_or_number if share_or_number >= 1 else share_or_number * n + 0.5)


def number_or_auto(text: str) -> int | None:
    """An argparse type: a whole number of at least 1, or None for "auto"."""
    return None if text == "auto" else POSITIVE_INT(text)


def increasing(text: str) -> list[int]:
    """An argparse type: whole numbers from 1 separated by commas, each once, in increasing order."""
    return sorted({POSITIVE_INT(word) for word in text.split(",")})


def name_and_value(text: str) -> tuple[str, str]:
    """An argparse type: the two sides of NAME=VALUE."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=VALUE")
    return name, value
