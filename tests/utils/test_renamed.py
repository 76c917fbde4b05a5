"""Arguments by their former names: command lines, files of arguments and runs that recorded them."""

from __future__ import annotations

from pathlib import Path

import pytest

from network.importance import FedIR
from run_sweep import parse_args
from sweeps.sweep import asked
from tests.conftest import ROOT
from utils.args import Parser
from utils.errors import UserError
from utils.renamed import with_present_names


@pytest.mark.parametrize("words", ["--clients_per_batch 3", "--clients_per_batch=3", "@file", "--vectorised_clients 3"])
def test_a_former_name_is_todays_argument(tmp_path: Path, words: str) -> None:
    file = tmp_path / "arguments.txt"
    file.write_text("--clients_per_batch 3  # as it was called\n")
    parser = Parser("a script")
    parser.add_argument("--vectorised_clients", type=int)
    assert parser.parse_args(words.replace("@file", f"@{file}").split()).vectorised_clients == 3
    assert "clients_per_batch" not in parser.format_help()


def test_scripts_that_never_had_it_do_not_know_a_former_name() -> None:
    with pytest.raises(UserError, match="unrecognized arguments: --clients_per_batch"):
        Parser("a script").parse_args(["--clients_per_batch", "3"])


@pytest.mark.parametrize(
    ("before", "now"), [("kinds", "label_source"), ("unseen_clients", "non_participating_clients")]
)
def test_records_of_before_have_todays_names(before: str, now: str) -> None:
    assert with_present_names({before: "class", "mu": 0.1}) == {now: "class", "mu": 0.1}


def test_the_experiment_of_before_is_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "sys.argv", ["run_sweep.py", "--experiment", "experiments/task_perspective/unseen_clients.toml"]
    )
    requested, _ = asked(*parse_args())
    assert requested["fed"]["non_participating_clients"] == 5


@pytest.mark.parametrize("words", ["--importance_target held_out", "--importance_target=held_out"])
def test_a_former_value_is_todays_with_its_argument_alone(words: str) -> None:
    parser = Parser("a script")
    parser.add_argument("--importance_target", choices=("population", "global_test"))
    parser.add_argument("--task")
    args = parser.parse_args([*words.split(), "--task", "held_out"])
    assert (args.importance_target, args.task) == ("global_test", "held_out")
    assert with_present_names({"importance_target": "held_out", "task": "held_out"}) == vars(args)
    assert FedIR(importance_target="held_out").importance_target == "global_test"
