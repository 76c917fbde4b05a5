"""Targets between clients and the dispersion of gradients, against plain loops and a closed form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import get_task
from losses import return_task_loss
from models.central.training import early_file
from models.networks.encoders import ENCODERS
from models.networks.task_model import ModelConfig, Outputs, TaskModel, save_model
from network.engine import dispersion
from network.engine.dispersion import gradient_dispersion, measure, residual_share
from network.importance import FedIR
from network.partition.assigning import assign
from network.partition.explained import share_explained
from network.partition.resolve import resolve_partition
from network.partition.settings import AssignSettings, PartitionSettings

CPU = torch.device("cpu")
SIZE = 16


def open_data(table: Table, task: str) -> TaskData:
    return TaskData(table, table.bind(get_task(task)), SIZE, CPU)


class Line(nn.Module):
    """output = w * image, for one number per image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor) -> Outputs:
        return Outputs(images, images, self.weight * images)


def test_dispersion_of_a_line_in_closed_form() -> None:
    x, y = torch.tensor([1.0, 2.0, 3.0, -1.0, 0.5]), torch.tensor([1.0, 0.0, 2.0, 2.0, -3.0])

    def batch(at: Tensor) -> Batch:
        values = x[at].view(-1, 1, 1, 1), y[at].view(-1, 1, 1, 1)
        return Batch(*values, torch.ones_like(values[0], dtype=torch.bool))

    data = SimpleNamespace(batch=batch, device=CPU, task=get_task("reshading"))  # whose loss is the squared error
    clients = [np.array([0, 3]), np.array([1, 2, 4])]
    gradients = (2 * x * (2 * x - y)).numpy()
    means, shares = np.array([gradients[images].mean() for images in clients]), np.array([0.4, 0.6])
    overall = gradients.mean()
    expected = shares @ (means - overall) ** 2 / overall**2
    assert gradient_dispersion(Line(), data, clients, Accelerator(cpu=True)) == pytest.approx(expected)


@pytest.mark.parametrize("task", ["normal", "edge_texture", "segment_semantic", "class_scene"])
def test_dispersion_is_that_of_whole_client_gradients(table: Table, task: str) -> None:
    data = open_data(table, task)
    torch.manual_seed(0)
    model = TaskModel(ModelConfig(task, image_size=SIZE, norm="batch", classes=data.task.classes))
    model(data.batch(torch.arange(40)).images)  # running statistics that are not those of a new model
    clients = np.split(np.random.default_rng(0).permutation(data.train), [3, 11, 30])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = gradient_dispersion(model, data, clients, Accelerator(cpu=True))

    parameters = list(model.eval().parameters())
    rows = []
    for images in clients:
        batch = data.batch(torch.from_numpy(images))
        loss = return_task_loss(task)(model(batch.images).output, batch.target, batch.valid).mean()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        rows.append(torch.cat([g.flatten() for g in gradients if g is not None]).double().numpy())
    shares = np.array([len(images) for images in clients]) / len(data.train)
    mean = shares @ np.stack(rows)
    distances = [np.square(row - mean).sum() for row in rows]
    assert found == pytest.approx(shares @ distances / np.square(mean).sum(), rel=1e-3)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("loss", "gradients"),
    [
        ("mse", [[2.0, 4.0], [-2.0, 0.0], [0.0, -6.0], [4.0, 2.0]]),  # twice the error, of two pixels, over two pixels
        ("l1", [[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]),
    ],
)
def test_residual_share_by_hand(loss: str, gradients: list[list[float]]) -> None:
    """Of a model that says 0: the gradient at its output is the error's, and its variance between two clients."""
    targets = -torch.tensor([[1.0, 2.0], [-1.0, 0.0], [0.0, -3.0], [2.0, 1.0]])

    def batch(at: Tensor) -> Batch:
        target = targets[at].view(-1, 1, 1, 2)
        return Batch(torch.zeros_like(target), target, torch.ones_like(target, dtype=torch.bool))

    class Zero(nn.Module):
        def forward(self, images: Tensor) -> Outputs:
            return Outputs(images, images, torch.zeros_like(images))

    data = SimpleNamespace(batch=batch, device=CPU, task=replace(get_task("reshading"), loss=loss))
    client_of = np.array([0, 0, 1, 1, -1])
    rows = np.array(gradients)
    mean, of_clients = rows.mean(axis=0), rows.reshape(2, 2, 2).mean(axis=1)
    share = 2 * np.square(of_clients - mean).sum() / np.square(rows - mean).sum()
    expected = (share - 1 / 3) / (1 - 1 / 3)  # 1 / 3 is what two random groups of four images explain
    assert residual_share(Zero(), data, client_of, 2) == pytest.approx(expected)


@pytest.mark.parametrize("task", ["depth_euclidean", "segment_semantic", "class_scene"])
def test_residual_share_is_between_nothing_and_all(table: Table, task: str) -> None:
    data = open_data(table, task)
    torch.manual_seed(0)
    model = TaskModel(ModelConfig(task, image_size=SIZE, norm="group", classes=data.task.classes))
    client_of = np.full(len(data), -1)
    client_of[data.train] = np.arange(len(data.train)) % 4
    assert abs(residual_share(model, data, client_of, 4)) < 0.2  # assigned in turn: by chance
    rows = []
    for positions in data.train:
        batch = data.batch(torch.tensor([positions]))
        output = model(batch.images).output.detach().requires_grad_()
        loss = return_task_loss(task)(output, batch.target, batch.valid).sum()
        rows.append(torch.autograd.grad(loss, output)[0])
    shrunk = torch.cat(rows)
    if shrunk.ndim == 4:  # 16 pixels in 8 cells
        shrunk = shrunk.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(-1, -2))
    values = shrunk.flatten(1).double().numpy()
    by_first = np.argsort(np.argsort(values[:, np.abs(values).sum(axis=0).argmax()])) * 4 // len(values)
    client_of[data.train] = by_first  # sorted by one of its numbers
    expected = share_explained(values, by_first)
    assert residual_share(model, data, client_of, 4) == pytest.approx(expected, abs=1e-6) and 0 < expected < 1


