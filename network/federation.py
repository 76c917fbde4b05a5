"""A federation in a few lines of Python: what the scripts do, without their files, reports and figures.

>>> from datasets.table import read_table
>>> from network.algorithms.fedprox import FedProx
>>> table = read_table("data/sample_rooms")  # doctest: +SKIP
>>> data, model = images_and_model(table, "normal", encoder="tiny", image_size=32)  # doctest: +SKIP
>>> partition = partition_images(data, table.labels, n_clients=5, alpha=0.1)  # doctest: +SKIP
>>> config = FederationConfig(FedProx(mu=0.1), LocalSettings(n_rounds=3, sgd_per_epoch=5))
>>> simulation = simulation_of(model, data, partition, "runs/a", config)  # doctest: +SKIP
>>> rounds = simulation.train()  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.networks.config import ModelConfig
from models.networks.encoders import encoder_entry
from models.networks.task_model import TaskModel
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.partition.assigning import Partition, assign
from network.partition.groups import within
from network.partition.held_out import held_out_of
from network.settings import LocalSettings
from utils.runs import Run

__all__ = ["FederationConfig", "LocalSettings", "images_and_model", "partition_images", "simulation_of"]


def images_and_model(
    table: Table,
    task: str,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    encoder: str = "tiny",
    **config: Any,
) -> tuple[TaskData, TaskModel]:
    """The images of a task, and a network for it with random weights.

    Args:
        table: of `datasets.table.read_table`.
        task: a name of `datasets.tasks.TASKS`.
        seed: of the weights.
        device: where batches of images are decoded.
        encoder: as `model_initialization.py --encoder` takes it.
        config: further fields of `ModelConfig`, as `image_size=32` or `norm="group"`; classes are the table's.

    Raises:
        UserError: where the table has nothing for the task.
    """
    entry = get_task(task)
    if entry.categorical:
        config.setdefault("classes", table.class_set(entry))
    config.setdefault("image_size", encoder_entry(encoder).image_size)
    torch.manual_seed(seed)
    model = TaskModel(ModelConfig(task, encoder, **config))
    return TaskData(table, model.task, model.config.image_size, torch.device(device)), model


def partition_images(
    data: TaskData,
    groups: np.ndarray,
    rule: str = "equal_size",
    *,
    n_clients: int,
    alpha: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Partition:
    """The training images, partitioned by their groups.

    Args:
        data: of `images_and_model`.
        groups: (N,) int, the group of every image of the table: its class (`table.labels`), its cluster or any other
            number; images of group -1 belong to no client.
        rule: a name of `network.partition.rules.PARTITIONERS`.
        n_clients: number of clients.
        alpha: the rule's concentration.
        seed: of the draw.
        options: the rule's own arguments.

    Raises:
        UserError: where the rule cannot partition these images so.
    """
    partition = assign(rule, within(groups, data.train), n_clients, alpha, seed, **options)
    return replace(partition, groups=groups.astype(np.int64))


def simulation_of(
    model: TaskModel,
    data: TaskData,
    partition: Partition,
    folder: Path | str,
    config: FederationConfig | None = None,
    accelerator: Accelerator | None = None,
) -> Simulation:
    """A federation before its first round; its `train()` returns the metrics, a row for each round.

    Each client's held-out images are its part of the common ones, mixed like its training images.

    Args:
        model: the initial model, which becomes the working copy.
        data: of `images_and_model`.
        partition: of `partition_images`.
        folder: for `metrics.csv` and checkpoints.
        config: the method and all settings; by default FedAvg of all clients.
        accelerator: the processes and their device; by default what `accelerate` finds.

    Raises:
        UserError: where the configuration does not fit the task or the number of clients.
    """
    config = config or FederationConfig()
    held_out = held_out_of(partition, data.test, config.settings.rand_seed)
    federated = FederatedData.of(data, partition, held_out)
    return Simulation(model, federated, config, accelerator or Accelerator(), Run(Path(folder)))
