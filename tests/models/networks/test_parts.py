"""Which part of a model is trained, in central training and in clients: the rest stays, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.central.settings import TrainSettings
from models.central.training import CentralTraining
from models.networks.config import ModelConfig
from models.networks.parts import TRAINABLE, in_eval_mode, set_eval, train_part
from models.networks.task_model import Outputs, TaskModel
from network.algorithms import ALGORITHMS
from network.config import FederationConfig
from network.engine.client import Phase, copy_into
from network.engine.federated_data import FederatedData
from network.engine.local_training import LocalTraining
from network.engine.simulation import Simulation
from network.engine.workspace import OneCopy, StackedCopies, VmappedCopies, Workspace, workspace
from network.settings import SimulationSettings
from tests.network import quadratic as q
from utils.runs import Run

ACCELERATOR = Accelerator(cpu=True)


def model_of(**more: object) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("normal", "tiny", 16, decoder="taskonomy", **more))


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("normal")), 16, torch.device("cpu"))


def frozen_of(state: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if not name.startswith(TRAINABLE[part])}


# A federation


@pytest.mark.parametrize(
    "part, n_steps, vectorised_clients", [("decoder", 2, 1), ("decoder", 2, 2), ("head", 2, 2), ("head", 1, 1)]
)
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "fedrep", "fedamp", "moon"])
def test_frozen_tensors_keep_their_bits(
    name: str, part: str, n_steps: int, vectorised_clients: int, data: TaskData, tmp_path: Path
) -> None:
    model = model_of()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = replace(q.SETTINGS, train=part, sgd_per_epoch=n_steps)
    clients = np.array_split(data.train[:24], 2)
    sent: list[set[str]] = []

    class Watched(ALGORITHMS[name]):
        def upload(self, local: object) -> dict[str, Tensor]:
            upload = super().upload(local)
            sent.append({key.removeprefix("control.") for key in upload})
            return upload

    algorithm = Watched()
    federated = FederatedData(data, clients, [data.test[:2]] * 2, np.zeros(len(data), np.int64))
    how = SimulationSettings(0, vectorised_clients=vectorised_clients, evaluate_every=9)
    run = Simulation(model, federated, FederationConfig(algorithm, settings, how), ACCELERATOR, Run(tmp_path))
    objects = frozen_of(run.server, part)
    run.train()
    after = frozen_of({name: run.server[name] for name in before}, part)
    assert after and all(run.server[name] is tensor for name, tensor in objects.items() if name in before)
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert all(torch.equal(before[name], tensor) for name, tensor in frozen_of(model.state_dict(), part).items())
    assert not any(names & after.keys() for names in sent)
    for client in range(2):
        assert not {key.partition(".")[2] for key in run.states.load(client)} & after.keys()
        run._load_personal(client)
        own = model.state_dict()
        assert all(torch.equal(before[name], own[name]) for name in after)
        if name not in ("fedavg", "scaffold", "moon"):
            assert any(not torch.equal(before[name], own[name]) for name in own.keys() - after.keys())
    assert run.has_global == (name not in ("fedrep", "fedamp"))


@pytest.mark.parametrize("name", ["ditto", "fedrep", "moon"])
def test_a_federation_with_a_frozen_part_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    settings = replace(q.SETTINGS, train="head", n_rounds=3)
    whole = q.trained(q.method(name), tmp_path / "whole", settings)
    q.trained(q.method(name), tmp_path / "stopped", replace(settings, n_rounds=2))
    resumed = q.simulation(q.method(name), tmp_path / "stopped", settings)
    resumed.resume()
    resumed.train()
    pairs = [(whole.server, resumed.server), *((whole.states.load(i), resumed.states.load(i)) for i in range(2))]
    for one, other in pairs:
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("kind", [OneCopy, StackedCopies, VmappedCopies])
def test_frozen_modules_are_in_eval_mode_while_the_rest_trains(kind: type[Workspace]) -> None:
    n = 1 if kind is OneCopy else 2
    model = model_of(use_cbam=kind is VmappedCopies)
    space = workspace(model, n, (3, 16, 16), part="decoder")
    assert isinstance(space, kind)
    space.prepare(space.leaves)
    assert all(name.startswith("decoder.") for name in space.leaves)
    modes = {name: module.training for name, module in space._module.named_modules()}
    assert not any(mode for name, mode in modes.items() if name.startswith("encoder"))
    assert all(mode for name, mode in modes.items() if name.startswith("decoder"))
    before = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in space.tensors]
    space(torch.rand(4 * n, 3, 16, 16)).output.sum().backward()
    moved = {name for name in before[0] if not torch.equal(before[0][name], space.tensors[0][name])}
    assert moved and all(name.startswith("decoder.") for name in moved)  # running statistics


def test_reading_a_model_leaves_every_module_in_its_mode() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    train_part(model, "1")
    with in_eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [False, False, True, True]


class Keeping(nn.Module):
    """Keeps in eval mode what it makes of its weight, as timm's attention biases were kept."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 1, 1))
        self._kept: Tensor | None = None

    def train(self, mode: bool = True) -> Keeping:
        if mode:
            self._kept = None
        return super().train(mode)

    def forward(self, images: Tensor) -> Outputs:
        if self.training:
            return self._outputs(images, self.weight)
        self._kept = self.weight.detach() * 2 if self._kept is None else self._kept
        return self._outputs(images, self._kept / 2)

    @staticmethod
    def _outputs(images: Tensor, weight: Tensor) -> Outputs:
        return Outputs(images.mean((2, 3)), images, (images * weight).mean((1, 2, 3))[:, None])


