"""Evaluation of a round's models: the server's, and the clients' personal ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import pairwise

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from models.central.evaluation import evaluate, evaluate_trivial, mean_values
from models.central.metrics import error_names, metric_names, summarise
from network.federated_data import FederatedData


class Evaluation:
    """Loss and metrics by split, as columns of `metrics.csv`.

    `train` are the clients' training images, `local_test` each client's own held-out images, `test` the common ones.
    Over clients there are `<split>_<metric>_mean`, `_std` and `_worst`, without those clients that have nothing to
    count in a split. The columns of personal models begin with `personal_`.

    Args:
        data: the images, and which client has which.
        accelerator: the processes.
    """

    def __init__(self, data: FederatedData, accelerator: Accelerator) -> None:
        self.images, self.clients, self.held_out = data.images, data.clients, data.held_out
        self.accelerator = accelerator

    def of_server(self, model: nn.Module) -> dict[str, float]:
        """The columns of the server's model: one pass over the dealt images and one over the held-out ones."""
        data = self.images
        bounds = np.cumsum([0, *(len(images) for images in self.clients)])
        train = evaluate(model, data, np.concatenate(self.clients), self.accelerator)
        test = evaluate(model, data, data.test, self.accelerator)
        in_test = [np.searchsorted(data.test, images) for images in self.held_out]  # data.test is in order
        of_clients = [np.arange(a, b) for a, b in pairwise(bounds)]
        row = over_clients("train", summarise(data.task, train, of_clients), error_names(data.task))
        row |= over_clients("local_test", summarise(data.task, test, in_test), error_names(data.task))
        return row | {f"test_{name}": value for name, value in mean_values(data, test).items()}

    def of_clients(self, model: nn.Module, load: Callable[[int], None], own: Collection[int]) -> dict[str, float]:
        """The columns of the personal models, each evaluated on its client's images in the client's process.

        `load` copies a client's model into `model`; `own` are the clients of this process.
        """
        task = self.images.task
        values = np.zeros((len(self.clients), len(metric_names(task)), 2))
        for client in own:
            load(client)
            images = np.concatenate([self.clients[client], self.held_out[client]])
            statistics = evaluate(model, self.images, images, None)
            splits = np.split(np.arange(len(images)), [len(self.clients[client])])
            values[client] = np.stack(list(summarise(task, statistics, splits).values()))
        if self.accelerator.num_processes > 1:
            values = self.accelerator.reduce(torch.from_numpy(values).to(self.images.device), "sum").cpu().numpy()
        row: dict[str, float] = {}
        for number, split in enumerate(("personal_train", "personal_local_test")):
            of_clients = dict(zip(metric_names(task), values[:, :, number].T, strict=True))
            row |= over_clients(split, of_clients, error_names(task))
        return row

    def of_trivial(self) -> dict[str, dict[str, float]]:
        """Loss and metrics of the trivial predictor by split: on the clients' splits, the mean over clients."""
        parts = [*self.clients, *(images for images in self.held_out if len(images)), self.images.test]
        *of_clients, test = evaluate_trivial(self.images, *parts, accelerator=self.accelerator)
        means = [
            {name: float(_counted(np.array([value[name] for value in values])).mean()) for name in test}
            for values in (of_clients[: len(self.clients)], of_clients[len(self.clients) :])
        ]
        return {"train": means[0], "local_test": means[1], "test": test}


def over_clients(split: str, values: Mapping[str, np.ndarray], errors: Collection[str]) -> dict[str, float]:
    """Mean, standard deviation and worst value over clients of each metric; nan where no client counts.

    The worst value is the largest for the metrics in `errors`, and the smallest for the others.
    """
    row: dict[str, float] = {}
    for name, of_client in values.items():
        counted = _counted(of_client)
        worst = counted.max() if name in errors else counted.min()
        for what, value in (("mean", counted.mean()), ("std", counted.std()), ("worst", worst)):
            row[f"{split}_{name}_{what}"] = float(value)
    return row


def _counted(values: np.ndarray) -> np.ndarray:
    """The values that are not nan, or a single nan if there is none."""
    counted = values[~np.isnan(values)]
    return counted if len(counted) else np.array([np.nan])
