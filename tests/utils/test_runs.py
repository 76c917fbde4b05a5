"""Run directories: one per run, what resuming accepts, and checkpoints that come back as they were."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from utils import runs
from utils.errors import UserError
from utils.runs import Run, data_path_or_default, load_checkpoint, remember_data_path, save_checkpoint
from utils.versions import warn

PARTS = ("test_federated", "fedavg", "alpha0.1_seed4")


def arguments(result_path: Path, **changes: object) -> dict[str, object]:
    defaults = {"result_path": result_path, "alpha": 0.1, "task": "normal", "mu": None, "resume_training": False}
    return defaults | changes


def started(result_path: Path, time: int, **changes: object) -> Run:
    """A run with a checkpoint whose directory was last changed at `time`."""
    run = Run.create(arguments(result_path, **changes), *PARTS)
    save_checkpoint(run.checkpoint, {"weight": torch.full((2,), float(time))}, {"rows": [time]})
    os.utime(run.path, (time, time))
    return run


# Directories


def test_two_runs_of_one_name_get_two_directories(tmp_path: Path) -> None:
    runs = [Run.create(arguments(tmp_path), *PARTS) for _ in range(3)]
    folder = tmp_path / "test_federated" / "fedavg"
    assert [run.path for run in runs] == [folder / f"alpha0.1_seed4{end}" for end in ("", "_2", "_3")]


def test_runs_started_at_once_get_a_directory_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda number: Run.create(arguments(tmp_path, mu=number), *PARTS), range(6)))
    assert len({run.path for run in runs}) == 6
    assert [json.loads((run.path / "args.json").read_text())["mu"] for run in runs] == list(range(6))


def test_directory_says_what_was_run(tmp_path: Path) -> None:
    run = Run.create(arguments(tmp_path, data_path=Path("data/rooms")), *PARTS)
    expected = {"alpha": 0.1, "task": "normal", "mu": None, "resume_training": False}
    expected |= {"result_path": str(tmp_path), "data_path": "data/rooms"}
    assert json.loads((run.path / "args.json").read_text()) == expected
    machine = json.loads((run.path / "environment.json").read_text())
    assert machine["packages"]["torch"] == torch.__version__.split("+")[0]
    assert machine["processes"] == 1


def test_directory_is_made_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runs, "_commit", runs._commit.__wrapped__)
    run = Run.create(arguments(tmp_path), *PARTS)
    assert json.loads((run.path / "environment.json").read_text())["commit"] is None


def test_place_where_no_directory_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match=r"cannot make the run directory.*see --result_path"):
        Run.create(arguments(tmp_path / "results"), *PARTS)


def test_metrics_and_summary(tmp_path: Path) -> None:
    run = Run.create(arguments(tmp_path), *PARTS)
    rows = [{"round": 0, "loss": float("nan")}, {"round": 1, "loss": 0.5}]
    run.write_metrics(rows[:1])
    run.write_metrics(rows)
    pd.testing.assert_frame_equal(pd.read_csv(run.path / "metrics.csv"), pd.DataFrame(rows))
    run.write_summary({"last": rows[1], "model": tmp_path / "model"})
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary == {"last": {"round": 1, "loss": 0.5}, "model": str(tmp_path / "model")}


# Resuming


def test_resuming_takes_the_newest_run_of_the_name(tmp_path: Path) -> None:
    runs = [started(tmp_path, time) for time in (100, 300, 200)]
    resumed = Run.start(arguments(tmp_path, resume_training=True), *PARTS)
    assert resumed.path == runs[1].path
    tensors, state = load_checkpoint(resumed.checkpoint)
    assert tensors["weight"].tolist() == [300, 300] and state == {"rows": [300]}


def test_resuming_skips_other_names_and_runs_without_a_checkpoint(tmp_path: Path) -> None:
    run = started(tmp_path, 100)
    without = Run.create(arguments(tmp_path), *PARTS)
    os.utime(without.path, (500, 500))
    for name in ("alpha0.1_seed42", "alpha0.1_seed4_old"):
        shutil.copytree(run.path, run.path.with_name(name))
        os.utime(run.path.with_name(name), (600, 600))  # newer
    assert Run.start(arguments(tmp_path, resume_training=True), *PARTS).path == run.path


def test_a_run_under_its_former_name_is_resumed(tmp_path: Path) -> None:
    run = started(tmp_path, 100)
    parts = (*PARTS[:-1], "seed4")
    resuming = arguments(tmp_path, resume_training=True)
    with pytest.raises(UserError, match="seed4 has no checkpoint"):
        Run.start(resuming, *parts)
    assert Run.start(resuming, *parts, formerly=PARTS[-1]).path == run.path
    assert Run.start(arguments(tmp_path), *parts, formerly=PARTS[-1]).path == run.path.with_name("seed4")


def test_without_resuming_a_new_run_starts(tmp_path: Path) -> None:
    first = started(tmp_path, 100)
    assert Run.start(arguments(tmp_path), *PARTS).path == first.path.with_name("alpha0.1_seed4_2")


@pytest.mark.parametrize("changes", [{"alpha": 0.2}, {"mu": 0.1}, {"new_argument": 1}])
def test_resuming_with_changed_arguments_is_refused(tmp_path: Path, changes: dict[str, float]) -> None:
    run = started(tmp_path, 100)
    (name,) = changes
    before = {"alpha": "0.1", "mu": "None", "new_argument": "None"}[name]
    with pytest.raises(UserError, match=f"{run.path} was started with --{name} {before}; resume with the same"):
        Run.start(arguments(tmp_path, resume_training=True, **changes), *PARTS)


def test_arguments_that_bear_on_no_number_may_change(tmp_path: Path) -> None:
    run = started(
        tmp_path,
        100,
        plot_distribution=True,
        use_accelerator=True,
        init_model_dir=Path("initial_models"),
        on_missing="stop",
        timeout=600.0,
    )
    again = arguments(
        tmp_path,
        resume_training=True,
        plot_distribution=False,
        use_accelerator=False,
        init_model_dir=Path("initial_models"),
        on_missing="skip_client",
        timeout=5.0,
    )
    assert Run.start(again, *PARTS).path == run.path


def test_a_run_that_was_killed_while_it_was_begun_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its arguments and its environment git is asked for the commit, which takes its time."""
    run = interrupted(tmp_path, {})

    class Killed(BaseException):
        pass

    def killed() -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(runs, "environment", killed)
        Run.create(arguments(tmp_path), *PARTS)
    assert len([*run.path.parent.iterdir()]) == 2
    for begin in (Run.start, Run.take_up):
        assert begin(arguments(tmp_path, resume_training=True), *PARTS).path == run.path


