"""What counts as done: a finished run with these arguments, by this code, on this data and these models."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from datasets.sources.taskonomy import available_tasks
from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import TASKS, get_task
from models.networks.decoders import DECODERS
from models.networks.encoders import ENCODERS
from models.networks.task_model import load_model, save_model
from network import provenance
from network.algorithms import ALGORITHMS
from network.partition.rules import PARTITIONERS
from sweeps import records
from sweeps.expand import parsed
from sweeps.grid import ARGUMENTS, COMPARISON, SCALES, SWEEP_TYPES, Command, Grid
from sweeps.records import State
from tests.conftest import run_forked
from utils import versions
from utils.errors import UserError
from utils.files import write_json
from utils.renamed import with_present_names
from utils.runs import Run
from utils.stage import changes_numbers, key
from utils.versions import DECLARED, CodePolicy


def state_of(command: Command, policy: CodePolicy = DECLARED) -> State:
    """The state of the run that a command would be."""
    return records.state_of(command[0], parsed(command), policy)


START = "--data_path {data} --rand_seed 0"
FED = (
    "test_fed.py --task normal --type class_based --method fedprox --n_clients 4 --n_rounds 2 --sgd_per_epoch 1 "
    "--min_client_ds_len 1 --alpha 1 --n_clusters 4 "
) + START


# Arguments and code versions of test-mode runs, made by an earlier version of the code (d34df31) before
# configurations became values: a line each.
BEFORE = json.loads(Path(__file__).with_name("runs_of_before.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(rendered: Path, table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a finished federated run, and its data in `copy`; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(rendered, folder / "copy")
    for command in ("model_initialization.py --task normal --image_size 32 --norm group", FED.format(data="copy")):
        assert run_forked(folder, command).returncode == 0
    return folder


@pytest.fixture
def own_copy(rendered: Path, table: Table, tmp_path: Path) -> Path:
    """A copy of the data folder that a test may break, with the photographs, the table and one target alone."""
    others = shutil.ignore_patterns(*(set(available_tasks(rendered)) - {"normal"}))
    return Path(shutil.copytree(rendered, tmp_path / "copy", ignore=others))


@pytest.fixture
def run(finished: Path, own_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Command, Path]:
    """A finished federated run, in a working folder of the test's own: its command and its directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path, ignore=shutil.ignore_patterns("*.png"), dirs_exist_ok=True)
    records._data_version.cache_clear()
    command = FED.format(data=own_copy)
    return tuple(command.split()), tmp_path / "results/test_federated/fedprox/normal/class_based/alpha1_seed0"


def test_finished_run_is_done_however_its_arguments_are_written(run: tuple[Command, Path]) -> None:
    command, _ = run
    assert state_of(command) is State.DONE
    assert state_of((command[0], *command[-2:], *command[1:-2])) is State.DONE  # in another order
    assert state_of((*command, "--mu", "0.01", "--alpha", "1.0")) is State.DONE  # the method's default, and alpha
    assert state_of((*command, "--plot_distribution", "False")) is State.DONE


def test_other_arguments_are_another_run(run: tuple[Command, Path]) -> None:
    for more in ("--alpha 2", "--mu 0.5", "--rand_seed 1", "--method fedavg", "--type iid", "--momentum 0.5"):
        assert state_of((*run[0], *more.split())) is State.NEW


@pytest.mark.parametrize(
    "more",
    ["--attack label_flip --attackers 1", "--aggregation median", "--clip_norm 1", "--clip_norm 1 --clip_quantile 0.5"],
)
def test_run_that_has_more_is_another_run(own_copy: Path, run_here: Callable, tmp_path: Path, more: str) -> None:
    run_here("model_initialization.py --task normal --image_size 32 --norm group")
    plain = tuple(FED.format(data=own_copy).split())
    run_here(" ".join([*plain, more]))
    records._data_version.cache_clear()
    assert state_of((*plain, *more.split())) is State.DONE
    assert state_of(plain) is State.NEW  # what it leaves out is said by the other
    [path] = tmp_path.glob("results/test_federated/**/summary.json")
    path.unlink()
    assert state_of((*plain, *more.split())) is State.CUT_OFF
    assert state_of(plain) is State.NEW


