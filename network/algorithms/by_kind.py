"""The base class of methods that distinguish images by their class, or by their cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from network.algorithms.fedavg import FedAvg
from network.importance import CLASS, CLUSTER, check_kinds, kinds_of
from network.partition.client_images import ClientImages
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from datasets.table import Table
    from datasets.task_data import TaskData


class ByKind(FedAvg):
    """FedAvg that knows the kind of each image, by `--label_source`: its class, as in the papers, or its cluster.

    Clusters are those of the task's own embeddings, so that methods made for classification work for every task.
    """

    kinds: str = setting(CLASS, "what the kind of an image is", choices=(CLASS, CLUSTER))
    assignment_files_path: Path | None = None

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """Images must have the kinds that are asked for."""
        check_kinds(self.kinds, table, task, self.assignment_files_path, shortened)

    def unprotected(self) -> str:
        """Clusters are of all clients' images."""
        if self.kinds == CLUSTER:
            return (
                "clusters, which --label_source asks for, were found in all clients' images; give --label_source class"
            )
        return super().unprotected()

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Look up the kinds of all images."""
        import torch

        self._kind_of = kinds_of(self.kinds, data, self.assignment_files_path)
        self._n_kinds = int(self._kind_of.max()) + 1
        self._kinds_on_device = torch.from_numpy(self._kind_of).to(data.device)

    def kind(self, positions: Tensor) -> Tensor:
        """The kinds (B,) int64 of images, -1 for none."""
        return self._kinds_on_device[positions]
