"""Settings: dataclasses whose fields are arguments of a script, so that each is written once."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import field, fields
from typing import Any

from utils.args import Parser
from utils.arguments import Argument
from utils.errors import UserError


def setting(argument: Argument, heading: str = "") -> Any:
    """A dataclass's field that is an argument of its name, under this heading of `--help` or that of the others."""
    return field(default=argument.default, metadata={"argument": argument, "heading": heading})


def add_settings(parser: Parser, settings: type, heading: str) -> None:
    """Add the arguments that the fields of a dataclass are."""
    for each in fields(settings):
        if argument := each.metadata.get("argument"):
            group, name = parser.group(each.metadata["heading"] or heading), f"--{each.name}"
            if argument.type is bool:
                group.add_flag(name, argument.default, argument.text)
            else:
                group.add_argument(
                    name, type=argument.type, choices=argument.choices, default=argument.default, help=argument.text
                )


def check_read(args: Namespace, *settings: type) -> None:
    """UserError for an argument of these dataclasses that changes nothing, by the conditions that its field has."""
    for each in (each for of in settings for each in fields(of) if "argument" in each.metadata):
        argument, value = each.metadata["argument"], getattr(args, each.name, each.default)
        for other, values in argument.only.items():
            if value != argument.default and (now := getattr(args, other)) not in values:
                raise UserError(
                    f"--{each.name} {value} changes nothing with --{other} {now}: it is read only with --{other} "
                    f"{' or '.join(map(str, values))}; omit one of them"
                )


def settings_of(settings: type, args: Namespace) -> dict[str, Any]:
    """The values that a script's arguments have for the fields of a dataclass."""
    given = vars(args)
    return {each.name: given[each.name] for each in fields(settings) if each.name in given}