def test_equal_clients_have_no_dispersion(table: Table) -> None:
    data = open_data(table, "normal")
    model = TaskModel(ModelConfig("normal", image_size=SIZE, norm="group"))
    found = gradient_dispersion(model, data, [data.train, data.train], Accelerator(cpu=True))
    assert found == pytest.approx(0, abs=1e-6)


def test_measures_are_left_out_where_what_they_need_is_not_at_hand(table: Table, tmp_path: Path) -> None:
    data = open_data(table, "normal")
    groups = np.where(np.isin(np.arange(len(data)), data.train), table.labels, -1)
    partition = assign("equal_size", groups, 3, 0.5, seed=0)
    split = PartitionSettings("class_based", AssignSettings(0), 5, tmp_path / "none")
    weights, early = FedIR(), early_file(tmp_path, "normal", False)
    measures = partial(measure, partition, split, data, weights, early, Accelerator(cpu=True))
    plain = measures()
    assert {"emd", "target_variance_share"} <= plain.keys()
    ratios = np.bincount(table.labels[partition.client_of >= 0]) / (partition.client_of >= 0).sum()
    covered = [ratios[np.unique(table.labels[images])].sum() for images in partition.clients]
    assert plain["coverage"] == pytest.approx(np.mean(covered)) and plain["coverage_least"] == min(covered)
    assert not {"frechet", "gradient_dispersion", "residual_variance_share"} & plain.keys()
    config = ModelConfig("normal", image_size=SIZE)
    save_model(TaskModel(replace(config, image_size=2 * SIZE)), early)  # of another size: its gradient is another
    assert "gradient_dispersion" not in measures()
    save_model(TaskModel(config), early)
    found = measures()
    assert found["gradient_dispersion"] > 0 and found["residual_variance_share"] < 1


def test_gradients_of_a_partition_are_measured_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of other methods take them from beside the model; another partition, model or data have others."""
    data, early = open_data(table, "normal"), early_file(tmp_path, "normal", False)
    groups = np.where(np.isin(np.arange(len(data)), data.train), table.labels, -1)
    config = ModelConfig("normal", image_size=SIZE)
    save_model(TaskModel(config), early)
    taken: list[nn.Module] = []

    def counted(model: nn.Module, *rest: Any) -> float:
        taken.append(model)
        return gradient_dispersion(model, *rest)

    monkeypatch.setattr(dispersion, "gradient_dispersion", counted)

    def found(seed: int) -> dict[str, float]:
        partition = assign("equal_size", groups, 3, 0.5, seed=seed)
        split = PartitionSettings("class_based", AssignSettings(0), 5, tmp_path / "none")
        return measure(partition, split, data, FedIR(), early, Accelerator(cpu=True))

    first = found(0)
    assert found(0) == first and len(taken) == 1
    [kept] = early.with_suffix("").iterdir()
    kept.write_text("{")  # nobody writes half a file; a disk may
    assert found(0) == first and len(taken) == 2
    assert found(1)["gradient_dispersion"] != first["gradient_dispersion"] and len(taken) == 3
    save_model(TaskModel(config), early)  # of other random weights
    assert found(0)["gradient_dispersion"] != first["gradient_dispersion"] and len(taken) == 4
    monkeypatch.setitem(ENCODERS, config.encoder, replace(ENCODERS[config.encoder], version=99))
    found(0)
    assert len(taken) == 5


def test_models_that_cannot_be_written_beside_are_measured_all_the_same(table: Table, tmp_path: Path) -> None:
    data, early = open_data(table, "normal"), early_file(tmp_path, "normal", False)
    save_model(TaskModel(ModelConfig("normal", image_size=SIZE)), early)
    early.with_suffix("").touch()  # where the folder would be
    groups = np.where(np.isin(np.arange(len(data)), data.train), table.labels, -1)
    split = PartitionSettings("class_based", AssignSettings(0), 5, tmp_path / "none")
    partition = assign("equal_size", groups, 3, 0.5, seed=0)
    found = measure(partition, split, data, FedIR(), early, Accelerator(cpu=True))
    assert found["gradient_dispersion"] > 0


def test_natural_groups_have_a_distance_of_their_own_beside_that_of_classes(table: Table, tmp_path: Path) -> None:
    data = open_data(table, "normal")
    asked = PartitionSettings("building_based", AssignSettings(0, "natural", n_clients=None), 5, tmp_path)
    partition, split = resolve_partition(asked, data)
    found = measure(partition, split, data, FedIR(), tmp_path / "none", Accelerator(cpu=True))
    shares = partition.sizes / partition.sizes.sum()  # a client has one building
    assert found["assigned_emd"] == pytest.approx(2 * (1 - (shares**2).sum()))
    counts = np.stack(
        [np.bincount(table.labels[images], minlength=len(table.class_names)) for images in partition.clients]
    )
    expected = np.abs(counts / counts.sum(axis=1, keepdims=True) - counts.sum(axis=0) / counts.sum()).sum(axis=1)
    assert found["emd"] == pytest.approx(shares @ expected) and found["emd"] != pytest.approx(found["assigned_emd"])
