"""What makes two runs the same, and what may differ where one is resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from utils.arguments import Argument
from utils.settings import setting
from utils.stage import StageSettings, changes_numbers, diff, key

# By hand: what says where files are, what says how a run is carried out, and both kinds of exception.
PLACES = {
    "init_model_dir",
    "trained_model_dir",
    "load_model_dir",
    "checkpoint_path",
    "assignment_files_path",
    "partition_file",
}
CARRIED_OUT = {
    "resume_training",
    "result_path",
    "plot_distribution",
    "use_accelerator",
    "data_path",
    "checkpoint_every",
    "track",
    "reuse",
    "timeout",
    "allow_unassigned",
}


def test_places_and_how_a_run_is_carried_out_make_no_other_run() -> None:
    names = {name for name in StageSettings.__annotations__ if not changes_numbers(name)}
    assert names == PLACES | CARRIED_OUT
    config = {"mu": 0.1, "classes": ("a", "b"), "init_model_dir": Path("a"), "timeout": 5.0, "on_missing": "stop"}
    assert key(config) == {"mu": 0.1, "classes": ["a", "b"], "on_missing": "stop"}


def test_a_run_is_resumed_with_the_same_places_and_numbers() -> None:
    before = dict.fromkeys((*PLACES, *CARRIED_OUT, "on_missing", "mu"), "a")
    now = before | dict.fromkeys((*PLACES, *CARRIED_OUT, "on_missing", "mu"), "b")
    assert {*diff(before, now)} == {*PLACES, "mu"}
    assert diff({"mu": None, "init_model_dir": "a"}, {"init_model_dir": Path("a")}) == []
    assert diff({"mu": 0.1}, {"nu": 0.1}) == ["nu", "mu"]


@pytest.mark.parametrize("exception", ["changes_numbers", "may_change"])
@pytest.mark.parametrize("declare", [Argument, setting])
def test_no_argument_of_anything_else_can_be_an_exception(declare: Callable[..., object], exception: str) -> None:
    """Of a method or a rule, it would have no effect."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{exception}'"):
        declare(0.1, "weight of a term", **{exception: False})
