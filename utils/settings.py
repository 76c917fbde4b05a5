"""Settings: fields of dataclasses that are arguments of a script as well, so that each is written once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self, dataclass_transform

from utils.args import Parser
from utils.arguments import Argument
from utils.errors import UserError

REQUIRED = MISSING  # the default of what must be given


def setting(
    default: Any,
    text: str,
    type: Callable[[str], Any] = str,
    *,
    choices: Collection[Any] | None = None,
    nargs: str | int | None = None,
    metavar: str | tuple[str, ...] | None = None,
    only: Mapping[str, Collection[Any]] | None = None,
    unread: Mapping[str, Collection[Any]] | None = None,
    recorded: bool = True,
    heading: str = "",
    aliases: Collection[str] = (),
    positional: bool = False,
    of: Callable[..., Argument] = Argument,
) -> Any:
    """A dataclass's field that is an argument of its name, under this heading of `--help` or that of the others.

    The other parameters are the attributes of `Argument`, or of the class that it is one `of`.
    """
    needed = default is REQUIRED
    how = (type, choices, nargs, metavar, only or {}, unread or {}, recorded, aliases, needed, positional)
    argument = of(None if needed else default, text, *how)
    return field(default=default, metadata={"argument": argument, "heading": heading})


def arguments_in(settings: type) -> dict[str, Argument]:
    """The arguments that the fields of a dataclass are, by name."""
    return {entry.name: entry.metadata["argument"] for entry in fields(settings) if "argument" in entry.metadata}


def add_settings(parser: Parser, settings: type, heading: str, texts: Mapping[str, str] | None = None) -> None:
    """Add the arguments that the fields of a dataclass are, or those alone that have `texts`, which may be empty."""
    arguments = arguments_in(settings)
    headings = {entry.name: entry.metadata.get("heading") for entry in fields(settings)}
    for name in arguments if texts is None else texts:
        argument = arguments[name]
        text = (texts or {}).get(name) or argument.text
        title = headings[name] or heading
        names = [name] if argument.positional else [f"--{each}" for each in (name, *argument.aliases)]
        group = parser if title == "options" else parser.group(title)
        group.add_argument(*names, default=argument.default, help=text, **argument.read)


def settings_of(settings: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a configuration, arguments by name, has for the fields of a dataclass."""
    return {entry.name: config[entry.name] for entry in fields(settings) if entry.name in config}


def recorded(config: Mapping[str, Any], *arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """The configuration without what a run leaves out: of these arguments, those with defaults not `recorded`."""
    usual = {name: argument.default for of in arguments for name, argument in of.items() if not argument.recorded}
    return {name: value for name, value in config.items() if name not in usual or value != usual[name]}


def check_read(config: Mapping[str, Any], *settings: type) -> None:
    """UserError for an argument of these dataclasses that changes nothing, by the conditions that its field has."""
    for entry in (entry for of in settings for entry in fields(of) if "argument" in entry.metadata):
        argument, value = entry.metadata["argument"], config.get(entry.name, entry.default)
        for other, values in argument.only.items():
            if value != argument.default and (now := config[other]) not in values:
                raise UserError(
                    f"--{entry.name} {value} changes nothing with --{other} {now}: it is read only with --{other} "
                    f"{' or '.join(map(str, values))}; omit one of them"
                )


class Settings:
    """Arguments that belong together, as a dataclass: those of one concern, or of a script.

    Its fields are what `setting` makes. Others are set by hand, from arguments of their names, if there are any.
    """

    heading: ClassVar[str] = "running"  # of `--help`, for fields without one of their own; options: argparse's

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        add_settings(parser, cls, cls.heading)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """With the values that a configuration, arguments by name, has, and its own defaults for the others."""
        return cls(**settings_of(cls, config))

    @classmethod
    def from_args(cls, description: str | None, words: Sequence[str] | None = None) -> Self:
        """Of the command line, or of these words in its place; `description` is what `--help` begins with."""
        return cls.from_config(vars(cls.parser(description).parse_args(words)))

    @classmethod
    def parser(cls, description: str | None = None) -> Parser:
        """What reads its arguments, as often as is wanted."""
        parser = Parser(description)
        cls.add_arguments(parser)
        return parser


@dataclass_transform(kw_only_default=True)
class Configured(Settings):
    """What is made from settings: `FedProx(mu=0.1)` in Python, `--method fedprox --mu 0.1` on the command line.

    Every subclass is a dataclass without being declared one. `arguments` are those of its fields that are settings;
    a field that is none takes its value from an argument of its name that the script has in any case.
    """

    arguments: ClassVar[Mapping[str, Argument]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(kw_only=True, eq=False)(cls)
        cls.arguments = arguments_in(cls)

    def record(self) -> dict[str, Any]:
        """The arguments that it goes by, by name: what was given, and what follows from that where nothing was."""
        return {name: getattr(self, name) for name in self.arguments}
