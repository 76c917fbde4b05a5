"""Federations on images of noise, which take no data set and no download: what a benchmark needs of `test_fed.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from datasets.classes import ClassSet
from datasets.task_data import TaskData, as_tensor
from datasets.tasks import Task, get_task
from models.networks.config import ModelConfig
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.settings import LocalSettings, SimulationSettings
from utils.runs import Run


@dataclass(frozen=True)
class Scale:
    """How large a federation is; all clients have the same number of images and take part in every round."""

    encoder: str
    image_size: int
    norm: str
    n_clients: int
    n_steps: int
    batch_size: int = 16
    images_a_client: int = 64
    task: str = "depth_euclidean"
    momentum: float = 0.9
    lr: float = 0.05
    decoder: str = ""
    train: str = "all"


class NoiseData(TaskData):
    """Packed images and targets of random bytes, which lie where `TaskData` would have put them."""

    def __init__(self, task: Task, n_train: int, n_test: int, image_size: int, device: torch.device) -> None:
        self.task, self.device, self.image_size = task, device, image_size
        rng = np.random.default_rng(0)
        n = n_train + n_test

        def noise(dtype: str, channels: int) -> torch.Tensor:
            """Packed images of random values."""
            shape = (n, channels, image_size, image_size)
            packed = rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype)
            return as_tensor(packed).to(device)

        self._images = tuple(noise(photograph.dtype, photograph.channels) for photograph in task.photographs)
        if task.encoding is None:
            self._stored = torch.from_numpy(rng.integers(0, task.out_channels, n)).to(device)
        else:
            self._stored = noise(task.encoding.dtype, task.encoding.channels)
        self._resident = True
        self.train, self.test = np.arange(n_train), np.arange(n_train, n)
        self.readable = np.ones(n, bool)
        self.labels = torch.zeros(n, dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return len(self._stored)


def simulation_of(
    scale: Scale,
    n_rounds: int,
    accelerator: Accelerator,
    folder: Path,
    precision: str = "fp32",
    vectorised_clients: int | None = 1,
) -> Simulation:
    """FedAvg at this scale as `test_fed.py` makes it, before its first round."""
    model, data = model_and_data(scale, accelerator, precision)
    return federation_on(model, data, scale, n_rounds, accelerator, folder, vectorised_clients)


def model_and_data(scale: Scale, accelerator: Accelerator, precision: str = "fp32") -> tuple[TaskModel, TaskData]:
    """The initial model, with random weights, and the images of all clients; tasks with classes have ten."""
    torch.manual_seed(0)
    classes = ClassSet(tuple(map(str, range(10)))) if get_task(scale.task).categorical else None
    config = ModelConfig(
        scale.task, scale.encoder, scale.image_size, scale.norm, classes=classes, decoder=scale.decoder
    )
    model = TaskModel(config)
    set_precision(model, precision, accelerator.device)
    n_train = scale.n_clients * scale.images_a_client
    return model, NoiseData(model.task, n_train, 16, scale.image_size, accelerator.device)


def federation_on(
    model: TaskModel,
    data: TaskData,
    scale: Scale,
    n_rounds: int,
    accelerator: Accelerator,
    folder: Path,
    vectorised_clients: int | None = 1,
) -> Simulation:
    """FedAvg of this model on these data, before its first round."""
    settings = LocalSettings(
        batch_size=scale.batch_size,
        sgd_per_epoch=scale.n_steps,
        epoch_per_round=1,
        n_rounds=n_rounds,
        init_lr=scale.lr,
        momentum=scale.momentum,
        lr_schedule="cosine",
        lr_decay_rate=1.0,
        no_improvement_tolerance=1,
        train=scale.train,
    )
    clients, held_out = np.split(data.train, scale.n_clients), np.array_split(data.test, scale.n_clients)
    federated = FederatedData(data, clients, held_out, np.zeros(len(data), np.int64))
    how = SimulationSettings(rand_seed=0, vectorised_clients=vectorised_clients)
    return Simulation(model, federated, FederationConfig(local=settings, settings=how), accelerator, Run(folder))