def test_run_that_has_more_arguments_is_not_resumed(tmp_path: Path) -> None:
    run = Run.create(arguments(tmp_path, attack="sign_flip"), *PARTS)
    save_checkpoint(run.checkpoint, {}, {})
    with pytest.raises(UserError, match=f"{run.path} was started with --attack sign_flip; resume with the same"):
        Run.start(arguments(tmp_path, resume_training=True), *PARTS)


def test_nothing_to_resume_is_an_error(tmp_path: Path) -> None:
    Run.create(arguments(tmp_path), *PARTS)
    with pytest.raises(UserError, match="no checkpoint to resume from; start without --resume_training True"):
        Run.start(arguments(tmp_path, resume_training=True), *PARTS)


# Code that has changed

NOW = {"code_version": {"engine": 2}, "source_hash": "now", "data_version": "d"}
SOURCES = NOW | {"source_hash": "then"}  # the same versions
VERSIONS = NOW | {"code_version": {"engine": 1}}
HASHES = NOW | {"code_version": {"engine": "9f" * 32}}  # as it was noted before versions were declared


def interrupted(result_path: Path, origin: dict) -> Run:
    run = Run.create(arguments(result_path), *PARTS, origin=origin)
    save_checkpoint(run.checkpoint, {}, {})
    return run


