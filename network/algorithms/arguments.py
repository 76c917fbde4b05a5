"""Arguments that belong to methods: each method names its own, with the default that suits it."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from utils.args import Parser, number

if TYPE_CHECKING:
    from network.algorithms.fedavg import FedAvg


NON_NEGATIVE = number(float, least=0)


@dataclass(frozen=True)
class Argument:
    """An argument of `test_fed.py` that a method reads: its type or choices, default and help text."""

    default: Any
    text: str
    kind: Callable[[str], Any] = str
    choices: tuple | None = None


def add_method_arguments(parser: Parser, methods: Mapping[str, type[FedAvg]]) -> None:
    """Add every method's arguments, each name once; the help says which methods read it and their defaults.

    What is not given is not among the parsed arguments; the run's method fills in its own defaults.
    """
    users: dict[str, dict[Argument, list[str]]] = {}
    for method, algorithm in methods.items():
        for name, argument in algorithm.arguments.items():
            users.setdefault(name, {}).setdefault(argument, []).append(method)
    for name, meanings in users.items():
        any_of = next(iter(meanings))
        texts = []
        for argument, names in meanings.items():
            who = "" if len(names) == len(methods) else f"{', '.join(names)}: "
            default = "" if argument.default is None else f" (default {argument.default})"
            texts.append(f"{who}{argument.text}{default}")
        kind, choices = any_of.kind, any_of.choices
        parser.add_argument(f"--{name}", type=kind, choices=choices, default=SUPPRESS, help="; ".join(texts))


def read_arguments(method: FedAvg, args: Namespace) -> None:
    """Set a method's arguments as its attributes, and in `args` too where they were not given."""
    for name, argument in method.arguments.items():
        setattr(args, name, getattr(args, name, argument.default))
        setattr(method, name, getattr(args, name))
