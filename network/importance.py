"""FedIR: importance reweighting of images by their class, or cluster.

Hsu, Qi and Brown 2020 (arXiv 2003.08082), section 5.2: images of class y at client k have the weight
w_k(y) = p(y) / q_k(y), with the target's shares p and the shares q_k among all of the client's images. The loss of a
batch is sum_i w_i l_i / sum_i w_i (equation 4). What that does, where S_k are the classes that client k has:

- FedAvg, which weights clients by their images, follows the population's gradient in its first step in any case.
  Reweighting changes the clients' objectives: they become alike, so that clients drift apart less in later steps.
- It can only bring a client to p restricted to S_k. Where clients lack classes, the round as a whole follows
  pi(y) = sum_k n_k/n p(y)/p(S_k), over the clients with y in S_k, rather than p: `shift` is their L1 distance.
- A client that has nothing of the target has no loss, and sends its model back as it got it. The round follows the
  other clients, whose n_k are then shares of their own sum, by a shorter step.
- Equation 4 approaches p only for large batches. With q_k = (0.9, 0.1) and p = (0.5, 0.5), the rare class has 0.17,
  0.27, 0.36, 0.43 and 0.48 of the weight in batches of 2, 4, 8, 16 and 64 images.

Clusters of the task's own embeddings extend it to tasks without classes: if the images of a cluster are alike for all
clients, p(x, y | c) = q_k(x, y | c), the above holds with clusters for classes. That is so where clusters are assigned;
under other partitions it is an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.partition.assignments import read_assignments
from network.partition.client_images import ClientImages
from utils.args import number
from utils.errors import UserError
from utils.renamed import present_value
from utils.settings import Configured, setting

if TYPE_CHECKING:
    from torch import Tensor

    from datasets.table import Table
    from datasets.task_data import TaskData

CLASS, CLUSTER, NONE = "class", "cluster", "none"
POPULATION, GLOBAL_TEST, UNIFORM = "population", "global_test", "uniform"
_LEAST = 1e-30  # mean weight that weights are divided by


class FedIR(Configured):
    """Importance reweighting as a federation uses it, whatever its method: nothing by default.

    | symbol | argument |
    |---|---|
    | y, the class or the cluster of an image | `--importance_reweighting` |
    | p | `--importance_target` |
    | the largest w | `--importance_bound` |
    """

    heading: ClassVar[str] = "method"

    importance_reweighting: str = setting(
        NONE,
        "FedIR: weight images by the share of their class, or cluster, in the target over that in the client",
        choices=(NONE, CLASS, CLUSTER),
    )
    importance_target: str = setting(
        POPULATION, "FedIR's target: the shares that it aims at", choices=(POPULATION, GLOBAL_TEST, UNIFORM)
    )
    importance_bound: float | None = setting(
        None, "largest weight of an image; default: no bound", number(float, above=1)
    )
    assignment_files_path: Path | None = None

    def __post_init__(self) -> None:
        """Take a target by its former name, too."""
        self.importance_target = present_value("importance_target", self.importance_target)

    @property
    def is_active(self) -> bool:
        """Whether anything is reweighted."""
        return self.importance_reweighting != NONE

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """UserError where images have no class or cluster; `shortened` says that only a few of them are used."""
        check_labels(self.importance_reweighting, table, task, self.assignment_files_path, shortened)

    def unprotected(self) -> str:
        """Why a bound on uploads and noise on their sum would not protect clients, in words; empty where they do."""
        if self.importance_reweighting == CLUSTER:
            return "clusters, which --importance_reweighting counts, were made from all clients' images"
        if self.is_active and self.importance_target == POPULATION:
            return "--importance_target population counts the classes of all clients' images; give another"
        if self.is_active and self.importance_target == UNIFORM and self.importance_bound:
            return "by --importance_bound, the weights of uniform tell which classes anybody has; omit the bound"
        return ""

    def without_effect(self) -> str:
        """A line that names the arguments which change no training because nothing is reweighted; or nothing."""
        defaults = ("importance_target", POPULATION), ("importance_bound", None)
        idle = [f"--{name} {getattr(self, name)}" for name, default in defaults if getattr(self, name) != default]
        if not idle or self.is_active:
            return ""
        return f"{' and '.join(idle)}: has no effect without --importance_reweighting"

    def measures(self, data: TaskData, clients: Sequence[np.ndarray], groups: np.ndarray) -> dict[str, float]:
        """`Reweighting.measures` of these clients, by classes or clusters or, where it is not active, by `groups`."""
        return self._reweighting(data, clients, self._labels(data) if self.is_active else groups).measures()

    def prepare(self, data: TaskData, clients: ClientImages) -> None:
        """Compute the weights of all clients' images; called once, in every process, before clients train."""
        self._weights: Tensor | None = None
        if self.is_active:
            import torch

            labels = self._labels(data)
            weights = self._reweighting(data, clients, labels).of_images(labels, clients)
            self._weights = torch.from_numpy(weights).to(data.device, torch.float32)

    def weights(self, positions: Tensor) -> Tensor | None:
        """The weights (B,) of the images at these positions (B,) in their mean loss; None if all count the same.

        They are 1 on average; those of images whose class or cluster the target lacks are 0, even if all are such.
        """
        if self._weights is None:
            return None
        weights = self._weights[positions]
        return weights / weights.mean().clamp(min=_LEAST)

    def _labels(self, data: TaskData) -> np.ndarray:
        return labels_of(self.importance_reweighting, data, self.assignment_files_path)

    def _reweighting(self, data: TaskData, clients: Sequence[np.ndarray], labels: np.ndarray) -> Reweighting:
        return reweighting(labels, clients, data.test, self.importance_target, self.importance_bound)