@pytest.mark.parametrize("begin", [Run.start, Run.take_up])
@pytest.mark.parametrize(
    "origin, said, taken, words",
    [
        (SOURCES, {}, True, "other source files of the same declared versions; going on with it"),
        (SOURCES, {"reuse": "same_source"}, False, "other source files of the same declared versions; start without"),
        (VERSIONS, {}, False, r"version 1 of engine \(now 2\); start without .* by --reuse any"),
        (VERSIONS, {"reuse": "any"}, True, r"version 1 of engine \(now 2\); going on with it"),
        (HASHES, {}, False, "an unknown version of the code, .*; start without .* by --reuse any"),
        (HASHES, {"reuse": "any"}, True, "an unknown version of the code, .*; going on with it"),
    ],
)
def test_declared_versions_say_what_is_resumed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    begin: Callable,
    origin: dict,
    said: dict,
    taken: bool,
    words: str,
) -> None:
    warn.cache_clear()
    run = interrupted(tmp_path, origin)
    again = arguments(tmp_path, resume_training=True, **said)
    if taken:
        assert begin(again, *PARTS, origin=NOW).path == run.path
        assert re.fullmatch(f"warning: {run.path} was started with {words}\n", capsys.readouterr().err)
    else:
        with pytest.raises(UserError, match=f"^{run.path} was started with {words}"):
            begin(again, *PARTS, origin=NOW)
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]


def test_resuming_takes_the_newest_run_of_the_present_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, newer = interrupted(tmp_path, NOW), interrupted(tmp_path, VERSIONS)
    for time, each in enumerate((run, newer)):
        os.utime(each.path, (time, time))
    assert Run.start(arguments(tmp_path, resume_training=True), *PARTS, origin=NOW).path == run.path
    assert capsys.readouterr().err == ""


def test_accepted_code_does_not_excuse_other_data(tmp_path: Path) -> None:
    interrupted(tmp_path, NOW | {"data_version": "e"})
    with pytest.raises(UserError, match="another data version; start without"):
        Run.start(arguments(tmp_path, resume_training=True, reuse="any"), *PARTS, origin=NOW)


# Checkpoints


def test_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(2, 3, 2, 2)
    tensors = {
        "whole": base,
        "shared": base,
        "part": base[1:],
        "turned": base[0, 0].T,
        "channels_last": base.to(memory_format=torch.channels_last),
        "half": torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
        "steps": torch.tensor(7),
        "nothing": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    state = {"rows": [{"loss": 0.1, "name": "α"}], "none": None}
    save_checkpoint(tmp_path / "new" / "last.safetensors", tensors, state)
    read, read_state = load_checkpoint(tmp_path / "new" / "last.safetensors")
    assert read_state == state
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        torch.testing.assert_close(read[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)


def test_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, {"a": torch.zeros(1)}, {"round": 1})
    with pytest.raises(TypeError):
        save_checkpoint(path, {"a": torch.ones(1)}, {"round": {1}})  # a set is no JSON
    assert load_checkpoint(path)[1] == {"round": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.safetensors"]


@pytest.mark.parametrize("length", [None, 0, 5, 60, -1])
def test_missing_or_truncated_checkpoint_is_an_error(tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "last.safetensors"
    if length is not None:
        save_checkpoint(path, {"a": torch.zeros(100)}, {"round": 1})
        path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match=r"last\.safetensors: not a readable checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"config": "{}"}, {"state": "{"}])
def test_file_without_a_state_is_no_checkpoint(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors", metadata=metadata)
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(tmp_path / "model.safetensors")


# The data folder that later stages take


def test_data_folder_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    remember_data_path(Path("data"), tmp_path / "results")
    monkeypatch.chdir("/")
    assert data_path_or_default(None, tmp_path / "results") == (tmp_path / "data").resolve()
    assert data_path_or_default(tmp_path / "other", tmp_path / "results") == tmp_path / "other"


def test_data_folder_must_be_known_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run extract_datapoints_for_experiments\.py first, or give --data_path"):
        data_path_or_default(None, tmp_path)
    with pytest.raises(UserError, match="no such folder; see --data_path"):
        data_path_or_default(tmp_path / "data", tmp_path)
    remember_data_path(tmp_path / "gone", tmp_path)
    with pytest.raises(UserError, match="gone: no such folder"):
        data_path_or_default(None, tmp_path)
