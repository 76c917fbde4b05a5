"""What tests of deployed federations share: three clients' folders, and the same federation simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from datasets.table import Table
from datasets.task_data import TaskData
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel, init_file, load_model, make_initial_model
from network.engine.federated_data import FederatedData
from network.partition.assigning import Partition, assign
from network.partition.client_images import ClientImages
from network.partition.groups import within
from network.partition.held_out import assign_held_out

for package in ("flwr", "cryptography"):
    pytest.importorskip(package, reason=f"needs {package}, of requirements-flower.txt")

TASK, SEED = "depth_euclidean", 42
WORDS = f"--task {TASK} --n_rounds 2 --sgd_per_epoch 2 --batch_size 4 --init_lr 0.05 --use_accelerator False"


@dataclass(frozen=True)
class Shares:
    """Three clients' images in one place, `data`, and each in a folder of its own in `folder`."""

    folder: Path
    init: Path
    data: TaskData
    partition: Partition
    held_out: list[np.ndarray]

    @property
    def federated(self) -> FederatedData:
        """As a simulation takes them."""
        return FederatedData(self.data, self.partition.clients, ClientImages.of(self.held_out), self.partition.groups)

    def model(self) -> TaskModel:
        """The model that all start from."""
        return load_model(init_file(self.init, TASK, False), TASK, "")


@pytest.fixture(scope="session")
def shares(rendered: Path, table: Table, tmp_path_factory: pytest.TempPathFactory) -> Shares:
    """The 72 rendered views assigned by class to three clients, one of whom has nothing held out."""
    from deploy.shares import export_shares

    path = tmp_path_factory.mktemp("deployed")
    make_initial_model(path / "init" / f"init_model_{TASK}.safetensors", ModelConfig(TASK, "tiny", 32), SEED)
    model = TaskModel(ModelConfig(TASK, "tiny", 32))
    data = TaskData(table, model.task, 32, torch.device("cpu"))
    classes = within(table.labels, data.train)
    partition = replace(assign("equal_size", classes, 3, 1.0, SEED), groups=table.labels)
    held_out = [*assign_held_out(partition.clients, classes, within(table.labels, data.test), SEED)]
    held_out[2] = held_out[2][:0]
    export_shares(path / "shares", data, partition, held_out)
    return Shares(path / "shares", path / "init", data, partition, held_out)


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    """This process."""
    return Accelerator(cpu=True)
