"""Arguments of what a script has a choice of (methods, rules, sources): each method or source declares its own."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from utils.args import Group, number
from utils.errors import UserError

NON_NEGATIVE = number(float, least=0)


@dataclass(frozen=True)
class Argument:
    """An argument that only some of the choices read: its type or choices, default and help text."""

    default: Any
    text: str
    kind: Callable[[str], Any] = str
    choices: tuple | None = None
    nargs: str | None = None


class Reader(Protocol):
    """What has arguments of its own: a federated method, a partition rule, a source of images."""

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Its arguments, by their names on the command line."""


def add_arguments_of(group: Group, readers: Mapping[str, Any]) -> None:
    """Add every reader's arguments, each name once; the help says which of them read it and their defaults.

    What is not given is not among the parsed arguments; the chosen reader fills in its own defaults.
    """
    users: dict[str, dict[Argument, list[str]]] = {}
    for name, reader in readers.items():
        for argument_name, argument in reader.arguments.items():
            users.setdefault(argument_name, {}).setdefault(argument, []).append(name)
    for argument_name, meanings in users.items():
        any_of = next(iter(meanings))
        texts = []
        for argument, names in meanings.items():
            who = "" if len(names) == len(readers) else f"{', '.join(names)}: "
            default = "" if argument.default is None else f" (default: {argument.default})"
            texts.append(f"{who}{argument.text}{default}")
        group.add_argument(
            f"--{argument_name}", type=any_of.kind, choices=any_of.choices, nargs=any_of.nargs, default=SUPPRESS,
            help="; ".join(texts),
        )  # fmt: skip


def check_arguments(args: Namespace, readers: Mapping[str, Any], choice: str) -> None:
    """UserError if an argument was given that only readers other than the chosen one read; `--choice` names it."""
    chosen = getattr(args, choice)
    for name in vars(args):
        who = [each for each, reader in readers.items() if name in reader.arguments]
        if who and chosen not in who:
            raise UserError(f"--{name} is not an argument of --{choice} {chosen} but of {', '.join(who)}; omit it")


def arguments_of(reader: Reader, args: Namespace) -> dict[str, Any]:
    """The values of a reader's arguments, which are set in `args` too where they were not given."""
    values = {name: getattr(args, name, argument.default) for name, argument in reader.arguments.items()}
    vars(args).update(values)
    return values


def read_arguments(reader: Reader, args: Namespace) -> None:
    """Set the values of a reader's arguments as its attributes, and in `args` too where they were not given."""
    vars(reader).update(arguments_of(reader, args))