@dataclass(frozen=True)
class Reweighting:
    """The target's shares `p` (C,) of C classes or clusters, and the weights of clients' images.

    They are stored by cell, that is a client and a class that it has images of: `client`, `label`, the `count` of these
    images (all (M,) int64), and the `weight` (M,) of each of them. `sizes` (K,) are the clients' numbers of images. M
    is at most the number of images, so that a hundred thousand clients need no table of clients times classes.
    """

    p: np.ndarray
    client: np.ndarray
    label: np.ndarray
    count: np.ndarray
    weight: np.ndarray
    sizes: np.ndarray

    def of_images(self, labels: np.ndarray, clients: Sequence[np.ndarray]) -> np.ndarray:
        """The weight of every image, (N,) float64, 0 for those of no client; `labels` (N,) are their classes."""
        weights = np.zeros(len(labels))
        images, owners = _assigned(clients)
        # Cells are sorted by client and class.
        cells = np.searchsorted(self.client * len(self.p) + self.label, owners * len(self.p) + labels[images])
        weights[images] = self.weight[cells]
        return weights

    def measures(self) -> dict[str, float]:
        """Measures of what reweighting can achieve.

        `coverage` is p(S_k), the target's share of the classes that a client has; `kish` is Kish's effective sample
        size (sum w)^2 / sum w^2 of a client's images, as a share of their number. Of both, there are the mean over
        clients and, as `coverage_least` and `kish_least`, the smallest value. `largest_weight` is the largest w, and
        `shift` the L1 distance between pi and p, in [0, 2]. `untargeted_clients` counts those that have nothing of
        the target, and 2 is the shift where that is all of them.
        """
        n_clients = len(self.sizes)
        coverage = np.bincount(self.client, self.p[self.label], n_clients)
        mass = np.bincount(self.client, self.count * self.weight, n_clients)
        square = np.bincount(self.client, self.count * self.weight**2, n_clients)
        kish = np.divide(mass**2, self.sizes * square, out=np.zeros(n_clients), where=square > 0)
        share_of_mass = self.count * self.weight / np.maximum(mass, np.finfo(float).tiny)[self.client]
        followed = self.sizes[mass > 0].sum()
        pi = np.bincount(self.label, share_of_mass * self.sizes[self.client] / max(followed, 1), len(self.p))
        return {
            "coverage": float(coverage.mean()),
            "coverage_least": float(coverage.min()),
            "kish": float(kish.mean()),
            "kish_least": float(kish.min()),
            "largest_weight": float(self.weight.max()),
            "shift": float(np.abs(pi - self.p).sum()) if followed else 2.0,
            "untargeted_clients": int((mass == 0).sum()),
        }


def reweighting(
    labels: np.ndarray, clients: Sequence[np.ndarray], held_out: np.ndarray, target: str, bound: float | None = None
) -> Reweighting:
    """The weights of the clients' images.

    Args:
        labels: (N,) the class or cluster of every image, -1 for none.
        clients: each client's images, as positions; no image is in two.
        held_out: the positions of the images that nobody trains on.
        target: where the shares p come from: "population", all clients' images together; "global_test", the held-out
            images; or "uniform", equal shares of all classes that occur.
        bound: the largest weight, > 1; None for no bound. q_k is then replaced by a mixture of q_k and p,
            w = p / (p / bound + (1 - 1 / bound) q_k): Hesterberg's defensive mixture (Technometrics 37, 1995).

    Raises:
        UserError: if a client's image has no class or cluster, or if, for "global_test", no held-out image has one.
    """
    target = present_value("importance_target", target)
    images, owners = _assigned(clients)
    if (labels[images] < 0).any():
        raise UserError(
            f"{(labels[images] < 0).sum()} of the clients' images have no class or cluster to be reweighted by; "
            "give another --importance_reweighting"
        )
    n_labels = int(labels.max()) + 1
    known = labels[held_out][labels[held_out] >= 0]
    shares = np.bincount(known if target == GLOBAL_TEST else labels[images], minlength=n_labels).astype(float)
    if target == UNIFORM:
        shares = ((shares + np.bincount(known, minlength=n_labels)) > 0).astype(float)
    if not shares.any():
        raise UserError("no test image has a class or cluster; give another --importance_target than global_test")
    p = shares / shares.sum()
    cells, count = np.unique(owners * n_labels + labels[images], return_counts=True)
    client, label = np.divmod(cells, n_labels)
    sizes = np.bincount(owners, minlength=len(clients))
    ratio = p[label] / (count / sizes[client])
    weight = ratio if bound is None else ratio / (ratio / bound + (1 - 1 / bound))
    return Reweighting(p, client, label, count, weight, sizes)


def check_labels(by: str, table: Table, task: str, assignment_folder: Path | None, shortened: bool) -> None:
    """UserError where images have no class, or the task no clusters of this table, to tell them apart by."""
    if by == CLUSTER:
        read_assignments(task, table, assignment_folder or Path(), for_test=shortened)
    elif by == CLASS and not table.class_names:
        raise UserError(f"{table.data_path} has no classes to tell images apart by; take cluster in place of class")


def labels_of(by: str, data: TaskData, assignment_folder: Path | None) -> np.ndarray:
    """The class or cluster of every image, (N,) int64, -1 for none.

    Clusters are the task's own, which `extract_embeddings.py` wrote to `assignment_folder`, whatever the partition
    assigns. UserError where there are none.
    """
    if by == CLUSTER:
        folder = assignment_folder or Path()
        return read_assignments(data.task.name, data.table, folder, for_test=data.shortened)
    return data.labels.cpu().numpy()


def _assigned(clients: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All clients' images, and the client of each."""
    assigned = ClientImages.of(clients)
    return assigned.images, assigned.owners