def test_models_are_evaluated_with_their_own_weights_alone() -> None:
    model, images = Keeping(), torch.ones(2, 3, 4, 4)
    for value in (1.0, 2.0):
        copy_into(model.state_dict(), {"weight": torch.full((3, 1, 1), value)})
        with torch.no_grad():
            assert torch.equal(set_eval(model)(images).output, torch.full((2, 1), value))
    train_part(model, "")
    copy_into(model.state_dict(), {"weight": torch.full((3, 1, 1), 3.0)})
    assert torch.equal(set_eval(model)(images).output, torch.full((2, 1), 3.0)) and not model.training


# Rates


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lr_schedule": "plateau"},
        {"use_adam": True, "weight_decay": 0.1},
        {"momentum": 0.9, "lr_schedule": "cosine", "weight_decay": 0.1},
    ],
)
def test_the_encoders_rate_is_that_of_pytorchs_groups(settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.networks.parts._ENCODER", "weight")  # the body of the quadratic
    local = q.local_of(replace(q.SETTINGS, encoder_lr_factor=0.1, **settings))
    model = q.Quadratic()

    class InPhases(ALGORITHMS["fedavg"]):
        def local_update(self, local: object) -> object:
            yield Phase(5)

    LocalTraining(OneCopy(local.model), q.QuadraticData(), InPhases(), torch.zeros(11).long(), 0)([local])
    groups = [{"params": [model.decoder.head.shift]}, {"params": [model.weight], "lr": 0.1 * q.LR}]
    decay = settings.get("weight_decay", 0.0)
    optimizer = torch.optim.SGD(groups, lr=q.LR, momentum=settings.get("momentum", 0.0), weight_decay=decay)
    if settings.get("use_adam"):
        optimizer = torch.optim.Adam(groups, lr=q.LR, weight_decay=decay)
    batch = q.QuadraticData().batch(torch.from_numpy(q.CLIENTS[1]))
    for step in range(5):
        for group, factor in zip(optimizer.param_groups, (1.0, 0.1), strict=True):
            cosine = (1 + np.cos(np.pi * step / 5 / q.SETTINGS.n_rounds)) / 2
            group["lr"] = q.LR * factor * (cosine if settings.get("lr_schedule") == "cosine" else 1.0)
        optimizer.zero_grad()
        (model(batch.images).output - batch.target).square().mean().backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(local.tensors[name], tensor)


def test_scaffold_finds_the_gradient_of_a_slower_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.networks.parts._ENCODER", "weight")
    settings = replace(q.SETTINGS, encoder_lr_factor=0.1, sgd_per_epoch=1, n_rounds=1)
    run = q.trained(q.method("scaffold"), tmp_path, settings)
    # After one step from the start, c_i is the gradient there, and c the clients' mean of these.
    expected = q.average([q.gradient(q.START, 0), q.gradient(q.START, 1)])
    assert q.close(run.server["control.weight"].numpy(), expected[0], 1e-4)
    assert q.close(run.server["control.decoder.head.shift"].numpy(), expected[1], 1e-4)


# Central training


SETTINGS = TrainSettings(0, n_epochs=1, batch_size=8, init_lr=0.05, val_fraction=0.2)


def central(data: TaskData, folder: Path, settings: TrainSettings, model: TaskModel) -> CentralTraining:
    files = [folder / name for name in ("last", "best", "early")]
    return CentralTraining(model, data, settings, ACCELERATOR, *files)


@pytest.mark.parametrize("part", ["decoder", "head"])
@pytest.mark.parametrize("schedule", ["plateau", "one_cycle"])
def test_central_training_leaves_what_is_frozen(part: str, schedule: str, data: TaskData, tmp_path: Path) -> None:
    model = model_of()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = central(data, tmp_path, replace(SETTINGS, train=part, lr_schedule=schedule), model)
    training.run(lambda history: None)
    after = model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith(TRAINABLE[part]) for name in moved)
    assert any("running_mean" in name for name in moved) == (part == "decoder")


def test_the_encoders_rate_in_central_training(data: TaskData, tmp_path: Path) -> None:
    ways = []
    for factor in (1.0, 0.1):
        model = model_of(norm="group")
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        settings = replace(SETTINGS, encoder_lr_factor=factor, batch_size=64)  # one step
        training = central(data, tmp_path, settings, model)
        assert training.n_steps == 1
        training.run(lambda history: None)
        ways.append({name: tensor - before[name] for name, tensor in model.state_dict().items()})
    for name, way in ways[0].items():
        factor = 0.1 if name.startswith("encoder.") else 1.0
        torch.testing.assert_close(ways[1][name], factor * way, rtol=1e-2, atol=1e-6)
