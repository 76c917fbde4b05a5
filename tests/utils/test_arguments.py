"""Methods' own arguments on the command line."""

from __future__ import annotations

import re

import pytest

from network.algorithms import ALGORITHMS
from utils.args import Parser
from utils.arguments import add_arguments_of, check_arguments
from utils.errors import UserError


@pytest.fixture
def parser() -> Parser:
    parser = Parser("methods")
    parser.group("method").add_argument("--method", choices=ALGORITHMS, default="fedavg", help="the method")
    add_arguments_of(parser, "method", ALGORITHMS, "method")
    return parser


def test_what_is_not_given_is_the_methods_own_default(parser: Parser) -> None:
    for method, mu in (("fedprox", 0.01), ("moon", 1.0), ("fednova", 0.0)):
        args = parser.parse_args([])
        assert not hasattr(args, "mu")
        made = ALGORITHMS[method].from_config(vars(args))
        assert made.mu == made.record()["mu"] == mu  # which the run's args.json says
    assert not hasattr(ALGORITHMS["fedavg"].from_config(vars(parser.parse_args([]))), "mu")


def test_what_is_given_counts(parser: Parser) -> None:
    config = vars(parser.parse_args(["--mu", "0.5", "--beta1", "0", "--scaffold_option", "1"]))
    moon, adam, scaffold = (ALGORITHMS[name].from_config(config) for name in ("moon", "fedadam", "scaffold"))
    assert (moon.mu, adam.beta1, adam.server_lr) == (0.5, 0.0, 0.01)
    assert (scaffold.scaffold_option, scaffold.server_lr) == (1, 1.0)


def test_arguments_of_other_methods_are_refused(parser: Parser) -> None:
    given = {"mu": "1", "lam": "1", "beta1": "0.5", "personal_part": "head"}
    for method, algorithm in ALGORITHMS.items():
        for name, value in given.items():
            config = vars(parser.parse_args([f"--{name}", value, "--method", method]))
            if name in algorithm.arguments:
                check_arguments(config, ALGORITHMS, "method")
            else:
                with pytest.raises(UserError, match=f"--{name} is not an argument of --method {method} but of "):
                    check_arguments(config, ALGORITHMS, "method")


@pytest.mark.parametrize("text", ["--mu -1", "--beta1 1", "--scaffold_option 3", "--personal_part body", "--sigma 0"])
def test_values_that_make_no_sense_are_refused(parser: Parser, text: str) -> None:
    with pytest.raises(UserError, match=text.split()[0]):
        parser.parse_args(text.split())


def help_of(parser: Parser, words: str, capsys: pytest.CaptureFixture) -> str:
    with pytest.raises(SystemExit):
        parser.parse_args([*words.split(), "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("method", ["fedprox", "moon", "scaffold", "fedavg"])
def test_the_help_describes_the_arguments_of_the_chosen_method_only(
    parser: Parser, method: str, capsys: pytest.CaptureFixture
) -> None:
    text = help_of(parser, f"--method {method}", capsys)
    described = set(re.findall(r"^  --(\w+) [A-Z{]", text, re.MULTILINE)) - {"method"}
    assert described == ALGORITHMS[method].arguments.keys()
    terms = {"fedprox": "proximal term (default: 0.01)", "moon": "contrastive term (default: 1.0)"}
    for name, words in terms.items():
        assert (f"weight of the {words}" in " ".join(text.split())) == (name == method)


def test_the_help_names_the_arguments_of_all_other_methods_in_a_line_each(
    parser: Parser, capsys: pytest.CaptureFixture
) -> None:
    text = help_of(parser, "--method=fedavg", capsys)
    lines = " ".join(text[text.index("others':") : text.index("  --method METHOD")].split())
    named = dict(re.findall(r"(\w+): ((?:--\w+(?:, )?)+)", lines))
    for name, method in ALGORITHMS.items():
        more = {f"--{each}" for each in method.arguments} - {f"--{each}" for each in ALGORITHMS["fedavg"].arguments}
        assert set(re.findall(r"--\w+", named.get(name, ""))) == more
    assert help_of(parser, "", capsys) == text  # its default


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_argument_stands_in_the_methods_docstring(name: str) -> None:
    method = ALGORITHMS[name]
    described = "".join(kind.__doc__ for kind in method.__mro__[:-1] if kind.__doc__)
    assert all(f"--{argument}" in described for argument in method.arguments)
    assert vars(method()).keys() - {"assignment_files_path", "_condition"} == method.arguments.keys()
