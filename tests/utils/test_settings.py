"""Settings that are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from utils.args import POSITIVE, Parser
from utils.errors import UserError
from utils.settings import REQUIRED, Configured, Settings, add_settings, check_read, setting, settings_of
from utils.stage import shared


@dataclass(frozen=True)
class Baking:
    """How a cake is baked."""

    seed: int
    heat: float = setting(180.0, "degrees", POSITIVE)
    fan: bool = setting(False, "with the fan", bool, heading="running")
    tin: str = setting("round", "what it is baked in", choices=("round", "loaf"))
    spices: list[str] | None = setting(None, "what is in it", nargs="+", aliases=("herbs",), metavar="SPICE")
    slices: int = setting(8, "slices", int, only={"tin": ("loaf",), "fan": (False, True)})
    layers: tuple[str, ...] = setting(("cake", "cream"), "from below", nargs="+", metavar="LAYER")


@pytest.fixture
def parser() -> Parser:
    parser = Parser("baking")
    add_settings(parser, Baking, "training")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--other")
    return parser


def test_arguments_become_the_settings(parser: Parser) -> None:
    assert Baking(**settings_of(Baking, vars(parser.parse_args([])))) == Baking(3)
    given = vars(parser.parse_args(["--heat", "200", "--fan", "--tin", "loaf", "--seed", "5", "--other", "6"]))
    assert Baking(**settings_of(Baking, given)) == Baking(5, 200.0, True, "loaf")
    for wrong in ("--heat 0", "--fan maybe", "--tin oval"):
        with pytest.raises(UserError, match=wrong.split()[0]):
            parser.parse_args(wrong.split())


def test_an_argument_may_have_several_values_and_names(parser: Parser) -> None:
    for name in ("--spices", "--herbs"):
        assert parser.parse_args([name, "mace", "clove"]).spices == ["mace", "clove"]
    assert "--spices SPICE [SPICE ...], --herbs SPICE [SPICE ...]" in " ".join(parser.format_help().split())


def test_an_argument_that_changes_nothing_is_refused(parser: Parser) -> None:
    for words in ("", "--slices 8", "--tin loaf --slices 3", "--heat 9"):
        check_read(vars(parser.parse_args(words.split())), Baking)
    with pytest.raises(UserError, match=r"--slices 3 changes nothing with --tin round: .* only with --tin loaf; omit"):
        check_read(vars(parser.parse_args(["--slices", "3"])), Baking)


def test_help_has_texts_and_defaults_under_the_headings(parser: Parser) -> None:
    _, training, running = parser.format_help().replace("running:", "training:").split("\ntraining:")
    assert "degrees (default: 180.0)" in training and "what it is baked in (default: round)" in training
    assert "with the fan (default: False)" in running and "--heat" not in running
    assert "--layers LAYER [LAYER ...]" in training and "from below (default: cake cream)" in training


def test_a_setting_of_several_values_takes_all_of_them(parser: Parser) -> None:
    assert parser.parse_args(["--layers", "cake", "jam", "--heat", "200"]).layers == ["cake", "jam"]


@dataclass(frozen=True)
class Slicing(Settings):
    """A tool's settings."""

    heading: ClassVar[str] = "options"

    cake: str = setting(REQUIRED, "what is cut", choices=("round", "loaf"), positional=True)
    knives: Sequence[str] = setting((), "with which", nargs="+")
    rand_seed: int = shared("rand_seed")


def test_a_tool_has_positional_arguments_lists_and_those_of_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    assert Slicing.from_args("cutting", ["loaf"]) == Slicing("loaf", (), 42)
    assert Slicing.from_args("cutting", ["--knives", "a", "b", "--rand_seed", "3", "round"]).knives == ["a", "b"]
    for words, line in (
        ([], "required: cake"),
        (["oval"], "cake: invalid choice"),
        (["--cake", "loaf"], "unrecognized"),
    ):
        with pytest.raises(UserError, match=line):
            Slicing.from_args("cutting", words)
    with pytest.raises(SystemExit):
        Slicing.from_args("cutting", ["--help"])
    text = capsys.readouterr().out
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    assert parts[2] == "positional arguments: {round,loaf} what is cut"
    assert parts[3].endswith("--knives KNIVES [KNIVES ...] with which")  # of argparse's options, without a default
    assert parts[4] == "running: --rand_seed RAND_SEED seed of all random choices (default: 42)"


class Loaf(Configured):
    """What is baked in a tin."""

    flour: str = setting("wheat", "what it is made of", choices=("wheat", "rye"))
    seed: int = 0


class Rye(Loaf):
    """A loaf of another flour, with a setting of its own."""

    flour: str = setting("rye", "what it is made of", choices=("wheat", "rye"))
    sour: float | None = setting(None, "share of sourdough; default: 0.3 of rye", POSITIVE)

    def __post_init__(self) -> None:
        self.sour = self.sour or (0.3 if self.flour == "rye" else 0.0)


def test_what_is_configured_takes_keywords_or_a_configuration_and_records_its_arguments() -> None:
    assert (Loaf().flour, Rye().flour, Rye(flour="wheat").sour) == ("wheat", "rye", 0.0)
    assert list(Loaf.arguments) == ["flour"] and list(Rye.arguments) == ["flour", "sour"]
    made = Rye.from_config({"seed": 7, "sour": None, "other": 1})
    assert made.seed == 7 and made.record() == {"flour": "rye", "sour": 0.3}
    with pytest.raises(TypeError, match="salt"):
        Rye(salt=1)
