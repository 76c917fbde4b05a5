"""The federation by this project's `Simulation`, without evaluation and checkpoints, which the others do not make."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from benchmarks.peer_processes.federation import N_CLASSES, Federation, RoundControl
from datasets.classes import ClassSet
from datasets.task_data import Batch, gathered
from datasets.tasks import get_task
from models.networks.task_model import Outputs
from network.config import FederationConfig
from network.engine import local_training
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.settings import LocalSettings, SimulationSettings
from utils.runs import Run


def in_order(n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> np.ndarray:
    """Batches of positions, one after the other: clients go through their images as all peers' do here."""
    return (np.arange(n_steps * batch_size) % n_images).reshape(n_steps, batch_size)


class WithEmbedding(nn.Module):
    """A classifier as the project's models are; features and embedding are the images themselves."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Outputs:
        """Logits as output."""
        return Outputs(images, images, self.classifier(images))


class Arrays:
    """Images and classes in memory: what `Simulation` asks of `TaskData`."""

    task = get_task("class_scene").with_classes(ClassSet(tuple(map(str, range(N_CLASSES)))))

    def __init__(self, federation: Federation) -> None:
        images, self.labels = federation.data
        self.device = images.device
        self.images = images.permute(0, 2, 3, 1).contiguous()  # as `TaskData` has them: channels last
        self.valid = torch.ones_like(self.labels, dtype=torch.bool)
        self.train = self.test = np.arange(len(self.labels))

    def batch(self, positions: Tensor) -> Batch:
        """The images at these positions."""
        [(_, batch)] = self.batches([positions.cpu().numpy()])
        return batch

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        """Batch after batch, with its positions."""
        positions = [torch.from_numpy(at).to(self.device, non_blocking=True) for at in plan]
        rows = gathered((self.images, self.labels, self.valid), positions)
        for at, (images, labels, valid) in zip(positions, rows, strict=True):
            yield at, Batch(images.permute(0, 3, 1, 2), labels, valid)


def simulation_of(federation: Federation, folder: Path) -> Simulation:
    """The federation, before its first round."""
    settings = LocalSettings(
        batch_size=federation.batch_size,
        sgd_per_epoch=federation.n_steps,
        epoch_per_round=1,
        n_rounds=1,
        init_lr=federation.lr,
        momentum=0.0,
        lr_schedule="none",
        lr_decay_rate=1.0,
        no_improvement_tolerance=1,
    )
    data = Arrays(federation)
    clients = np.split(data.test, federation.n_clients)
    federated = FederatedData(data, clients, clients, np.zeros(len(data.test), np.int64))
    how = SimulationSettings(federation.seed, vectorised_clients=federation.at_once)
    accelerator = Accelerator(cpu=federation.device == "cpu")
    model = WithEmbedding(federation.initial_model())
    return Simulation(model, federated, FederationConfig(local=settings, settings=how), accelerator, Run(folder))


def main() -> None:
    """Rounds as the benchmark asks for them."""
    federation = Federation.of_text(sys.argv[1])
    local_training.shuffled_epochs = in_order
    with tempfile.TemporaryDirectory() as folder:
        simulation, round = simulation_of(federation, Path(folder)), 0
        simulation.resolve_vectorisation()
        control = RoundControl(federation)  # behind the simulation, which has joined the processes
        while control.go():
            simulation._train_round(round)
            round += 1
            control.done()
    control.finish(
        {name.removeprefix("classifier."): tensor.cpu().numpy() for name, tensor in simulation.server.items()}
    )


if __name__ == "__main__":
    main()
