"""Arguments of what a script has a choice of (methods, rules, sources): each method or source declares its own."""

from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from utils.args import FLAG, Parser, boolean, number
from utils.errors import UserError

NON_NEGATIVE = number(float, least=0)


@dataclass(frozen=True)
class Argument:
    """An argument: its type or choices, default and help text.

    Runs that differ in it are different runs. `utils.stage.StageArgument` has the exceptions.

    Attributes:
        only: values of other arguments, by their names, with which alone it is read; others are refused.
        unread: values of other arguments with which it is not read, and may be given all the same.
        recorded: whether a run says it where it has its default; without, such a run is the same as one from before
            there was this argument.
        metavar: what `--help` calls its value, where that is not its name.
        aliases: other names that it has on the command line.
        required: whether it must be given.
        positional: whether it is given without its name.
    """

    default: Any
    text: str
    type: Callable[[str], Any] = str
    choices: Collection[Any] | None = None
    nargs: str | int | None = None
    metavar: str | tuple[str, ...] | None = None
    only: Mapping[str, Collection[Any]] = field(default_factory=dict)
    unread: Mapping[str, Collection[Any]] = field(default_factory=dict)
    recorded: bool = True
    aliases: Collection[str] = ()
    required: bool = False
    positional: bool = False

    @property
    def read(self) -> dict[str, Any]:
        """How argparse reads it: arguments of `add_argument`."""
        if self.type in (bool, boolean):
            return FLAG
        given = {"choices": self.choices, "nargs": self.nargs, "metavar": self.metavar}
        given |= {"required": (self.required and not self.positional) or None}
        return {"type": self.type} | {name: value for name, value in given.items() if value is not None}


class Reader(Protocol):
    """What has arguments of its own: a federated method, a partition rule, a source of images."""

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Its arguments, by their names on the command line."""


def add_arguments_of(parser: Parser, title: str, readers: Mapping[str, Any], choice: str) -> None:
    """Add every reader's arguments under a heading, each name once.

    What is not given is not among the parsed arguments; the chosen reader fills in its own defaults. `--help` describes
    the arguments of the reader that `--choice` names, or of its default, and lists those of the others in a line each.
    """
    group = parser.group(title)
    actions = {}
    for reader in readers.values():
        for name, argument in reader.arguments.items():
            if name not in actions:
                actions[name] = group.add_argument(f"--{name}", default=SUPPRESS, **argument.read)

    def narrow(words: Sequence[str]) -> None:
        """Describe the arguments of the reader that these words choose, and hide the others."""
        chosen = _last_value(words, choice, parser.get_default(choice))
        own = readers[chosen].arguments if chosen in readers else {}
        for name, action in actions.items():
            action.help = _described(own[name]) if name in own else SUPPRESS
        others = {name: reader.arguments.keys() - own.keys() for name, reader in readers.items()}
        lines = [f"  {name}: --{', --'.join(sorted(more))}" for name, more in others.items() if more]
        if lines:
            first = f"those of --{choice} {chosen}; --{choice} NAME --help describes the others':"
            group.description = "\n".join([first, *lines])

    parser.before_help(narrow)


def _described(argument: Argument) -> str:
    return argument.text if argument.default is None else f"{argument.text} (default: {argument.default})"


def _last_value(words: Sequence[str], name: str, default: str) -> str:
    """The value of an argument among the words of a command line."""
    text = default
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == f"--{name}":
            text = value if equals else following
    return text


def check_arguments(config: Mapping[str, Any], readers: Mapping[str, Any], choice: str) -> None:
    """UserError if an argument was given that only readers other than the chosen one read; `--choice` names it."""
    chosen = config[choice]
    for name in config:
        who = [reader_name for reader_name, reader in readers.items() if name in reader.arguments]
        if who and chosen not in who:
            raise UserError(f"--{name} is not an argument of --{choice} {chosen} but of {', '.join(who)}; omit it")


def with_defaults(config: Mapping[str, Any], readers: Mapping[str, Any], choice: str) -> dict[str, Any]:
    """The configuration with the chosen reader's own arguments that were not given; UserError of `check_arguments`."""
    check_arguments(config, readers, choice)
    return {**config, **arguments_of(readers[config[choice]], config)}


def arguments_of(reader: Reader, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a reader's arguments, its own defaults for those that were not given."""
    return {name: config.get(name, argument.default) for name, argument in reader.arguments.items()}
