"""Federations of networks of other libraries: resumed to the same bits, and one by one as side by side."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import TASKS
from models.networks.config import ModelConfig
from models.networks.decoders import DECODERS
from models.networks.task_model import TaskModel
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.settings import SimulationSettings
from tests.network import quadratic as q
from utils.runs import Run

# Not MobileNets: new, with group norm over maps of a pixel, they turn a change of a millionth of the images into one of
# a tenth of the way of four steps, in double precision, too; tests/models/networks/test_decoders.py compares gradients.
NETWORKS = [
    ("lenet", "linear"),
    ("tiny", "unet"),
    ("timm:test_efficientnet", "unet"),
    ("timm:test_vit", "taskonomy"),
]
RANDOM = ("tiny", "deeplabv3plus")  # drops out half of a layer
WAYS: dict[tuple, object] = {}  # how copies of a network train side by side: found out once, as it takes longer


def federation(table: Table, folder: Path, network: tuple[str, str], norm: str = "batch", **more: object) -> Simulation:
    """Two clients, before the first round."""
    encoder, decoder = network
    torch.manual_seed(0)
    task = table.bind(next(TASKS[name] for name in ("normal", "class_scene") if DECODERS[decoder].suits(TASKS[name])))
    model = TaskModel(ModelConfig(task.name, encoder, 32, norm, classes=task.classes, decoder=decoder))
    data = TaskData(table, task, 32, torch.device("cpu"))
    settings = replace(
        q.SETTINGS,
        batch_size=4,
        sgd_per_epoch=2,
        init_lr=0.01,
        augment="crop_flip",
        n_rounds=2,
        encoder_lr_factor=0.5,
    )
    federated = FederatedData(data, np.split(data.train[:24], 2), [data.test[:2]] * 2, np.zeros(len(data), np.int64))
    how = SimulationSettings(0, evaluate_every=9, **more)
    config = FederationConfig(local=settings, settings=how)
    simulation = Simulation(model, federated, config, Accelerator(cpu=True), Run(folder))
    if how.vectorised_clients != 1:
        build = vars(simulation.trainer._build)
        build["_way"] = WAYS[network, norm] = WAYS.get((network, norm)) or simulation.trainer._build._way
    return simulation


@pytest.mark.parametrize("vectorised_clients", [1, 2])
@pytest.mark.parametrize("network", [*NETWORKS, RANDOM])
def test_a_resumed_federation_ends_in_the_same_bits(
    network: tuple[str, str], vectorised_clients: int, table: Table, tmp_path: Path
) -> None:
    through = federation(table, tmp_path / "through", network, vectorised_clients=vectorised_clients)
    through.n_rounds = 1
    through.train()
    shutil.copytree(tmp_path / "through", tmp_path / "stopped")
    through.n_rounds = 2
    through.train()
    torch.rand(7)  # another state of the generator than there was
    resumed = federation(table, tmp_path / "stopped", network, vectorised_clients=vectorised_clients)
    resumed.resume()
    resumed.train()
    assert len(resumed.rows) == 3 and through.server.keys() == resumed.server.keys()
    assert all(torch.equal(tensor, resumed.server[name]) for name, tensor in through.server.items())


@pytest.mark.parametrize("network", NETWORKS)
def test_clients_side_by_side_come_where_they_come_one_by_one(
    network: tuple[str, str], table: Table, tmp_path: Path
) -> None:
    ends = []
    for n in (1, 2):
        run = federation(table, tmp_path / str(n), network, norm="group", vectorised_clients=n)
        start = {name: tensor.clone() for name, tensor in run.server.items()}
        run.train()
        ends.append({name: (tensor - start[name]).double() for name, tensor in run.server.items()})
    way = torch.cat([tensor.flatten() for tensor in ends[0].values()])
    apart = torch.cat([(ends[1][name] - tensor).flatten() for name, tensor in ends[0].items()])
    assert 0 < apart.norm() < 1e-3 * way.norm()
