"""Settings that are arguments."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from utils.args import POSITIVE, Parser
from utils.arguments import Argument
from utils.errors import UserError
from utils.settings import add_settings, check_read, setting, settings_of


@dataclass(frozen=True)
class Baking:
    """How a cake is baked."""

    seed: int
    heat: float = setting(Argument(180.0, "degrees", POSITIVE))
    fan: bool = setting(Argument(False, "with the fan", bool), "running")
    tin: str = setting(Argument("round", "what it is baked in", choices=("round", "loaf")))
    slices: int = setting(Argument(8, "slices", int, only={"tin": ("loaf",), "fan": (False, True)}))


@pytest.fixture
def parser() -> Parser:
    parser = Parser("baking")
    add_settings(parser, Baking, "training")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--other")
    return parser


def test_arguments_become_the_settings(parser: Parser) -> None:
    assert Baking(**settings_of(Baking, parser.parse_args([]))) == Baking(3)
    given = parser.parse_args(["--heat", "200", "--fan", "--tin", "loaf", "--seed", "5", "--other", "6"])
    assert Baking(**settings_of(Baking, given)) == Baking(5, 200.0, True, "loaf")
    for wrong in ("--heat 0", "--fan maybe", "--tin oval"):
        with pytest.raises(UserError, match=wrong.split()[0]):
            parser.parse_args(wrong.split())


def test_an_argument_that_changes_nothing_is_refused(parser: Parser) -> None:
    for words in ("", "--slices 8", "--tin loaf --slices 3", "--heat 9"):
        check_read(parser.parse_args(words.split()), Baking)
    with pytest.raises(UserError, match=r"--slices 3 changes nothing with --tin round: .* only with --tin loaf; omit"):
        check_read(parser.parse_args(["--slices", "3"]), Baking)


def test_help_has_texts_and_defaults_under_the_headings(parser: Parser) -> None:
    _, training, running = parser.format_help().replace("running:", "training:").split("\ntraining:")
    assert "degrees (default: 180.0)" in training and "what it is baked in (default: round)" in training
    assert "with the fan (default: False)" in running and "--heat" not in running