def test_run_without_a_summary_was_cut_off(run: tuple[Command, Path]) -> None:
    command, folder = run
    (folder / "summary.json").unlink()
    assert state_of(command) is State.CUT_OFF
    # Killed between the two renamings of a checkpoint, it has left the one before.
    (folder / "checkpoint/last.safetensors").unlink()
    assert state_of(command) is State.CUT_OFF
    (folder / "checkpoint/last_previous.safetensors").unlink()
    assert state_of(command) is State.NEW


def test_central_training_without_a_summary_was_cut_off_if_the_checkpoint_is_its_own(
    own_copy: Path, run_here: Callable, tmp_path: Path
) -> None:
    run_here("model_initialization.py --task normal --image_size 32 --encoder tiny")
    given = START.format(data=own_copy)
    command = f"train_centralized_task_model.py --task normal --test_mode True --n_epochs 2 {given}"
    run_here(command)
    records._data_version.cache_clear()
    state = partial(state_of, tuple(command.split()))
    folder = tmp_path / "results/train_centralized/normal/seed0"
    assert state() is State.DONE
    (folder / "summary.json").unlink()
    assert state() is State.CUT_OFF
    [last] = tmp_path.glob("**/centralized_normal_checkpoint.safetensors")
    last.unlink()
    assert state() is State.CUT_OFF  # the one before it is there
    (folder / "args.json").touch()
    assert state() is State.NEW  # which an earlier training of the same task and seed has left


@pytest.mark.parametrize("what", ["model", "image", "selection", "environment"])
def test_run_on_other_files_is_not_done(run: tuple[Command, Path], own_copy: Path, tmp_path: Path, what: str) -> None:
    command, folder = run
    if what == "model":
        path = tmp_path / "initial_models/init_model_normal.safetensors"
        path.write_bytes(path.read_bytes() + b" ")
    elif what == "image":
        path = next(own_copy.glob("normal/taskonomy/*/*.png"))
        path.write_bytes(path.read_bytes() + b" ")
    elif what == "selection":
        path = own_copy / "filtered_file_paths.csv"
        path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    else:
        (folder / "environment.json").write_text("{")  # killed as it was written
    for policy in (DECLARED, ACCEPT):
        assert state_of(command, policy) is State.NEW
    (folder / "summary.json").unlink()
    assert state_of(command) is State.NEW  # nor is it resumed


# Code that has changed

ACCEPT, REFUSE = CodePolicy("any"), CodePolicy("same_source")


