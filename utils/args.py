"""Arguments that several scripts share, and how all of them read theirs."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from utils.errors import UserError

PRECISIONS = ("auto", "fp32", "bf16")


class Parser(argparse.ArgumentParser):
    """Reads `--flag True`, arguments from `@file` (several a line, # for comments); errors are one line each."""

    def __init__(self, description: str) -> None:
        super().__init__(
            description=description, fromfile_prefix_chars="@", allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )  # fmt: skip

    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        """The arguments on one line of an `@file`."""
        try:
            return shlex.split(arg_line, comments=True)
        except ValueError as error:
            self.error(f"cannot read {arg_line!r} in an argument file ({error})")

    def parse_args(self, *args: Any, **kwargs: Any) -> argparse.Namespace:  # type: ignore[override]
        """As argparse's, with one line for an argument file that is no text."""
        try:
            return super().parse_args(*args, **kwargs)
        except UnicodeDecodeError as error:
            self.error(f"an argument file is not UTF-8 text ({error})")

    def error(self, message: str) -> NoReturn:
        """One line instead of argparse's usage text."""
        raise UserError(f"{message} (--help lists the arguments)")

    def add_flag(self, name: str, default: bool | None, text: str) -> None:
        """A boolean written `--name True`, `--name False`, or bare for True."""
        self.add_argument(name, type=_boolean, nargs="?", const=True, default=default, metavar="True|False", help=text)


def number(kind: type, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Callable:
    """An argparse type: a finite int or float within bounds, or an error that names the bound."""

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"{text!r} is not {'a whole' if kind is int else 'a'} number") from None
        if not (math.isfinite(value) and value > above and least <= value <= most):
            bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
            bounds += [f"at most {most:g}"] * (most < math.inf)
            raise argparse.ArgumentTypeError(f"{text} must be {' and '.join(bounds) or 'finite'}")
        return value

    return parse


POSITIVE_INT = number(int, least=1)
POSITIVE = number(float, above=0)


def number_or_auto(text: str) -> int | None:
    """An argparse type: a whole number of at least 1, or None for "auto"."""
    return None if text == "auto" else POSITIVE_INT(text)


def add_model(parser: Parser) -> None:
    """`--task` and `--use_cbam`, which name the model."""
    parser.add_argument("--task", required=True, help="name of the task, e.g. depth_euclidean")
    parser.add_flag("--use_cbam", False, "the model with attention in the decoder")


def add_data(parser: Parser) -> None:
    """`--data_path`, `--result_path` and `--rand_seed`."""
    parser.add_argument("--data_path", type=Path, help="data folder; default: the one last selected from")
    add_run(parser)


def add_run(parser: Parser) -> None:
    """`--result_path` and `--rand_seed`."""
    parser.add_argument("--result_path", type=Path, default=Path("results"), help="where run directories go")
    parser.add_argument("--rand_seed", type=number(int, least=0), default=42, help="seed of all randomness")


def add_compute(parser: Parser) -> None:
    """`--use_accelerator`, `--precision` and `--test_mode`."""
    parser.add_flag("--use_accelerator", True, "compute on the GPU that accelerate finds; False keeps to the CPU")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="auto", help="bf16 needs a device that has it; auto: where it pays"
    )
    parser.add_flag("--test_mode", False, "a run of seconds: few steps, to see that everything works")


def add_resume(parser: Parser, unit: str, text: str) -> None:
    """`--resume_training`, with what it does, and `--checkpoint_every` so many rounds or epochs."""
    parser.add_flag("--resume_training", False, text)
    parser.add_argument("--checkpoint_every", type=POSITIVE_INT, default=1, help=f"{unit} between checkpoints")


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
