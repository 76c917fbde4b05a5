"""The command line: booleans, argument files, bounds, and errors of one line."""

from __future__ import annotations

import argparse
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from utils.args import POSITIVE, POSITIVE_INT, Parser, increasing, name_and_value, number, share_or_number
from utils.errors import UserError, run_script
from utils.stage import add_shared


@pytest.fixture
def parser() -> Parser:
    parser = Parser("A stage")
    parser.add_flag("--use_cbam", False, "attention")
    parser.add_flag("--plot", True, "draw")
    parser.add_argument("--task")
    parser.add_argument("--n_rounds", type=POSITIVE_INT, default=100)
    parser.add_argument("--init_lr", type=POSITIVE)
    parser.add_argument("--share", type=number(float, above=0, most=0.9))
    parser.add_argument("--level", type=number(float))
    return parser


@pytest.mark.parametrize(
    "given, value",
    [("", False), ("--use_cbam", True), ("--use_cbam --task x", True)]
    + [(f"--use_cbam {text}", True) for text in ("True", "true", "TRUE", "1", "yes")]
    + [(f"--use_cbam {text}", False) for text in ("False", "false", "0", "no")],
)
def test_booleans(parser: Parser, given: str, value: bool) -> None:
    assert parser.parse_args(given.split()).use_cbam is value


def test_flag_that_is_on_can_be_switched_off(parser: Parser) -> None:
    assert parser.parse_args([]).plot is True
    assert parser.parse_args(["--plot", "False"]).plot is False


def test_garbage_is_no_boolean(parser: Parser) -> None:
    with pytest.raises(UserError, match="--use_cbam: 'maybe' is neither True nor False"):
        parser.parse_args(["--use_cbam", "maybe"])


def test_arguments_from_a_file(parser: Parser, tmp_path: Path) -> None:
    (tmp_path / "depth.args").write_text(
        "# settings of one task\n--n_rounds 7 --init_lr 1e-2   # two on a line\n\n--use_cbam\n--task 'two words'\n"
    )
    args = parser.parse_args([f"@{tmp_path / 'depth.args'}"])
    assert (args.n_rounds, args.init_lr, args.use_cbam, args.task) == (7, 0.01, True, "two words")


def test_arguments_after_the_file_count(parser: Parser, tmp_path: Path) -> None:
    (tmp_path / "depth.args").write_text("--n_rounds 7\n--task depth\n")
    args = parser.parse_args([f"@{tmp_path / 'depth.args'}", "--n_rounds", "9"])
    assert (args.n_rounds, args.task) == (9, "depth")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"--task 'x\n", "No closing quotation"), (b"--task \xff\n", "can't decode byte 0xff")],
)
def test_unreadable_argument_file_is_an_error(
    parser: Parser, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "depth.args"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"{path}: not a readable file of arguments (") + f".*{reason}"):
        parser.parse_args([f"@{path}"])


def test_argument_files_name_further_ones(parser: Parser, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"--n_rounds 7 @{tmp_path}/b\n--share 0.5\n")
    (tmp_path / "b").write_text("--n_rounds 8 --share 0.1")
    args = parser.parse_args([f"@{tmp_path}/a", f"@{tmp_path}/b", "--share", "0.2"])  # the same twice is no circle
    assert (args.n_rounds, args.share) == (8, 0.2)


@pytest.mark.parametrize("circle", [("a", "a"), ("a", "b", "a"), ("link", "a", "link")])
def test_argument_file_that_names_itself_is_an_error(parser: Parser, tmp_path: Path, circle: tuple[str, ...]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "b")
    for name, further in pairwise(circle):
        (tmp_path / name).write_text(f"--n_rounds 7 @{tmp_path / further}")
    with pytest.raises(UserError, match=f"{tmp_path}/{circle[0]}: this file of arguments names itself"):
        parser.parse_args([f"@{tmp_path / circle[0]}"])


