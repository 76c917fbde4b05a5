"""Images of which a machine knows the classes alone: those of the others, as counts.

FedIR, FedDisco, FedProto and FedRCL tell images apart by class. The server asks every client once how many of each it
has; a client is told how many all the others have together.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch

from datasets.task_data import TaskData
from network.algorithms.by_label import ByKind
from network.algorithms.fedavg import FedAvg
from network.importance import FedIR
from network.partition.client_images import ClientImages


def knows_labels(algorithm: FedAvg, reweighting: FedIR) -> bool:
    """Whether images are distinguished by their class, so that counts are requested."""
    return reweighting.is_active or isinstance(algorithm, ByKind)


def class_counts(data: TaskData, images: np.ndarray) -> np.ndarray:
    """How many of these images have each class, (classes + 1,) int64, the last being those without one."""
    n_classes = len(data.table.class_names)
    labels = data.labels.cpu().numpy()[images]
    return np.bincount(np.where(labels < 0, n_classes, labels), minlength=n_classes + 1)


def with_counted(data: TaskData, counts: Sequence[np.ndarray]) -> tuple[TaskData, ClientImages]:
    """The same data followed by images that have nothing but a class, and the positions of each set of these.

    `counts` are as of `class_counts`, one for each set.
    """
    class_ids = [
        np.where(np.arange(len(counted)) == len(counted) - 1, -1, np.arange(len(counted))).repeat(counted)
        for counted in counts
    ]
    labels = np.concatenate([data.labels.cpu().numpy(), *class_ids])
    bounds = np.cumsum([len(data.labels), *map(len, class_ids)])
    other = copy.copy(data)
    other.labels = torch.from_numpy(labels).to(data.device)
    return other, ClientImages(np.arange(bounds[0], bounds[-1]), bounds - bounds[0])
