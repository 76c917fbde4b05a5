"""A frozen encoder's outputs in a file: trainings on them against those that run the encoder, and the file itself."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.central.settings import TrainSettings
from models.central.training import CentralTraining, model_from_checkpoint
from models.networks import frozen
from models.networks.config import ModelConfig
from models.networks.encoders import ENCODERS
from models.networks.frozen import EncoderOutputs, on_kept_outputs
from models.networks.task_model import TaskModel, load_model
from models.settings import StepSettings
from network.algorithms import ALGORITHMS
from network.config import FederationConfig
from network.engine import local_training
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.workspace import StackedCopies, VmappedCopies
from network.settings import SimulationSettings
from tests.conftest import start_spread
from tests.network import quadratic as q
from utils import filling
from utils.errors import UserError
from utils.runs import Run, load_checkpoint

ACCELERATOR = Accelerator(cpu=True)
SIZE = 16
SMOOTH = "reshading"


@pytest.fixture(scope="module")
def packed(table: Table) -> None:
    """The images of two tasks are packed, so that copies of the data folder have them."""
    for task in ("normal", SMOOTH):
        data_of(table, task)


@pytest.fixture
def copied(packed: None, rendered: Path, tmp_path: Path) -> Table:
    """The table of a data folder of the test's own, where outputs are; its files, not to be changed, are all tests'."""
    return read_table(shutil.copytree(rendered, tmp_path / "copy", copy_function=os.link))


def data_of(table: Table, task: str = "normal") -> TaskData:
    return TaskData(table, table.bind(get_task(task)), SIZE, torch.device("cpu"))


def model_of(task: str = "normal", encoder: str = "tiny", decoder: str = "taskonomy", **more: object) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig(task, encoder, SIZE, decoder=decoder, **more))


def asked(how: str = "auto", train: str = "decoder", augment: str = "none") -> StepSettings:
    return StepSettings(encoder_outputs=how, train=train, augment=augment)


def files(table: Table) -> list[Path]:
    folder = table.data_path / "packed" / str(SIZE) / "encoded"
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


@contextmanager
def encoding(encoder: nn.Module) -> Iterator[list[int]]:
    """How many images the encoder gets, call by call, while the block runs."""
    seen: list[int] = []
    hook = encoder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    yield seen
    hook.remove()


# Trainings


def federation(
    model: TaskModel, data: TaskData, folder: Path, name: str = "fedavg", at_once: int = 1, **changed: object
) -> Simulation:
    """Three clients of different size, of which with two at once one trains alone."""
    settings = replace(q.SETTINGS, train="decoder", sgd_per_epoch=3, batch_size=4, init_lr=0.02, **changed)
    clients = np.split(data.train[:22], [6, 14])
    groups = np.arange(len(data)) % 3
    federated = FederatedData(data, clients, [data.test[:3]] * 3, groups)
    how = SimulationSettings(3, vectorised_clients=at_once)
    arguments = {"representation": "features"} if name == "moon" else {}
    algorithm = ALGORITHMS[name](**arguments)
    return Simulation(model, federated, FederationConfig(algorithm, settings, how), ACCELERATOR, Run(folder))


def columns(run: Simulation) -> np.ndarray:
    return pd.DataFrame(run.rows).drop(columns="seconds").to_numpy(float)


@pytest.mark.parametrize("name", ["fedavg", "moon", "fedproto", "scaffold", "fedrep", "ditto", "fedrcl"])
def test_clients_train_on_kept_outputs_as_with_the_encoder(copied: Table, tmp_path: Path, name: str) -> None:
    """One by one and side by side."""
    # A smooth loss and group norm, with which rounding errors of stacked encoders stay what they are.
    data, settings = data_of(copied, SMOOTH), {"lr_schedule": "plateau", "momentum": 0.5}
    expected = federation(model_of(SMOOTH, norm="group"), data, tmp_path / "encoder", name, **settings)
    expected.train()
    whole = model_of(SMOOTH, norm="group").state_dict()
    for at_once in (1, 2):
        model, kept = on_kept_outputs(model_of(SMOOTH, norm="group"), data, asked(), ACCELERATOR)
        found = federation(model, kept, tmp_path / f"kept {at_once}", name, at_once, **settings)
        with encoding(model.encoder.encoder) as seen:
            found.train()
        assert not seen
        np.testing.assert_allclose(columns(found), columns(expected), rtol=1e-5, atol=1e-6)
        assert found.server.keys() >= expected.trainer.model.state_dict().keys()
        for key, tensor in whole.items():  # the frozen part is saved as it was
            same = torch.equal if key.startswith("encoder.") else torch.allclose
            assert same(found.server[key], tensor if same is torch.equal else expected.server[key])
        saved = load_checkpoint(found.run.checkpoint)[0]
        assert {f"server.{key}" for key in whole} <= saved.keys()
        costs = [run.costs() for run in (found, expected)]
        for cost in ("parameters", "parameters_trained", "forward_macs", "parameters_sent", "bytes_up", "bytes_down"):
            assert costs[0][cost] == costs[1][cost]


@pytest.mark.parametrize(
    "task, encoder, decoder, kind",
    [
        (SMOOTH, "tiny", "unet", VmappedCopies),
        (SMOOTH, "tiny", "taskonomy", StackedCopies),
        ("class_scene", "timm:test_vit", "linear", StackedCopies),  # the encoder alone could not be stacked
    ],
)
def test_side_by_side_and_one_by_one_do_the_same_on_kept_outputs(
    copied: Table, tmp_path: Path, task: str, encoder: str, decoder: str, kind: type
) -> None:
    data = data_of(copied, task)
    model, kept = on_kept_outputs(
        model_of(task, encoder, decoder, norm="group", classes=data.task.classes), data, asked(), ACCELERATOR
    )
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    runs = []
    for at_once in (1, 2):
        model.load_state_dict(start)
        runs.append(federation(model, kept, tmp_path / str(at_once), at_once=at_once))
        assert at_once == 1 or isinstance(runs[-1].trainer._workspace(2), kind)
        runs[-1].train()
    np.testing.assert_allclose(columns(runs[1]), columns(runs[0]), rtol=1e-4, atol=1e-6)


def test_losses_are_equal_to_the_bit_where_batches_are_those_that_were_encoded(
    copied: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "_BATCH", 4)
    data, losses = data_of(copied), []

    in_order = np.arange(12).reshape(3, 4)
    monkeypatch.setattr(local_training, "shuffled_epochs", lambda *_: in_order)

    class Noted(ALGORITHMS["fedavg"]):
        def local_loss(self, loss: Tensor, local: object) -> Tensor:
            losses.append(loss.detach().clone())
            return super().local_loss(loss, local)

    for how in ("never", "auto"):
        model, images = on_kept_outputs(model_of(), data, asked(how), ACCELERATOR)
        federated = FederatedData(images, [np.arange(12)], [data.test], np.zeros(len(data), np.int64))
        settings = replace(q.SETTINGS, train="decoder", batch_size=4, sgd_per_epoch=3)
        config = FederationConfig(Noted(), settings, SimulationSettings(0))
        Simulation(model, federated, config, ACCELERATOR, Run(tmp_path / how)).train()
    with_encoder, kept = losses[: len(losses) // 2], losses[len(losses) // 2 :]
    assert len(kept) == 6 and all(torch.equal(*pair) for pair in zip(with_encoder, kept, strict=True))


def central(
    model: TaskModel, data: TaskData, folder: Path, n_epochs: int = 3, train: str = "decoder"
) -> CentralTraining:
    settings = TrainSettings(0, n_epochs, batch_size=16, init_lr=0.05, train=train)
    paths = [folder / f"{name}.safetensors" for name in ("last", "best", "early")]
    return CentralTraining(model, data, settings, ACCELERATOR, *paths)


@pytest.mark.parametrize("train", ["decoder", "head"])
def test_central_training_is_the_same_on_kept_outputs(copied: Table, tmp_path: Path, train: str) -> None:
    data = data_of(copied)
    expected = central(model_of(), data, tmp_path / "encoder", train=train)
    expected.run(lambda history: None)
    model, kept = on_kept_outputs(model_of(), data, asked(train=train), ACCELERATOR)
    found = central(model, kept, tmp_path / "kept", train=train)
    with encoding(model.encoder.encoder) as seen:
        found.run(lambda history: None)
    assert not seen
    pd.testing.assert_frame_equal(pd.DataFrame(found.history), pd.DataFrame(expected.history), rtol=1e-5)
    for load, name in ((model_from_checkpoint, "last"), (load_made, "best"), (load_made, "early")):
        one, other = (load(tmp_path / way / f"{name}.safetensors", "normal") for way in ("kept", "encoder"))
        for key, tensor in other.state_dict().items():
            torch.testing.assert_close(one.state_dict()[key], tensor, rtol=1e-4, atol=1e-6)
    costs = [each.costs() for each in (found, expected)]
    assert all(costs[0][cost] == costs[1][cost] for cost in ("parameters", "parameters_trained", "forward_macs"))


def load_made(path: Path, task: str) -> TaskModel:
    return load_model(path, task, "nobody")


def test_central_training_resumes_on_kept_outputs_unless_they_are_anothers(copied: Table, tmp_path: Path) -> None:
    data = data_of(copied)
    model, kept = on_kept_outputs(model_of(), data, asked(), ACCELERATOR)
    whole = central(model, kept, tmp_path / "whole")
    whole.run(lambda history: None)
    model, kept = on_kept_outputs(model_of(), data, asked(), ACCELERATOR)
    central(model, kept, tmp_path / "stopped", n_epochs=1).run(lambda history: None)
    model, kept = on_kept_outputs(model_of(), data, asked(), ACCELERATOR)
    resumed = central(model, kept, tmp_path / "stopped")
    resumed.resume()
    resumed.run(lambda history: None)
    assert all(torch.equal(resumed.model.state_dict()[key], tensor) for key, tensor in whole.model.state_dict().items())
    other = model_of()
    nn.init.zeros_(next(other.encoder.parameters()))
    model, kept = on_kept_outputs(other, data, asked(), ACCELERATOR)
    with pytest.raises(UserError, match="made with another encoder; resume with the same initial model"):
        central(model, kept, tmp_path / "stopped").resume()


def test_two_processes_find_what_one_finds_with_the_encoder(own_copy: Path, run_here: Callable, tmp_path: Path) -> None:
    run_here(
        f"extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path {own_copy} "
        "--taskonomy_clients_to_include 2 --scene_class_file_name places_class_names.txt"
    )
    run_here("model_initialization.py --task normal --image_size 16")
    command = (
        "test_fed.py --task normal --type iid --n_clients 3 --n_rounds 2 --sgd_per_epoch 2 --train decoder "
        "--plot_distribution False --result_path {} --data_path " + str(own_copy)
    )
    for process in start_spread(tmp_path, command.format("together"), 2):
        process.join()
        assert process.exitcode == 0, (tmp_path / "output.txt").read_text()
    [kept] = (path for path in own_copy.rglob("encoded/*/*"))
    written = kept.stat()
    run_here(command.format("kept"))
    assert kept.stat().st_mtime_ns == written.st_mtime_ns  # it was only read
    run_here(command.format("encoder") + " --encoder_outputs never")
    metrics = [
        pd.read_csv(next((tmp_path / name).rglob("metrics.csv"))).drop(columns="seconds")
        for name in ("encoder", "kept", "together")
    ]
    pd.testing.assert_frame_equal(metrics[1], metrics[0], rtol=1e-5)
    pd.testing.assert_frame_equal(metrics[2], metrics[0], rtol=1e-4, atol=1e-5)
    for name in ("kept", "encoder"):
        saved = load_model(next((tmp_path / name).rglob("model.safetensors")), "normal", "nobody")
        assert any(key.startswith("encoder.") for key in saved.state_dict())


# The file


class Killed(BaseException):
    """Nothing can be noted any more."""


@pytest.mark.parametrize("how", [KeyboardInterrupt, Killed])
def test_encoding_goes_on_where_it_was_stopped(
    copied: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    monkeypatch.setattr(frozen, "_BATCH", 16)
    monkeypatch.setattr(filling, "BETWEEN_NOTES", 0)
    data = data_of(copied)
    expected = EncoderOutputs(model_of(), data, half=False).kept_in(tmp_path / "whole" / "images")
    model, folder, encode = model_of(), tmp_path / "stopped" / "images", EncoderOutputs._encode
    outputs, calls = EncoderOutputs(model, data, half=False), iter([False, False, True])

    def stopped(self: EncoderOutputs, images: Tensor) -> object:
        if next(calls):
            raise how
        return encode(self, images)

    monkeypatch.setattr(EncoderOutputs, "_encode", stopped)
    with pytest.raises(how):
        outputs.kept_in(folder)
    assert not list(folder.glob("*[!t].npy"))
    monkeypatch.setattr(EncoderOutputs, "_encode", encode)
    with encoding(model.encoder) as seen:
        found = outputs.kept_in(folder)
    assert seen == [16, 16, 8]  # of 72
    assert np.array_equal(found, expected) and len(list(folder.iterdir())) == 1


def test_outputs_are_read_again_where_all_that_they_depend_on_is_the_same(
    copied: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(copied)

    def encoded(model: TaskModel, how: str = "auto", data: TaskData = data) -> int:
        with encoding(model.encoder) as seen:
            on_kept_outputs(model, data, asked(how), ACCELERATOR)
        return sum(seen) >= len(data)

    assert encoded(model_of()) and not encoded(model_of())
    assert not encoded(model_of("reshading"), data=data_of(copied, "reshading"))  # the same encoder of another task
    assert encoded(model_of(), "half") and not encoded(model_of(), "half")
    changed = model_of()
    nn.init.zeros_(next(changed.encoder.parameters()))
    assert encoded(changed)
    assert encoded(model_of(norm="group"))
    assert encoded(model_of(published_quirks=True))  # which leave out the normalisation
    sixteen = model_of()
    sixteen.bf16 = True
    assert encoded(sixteen)
    assert len(files(copied)) == 6
    first = min(files(copied), key=lambda path: path.stat().st_mtime_ns)
    first.write_bytes(first.read_bytes()[:-9])
    assert encoded(model_of()) and not encoded(model_of())
    monkeypatch.setitem(ENCODERS, "tiny", replace(ENCODERS["tiny"], version=8))
    assert encoded(model_of()) and not encoded(model_of())
    monkeypatch.setattr(frozen, "version", lambda package: f"another {package}")
    assert encoded(model_of()) and not encoded(model_of())


def test_a_gpu_does_not_share_outputs_with_a_cpu(copied: Table) -> None:
    data = data_of(copied)
    names = []
    for kind in ("cpu", "cuda"):
        outputs = EncoderOutputs(model_of(), data, half=False)
        outputs._data = SimpleNamespace(device=torch.device(kind))
        names.append(outputs._name())
    assert names[0] != names[1]


def test_outputs_for_images_that_were_packed_anew_are_removed(copied: Table) -> None:
    on_kept_outputs(model_of(), data_of(copied), asked(), ACCELERATOR)
    [before] = files(copied)
    photograph = copied.data_path / copied.cells("rgb")[0]
    photograph.unlink()
    photograph.write_bytes((copied.data_path / copied.cells("rgb")[1]).read_bytes())
    _, kept = on_kept_outputs(model_of(), data_of(copied), asked(), ACCELERATOR)
    [after] = files(copied)
    assert before.parent != after.parent and not before.parent.exists() and before.name == after.name
    rows = kept.batch(torch.tensor([0, 1])).images
    assert torch.equal(rows[0], rows[1])


def test_half_precision_halves_the_file_and_hardly_changes_the_outputs(copied: Table) -> None:
    data, at = data_of(copied), torch.arange(8)
    _, full = on_kept_outputs(model_of(), data, asked(), ACCELERATOR)
    _, half = on_kept_outputs(model_of(), data, asked("half"), ACCELERATOR)
    small, large = sorted(path.stat().st_size for path in files(copied))
    assert large - small == pytest.approx(small, rel=0.01)
    found, expected = half.batch(at).images, full.batch(at).images
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    assert torch.equal(found, expected.half().float())
    model = model_of()
    with torch.no_grad():
        model.encoder.vector[1].bias.fill_(1e5)
    with pytest.raises(UserError, match="the encoder's outputs are too large for half precision; omit it"):
        on_kept_outputs(model, data, asked("half"), ACCELERATOR)
    assert len(files(copied)) == 2


# Where it cannot be


@pytest.mark.parametrize("train, augment", [("all", "none"), ("decoder", "flip")])
def test_an_encoder_that_learns_or_sees_other_images_each_time_runs(copied: Table, train: str, augment: str) -> None:
    model, data = model_of(), data_of(copied)
    assert on_kept_outputs(model, data, asked("auto", train, augment), ACCELERATOR) == (model, data)
    with pytest.raises(UserError, match=r"--encoder_outputs half needs a frozen encoder .* omit it"):
        on_kept_outputs(model, data, asked("half", train, augment), ACCELERATOR)
    assert not files(copied)


def test_it_also_runs_where_that_was_asked_for_or_its_outputs_are_large(
    copied: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    model, data = model_of(), data_of(copied)
    assert on_kept_outputs(model, data, asked("never"), ACCELERATOR) == (model, data)
    monkeypatch.setattr(frozen, "MOST_BYTES", 100_000)
    assert on_kept_outputs(model, data, asked(), ACCELERATOR) == (model, data)
    [line] = capsys.readouterr().out.splitlines()
    assert "more than 9.31e-05 GiB; --encoder_outputs half keeps them in" in line
    assert not files(copied)
    data.shorten(8, 8)
    monkeypatch.undo()
    assert on_kept_outputs(model, data, asked(), ACCELERATOR) == (model, data)


def test_a_full_disk_is_one_line_and_leaves_nothing(copied: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(copied)

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"\(No space left on device\); .*, or --encoder_outputs never$") as raised:
        on_kept_outputs(model_of(), data, asked(), ACCELERATOR)
    assert "\n" not in str(raised.value) and not files(copied)
