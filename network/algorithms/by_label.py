"""The base class of methods that distinguish images by their class, or by their cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from network.algorithms.fedavg import FedAvg
from network.importance import CLASS, CLUSTER, check_labels, labels_of
from network.partition.client_images import ClientImages
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from datasets.table import Table
    from datasets.task_data import TaskData


class ByKind(FedAvg):  # runs have its version under this name
    """FedAvg that knows the label of each image, by `--label_source`: its class, as in the papers, or its cluster.

    Clusters are those of the task's own embeddings, so that methods made for classification work for every task.
    """

    label_source: str = setting(CLASS, "where the label of an image is from", choices=(CLASS, CLUSTER))
    assignment_files_path: Path | None = None

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """Images must have the labels that are requested."""
        check_labels(self.label_source, table, task, self.assignment_files_path, shortened)

    def unprotected(self) -> str:
        """Clusters are of all clients' images."""
        if self.label_source == CLUSTER:
            return "clusters, which --label_source takes, are of all clients' images; give --label_source class"
        return super().unprotected()

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Look up the labels of all images."""
        import torch

        self._label_of = labels_of(self.label_source, data, self.assignment_files_path)
        self._n_labels = int(self._label_of.max()) + 1
        self._labels_on_device = torch.from_numpy(self._label_of).to(data.device)

    def labels_at(self, positions: Tensor) -> Tensor:
        """The labels (B,) int64 of images, -1 for none."""
        return self._labels_on_device[positions]