def states(run: tuple[Command, Path]) -> list[State]:
    """By default, with `--reuse any` and with `--reuse same_source`."""
    return [state_of(run[0], policy) for policy in (DECLARED, ACCEPT, REFUSE)]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The warnings since the last call."""

    def read() -> list[str]:
        versions.warn.cache_clear()
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]

    versions.warn.cache_clear()
    return read


def test_run_is_done_whatever_becomes_of_the_sources_that_changes_no_version(
    run: tuple[Command, Path], monkeypatch: pytest.MonkeyPatch, said: Callable
) -> None:
    assert states(run) == [State.DONE] * 3 and said() == []
    monkeypatch.setattr(ALGORITHMS["moon"], "version", 2, raising=False)  # another method
    monkeypatch.setitem(TASKS, "reshading", replace(TASKS["reshading"], version=2))
    assert states(run) == [State.DONE] * 3 and said() == []
    monkeypatch.setattr(provenance, "source_hash", lambda: "other")
    assert state_of(run[0]) is State.DONE
    [line] = said()
    assert "other source files of the same declared versions count; --reuse same_source makes them again" in line
    assert states(run) == [State.DONE, State.DONE, State.NEW]


@pytest.mark.parametrize("part", ["engine", "method", "parent", "task", "partition"])
def test_run_is_not_done_once_a_version_is_raised_unless_it_is_accepted(
    run: tuple[Command, Path], monkeypatch: pytest.MonkeyPatch, said: Callable, part: str
) -> None:
    if part == "engine":
        monkeypatch.setitem(versions.ENGINE, "test_fed", 8)
    elif part in ("method", "parent"):
        monkeypatch.setattr(ALGORITHMS["fedprox" if part == "method" else "fedavg"], "version", 8, raising=False)
    elif part == "task":
        monkeypatch.setitem(TASKS, "normal", replace(TASKS["normal"], version=8))
    else:
        monkeypatch.setitem(PARTITIONERS, "paper", replace(PARTITIONERS["paper"], version=8))
    assert state_of(run[0]) is State.NEW
    [line] = said()
    assert "(now 8) are made again; --reuse any keeps them" in line
    assert states(run) == [State.NEW, State.DONE, State.NEW]
    (run[1] / "summary.json").unlink()
    assert states(run) == [State.NEW, State.CUT_OFF, State.NEW]


@pytest.mark.parametrize("noted", [{"engine": "9f" * 32}, "9f" * 32])
def test_run_from_before_versions_were_declared_is_of_an_unknown_one(
    run: tuple[Command, Path], said: Callable, noted: object
) -> None:
    path = run[1] / "environment.json"
    before = json.loads(path.read_text())
    del before["source_hash"]
    path.write_text(json.dumps(before | {"code_version": noted}))
    assert state_of(run[0]) is State.NEW
    [line] = said()
    assert "an unknown version of the code" in line and line.endswith("; --reuse any keeps them")
    assert states(run) == [State.NEW, State.DONE, State.NEW]


def test_of_several_runs_that_of_the_present_code_counts_without_a_word(
    run: tuple[Command, Path], said: Callable
) -> None:
    older = Path(shutil.copytree(run[1], run[1].with_name("alpha1_seed0_0")))
    path = older / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code_version": "9f"}))
    assert states(run) == [State.DONE] * 3 and said() == []


@pytest.fixture
def start(own_copy: Path, run_here: Callable, tmp_path: Path) -> Callable[..., list[State]]:
    """The states of an initial model with an encoder of a file, by policy as `states`; made anew if asked."""
    run_here(f"model_initialization.py --task normal --image_size 32 --data_path {own_copy}")
    shutil.copy(tmp_path / "initial_models/init_model_normal.safetensors", tmp_path / "w.safetensors")
    command = "model_initialization.py --task class_scene --image_size 32 --encoder_weights w.safetensors"
    command += f" --data_path {own_copy}"

    def read(make: bool = False) -> list[State]:
        if make:
            run_here(command)
        return [state_of(tuple(command.split()), policy) for policy in (DECLARED, ACCEPT, REFUSE)]

    return read


def test_initial_model_is_of_the_present_classes(start: Callable, own_copy: Path) -> None:
    assert start() == [State.NEW] * 3 and start(make=True) == [State.DONE] * 3
    path = own_copy / "filtered_file_paths.json"
    about = json.loads(path.read_text())
    about["classes"]["class"]["names"].append("attic")
    path.write_text(json.dumps(about))
    assert start() == [State.NEW] * 3 and start(make=True) == [State.DONE] * 3


def test_initial_model_is_of_the_present_weights(start: Callable, tmp_path: Path) -> None:
    assert start(make=True) == [State.DONE] * 3
    path = tmp_path / "w.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)
    assert start() == [State.NEW] * 3 and start(make=True) == [State.DONE] * 3


def test_initial_model_is_of_the_given_scaling(start: Callable, own_copy: Path, run_here: Callable) -> None:
    command = f"model_initialization.py --task normal --image_size 32 --data_path {own_copy}"
    scaled = f"{command} --image_mean 0.1 0.2 0.3"
    assert [state_of(tuple(each.split())) for each in (command, scaled)] == [State.DONE, State.NEW]
    run_here(scaled)
    assert [state_of(tuple(each.split())) for each in (command, scaled)] == [State.NEW, State.DONE]


@pytest.mark.parametrize("entries", [ENCODERS, DECODERS], ids=["encoder", "decoder"])
def test_initial_model_is_of_the_present_versions(
    start: Callable, monkeypatch: pytest.MonkeyPatch, said: Callable, entries: dict
) -> None:
    assert start(make=True) == [State.DONE] * 3 and said() == []
    name = "tiny" if entries is ENCODERS else "taskonomy"
    monkeypatch.setitem(entries, name, replace(entries[name], version=8))
    assert start() == [State.NEW, State.DONE, State.NEW]
    assert f"{name} (now 8), is made again; --reuse any keeps it" in said()[0]
    assert start(make=True) == [State.DONE] * 3


def test_initial_model_from_before_versions_were_noted_counts(start: Callable, tmp_path: Path) -> None:
    start(make=True)
    path = tmp_path / "initial_models/init_model_class_scene.safetensors"
    model = load_model(path, "class_scene", "")
    save_model(model, path)
    assert start() == [State.DONE] * 3
    path.write_bytes(b"broken")
    assert start() == [State.NEW] * 3


def test_copy_of_the_data_is_the_same_data(run: tuple[Command, Path], own_copy: Path) -> None:
    command, folder = run
    version = json.loads((folder / "environment.json").read_text())["data_version"]
    for path in own_copy.rglob("*.png"):
        path.touch()
    records._data_version.cache_clear()
    assert state_of(command) is State.NEW  # until it is packed again, nobody knows
    data = TaskData(read_table(own_copy), get_task("normal"), 32, torch.device("cpu"))
    assert data.version == version
    records._data_version.cache_clear()
    assert state_of(command) is State.DONE


def test_refused_arguments_are_the_scripts_own_error() -> None:
    with pytest.raises(UserError, match="--sgd_per_epok"):
        parsed(("test_fed.py", "--task", "normal", "--sgd_per_epok", "3"))


def has_values(scale: str, sweep_type: str) -> bool:
    """Whether the scale says what a sweep of this type varies."""
    return sweep_type == COMPARISON or (ARGUMENTS / scale / f"{sweep_type}.txt").is_file()


@pytest.mark.parametrize(("scale", "sweep_type"), [pair for pair in product(SCALES, SWEEP_TYPES) if has_values(*pair)])
def test_scripts_understand_the_arguments_of_every_scale(scale: str, sweep_type: str) -> None:
    paths = (Path("data"), Path("results"))
    tasks, methods = ["normal", "class_scene"], [*ALGORITHMS]
    grid = Grid(scale, *paths, tasks, methods, ["class_based"], ["0.01"], [0], [16], sweep_type)
    assert len(grid.federated()) >= 2 * len(ALGORITHMS)
    # Each method with the last of the values that the sweep varies, and the first method with all of them.
    of_methods = {job.families[0]: job for job in grid.federated()}  # by task and method
    of_values = replace(grid, methods=methods[:1]).federated()
    for job in (*grid.central(), *of_methods.values(), *of_values):
        for command in job.commands:
            assert parsed(command)["task"] in command


@pytest.mark.parametrize(
    "more",
    [{"n_images": 40}, {"within": "building"}, {"balanced": False}, {"adapt_rank": 4}, {"lora_rank": 4}, {"mu": 0.1},
     {"trim_share": 0.1}, {"attackers": 2.0}, {"clip_norm": 1.0}, {"attack": "ipm"}],
    ids=lambda more: "".join(more),
)  # fmt: skip
def test_what_a_run_has_and_a_command_leaves_out_makes_another_run(
    more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "_data_now", lambda *_: "the same")
    command = ("test_fed.py", "--task", "normal", "--data_path", "photos")
    config = key(parsed(command))
    config["encoder"] = "tiny"  # the model's file says that
    folder = Path("results/test_federated/fedavg/normal/embedding_based/run")
    write_json(folder / "environment.json", records.code_of(command[0], config) | {"data_version": "the same"})
    write_json(folder / "summary.json", {})
    write_json(folder / "args.json", config)
    assert state_of(command) is State.DONE
    write_json(folder / "args.json", config | more)
    assert state_of(command) is State.NEW


@pytest.mark.parametrize("before", BEFORE, ids=lambda before: before["folder"])
def test_runs_of_an_earlier_version_stay_finished_and_cut_off_ones_are_resumed(
    before: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "_data_now", lambda *_: "the same")
    stage, *parts = Path(before["folder"]).parts
    folder = Path("results") / before["folder"]
    origin = {
        "code_version": before["code_version"],
        "source_hash": "of then",
        "data_version": "the same",
        "inputs": {},
    }
    command = (*shlex.split(before["command"]), "--data_path", "photos")
    folders = {
        name: str(value)
        for name, value in parsed(command).items()
        if not changes_numbers(name) and isinstance(value, Path)
    }
    write_json(folder / "args.json", before["args"] | folders)
    write_json(folder / "environment.json", origin)
    assert state_of(command) is State.NEW
    if stage == "test_federated":  # central trainings keep their checkpoint with the models
        (folder / "checkpoint").mkdir()
        save_file({"w": torch.zeros(1)}, folder / "checkpoint/last.safetensors")
        assert state_of(command) is State.CUT_OFF
        # The model's part is its file's.
        now = with_present_names(before["args"]) | parsed(command) | {"resume_training": True}
        assert Run.start(now, stage, *parts, origin=origin | {"source_hash": "of now"}).path == folder
    write_json(folder / "summary.json", {})
    assert state_of(command) is State.DONE
    assert state_of((*command, "--rand_seed", "7")) is State.NEW