@pytest.mark.parametrize(
    "given, message",
    [
        ("--n_rounds 0", "--n_rounds: 0 must be at least 1"),
        ("--n_rounds 1.5", "--n_rounds: '1.5' is not a whole number"),
        ("--n_rounds x", "'x' is not a whole number"),
        ("--init_lr 0", "--init_lr: 0 must be above 0"),
        ("--init_lr -0.001", "-0.001 must be above 0"),
        ("--init_lr x", "--init_lr: 'x' is not a number"),
        ("--init_lr nan", "nan must be above 0"),
        ("--init_lr inf", "inf must be above 0"),
        ("--share 0.91", "--share: 0.91 must be above 0 and at most 0.9"),
        ("--share 0", "0 must be above 0 and at most 0.9"),
        ("--level inf", "inf must be finite"),
    ],
)
def test_numbers_out_of_bounds_name_the_bound(parser: Parser, given: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parser.parse_args(given.split())


@pytest.mark.parametrize(
    "given, value",
    [("--n_rounds 1", 1), ("--n_rounds 10", 10), ("--share 0.9", 0.9), ("--init_lr 1e-9", 1e-9), ("--level -3", -3.0)],
)
def test_numbers_within_bounds(parser: Parser, given: str, value: float) -> None:
    read = getattr(parser.parse_args(given.split()), given.split()[0][2:])
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize("given", ["--n_clusters 3", "--n_round 3", "--use_cba", "stray", "--use_cbam=True --x"])
def test_unknown_and_abbreviated_arguments_are_refused_in_one_line(parser: Parser, given: str) -> None:
    with pytest.raises(UserError, match="unrecognized arguments: ") as caught:
        parser.parse_args(given.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["--taks depth", "--taks=depth", "@file"])
def test_misspelt_argument_is_named_before_the_required_one_is_missed(given: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("--taks depth")
    parser = Parser("A stage")
    parser.add_argument("--task", required=True)
    with pytest.raises(UserError, match=r"^unrecognized arguments: --taks, did you mean --task\? "):
        parser.parse_args(given.replace("@", f"@{tmp_path}/").split())


def test_shared_arguments_have_the_published_defaults() -> None:
    parser = Parser("A stage")
    add_shared(parser, "data_path", "result_path", "rand_seed", "use_accelerator", "precision", "test_mode")
    defaults = {
        "data_path": None, "result_path": Path("results"), "rand_seed": 42, "use_accelerator": True,
        "precision": "auto", "test_mode": False,
    }  # fmt: skip
    assert vars(parser.parse_args([])) == defaults


# How a script ends


@pytest.mark.parametrize(
    "error, code, line",
    [(UserError("a is\n missing;  run b"), 2, "error: a is missing; run b"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_script_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        run_script(main)
    assert caught.value.code == code
    assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize(("code", "left"), [(3, 3), (0, None), (None, None)])
def test_script_that_exits_by_itself_keeps_its_code(code: int | None, left: int | None) -> None:
    found = None
    try:
        run_script(lambda: sys.exit(code))
    except SystemExit as error:
        found = error.code
    assert found == left


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_script(lambda: 1 / 0)


def test_shares_and_numbers_and_lists_of_numbers() -> None:
    assert [share_or_number(text) for text in ("0.25", "5", "1", "0")] == [0.25, 5, 1, 0]
    for text in ("1.5", "-1", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            share_or_number(text)
    assert increasing("20,5,5,80") == [5, 20, 80]
    with pytest.raises(argparse.ArgumentTypeError):
        increasing("5,0")


def test_a_name_and_its_value_stand_on_both_sides_of_the_first_sign() -> None:
    assert name_and_value("gres=gpu:a100=2") == ("gres", "gpu:a100=2")
    for text in ("time", "time=", "=4"):
        with pytest.raises(argparse.ArgumentTypeError, match="must be NAME=VALUE"):
            name_and_value(text)


@pytest.mark.parametrize("text", ["-1e9", "-3.4028235e+38", "-9999", "-9999.0", "-.5", "-2.E-3"])
def test_negative_numbers_are_values_however_they_are_written(text: str) -> None:
    own = Parser(None)
    own.add_argument("--invalid", type=float, nargs="+")
    assert own.parse_args(["--invalid", text, "0"]).invalid == [float(text), 0.0]
    with pytest.raises(UserError, match="unrecognized arguments: -1e9x"):
        own.parse_args(["--invalid", text, "-1e9x"])
