"""FedIR: an image's loss counts by how much more often the target has its class, or cluster, than its client.

Hsu, Qi and Brown 2020 (arXiv 2003.08082), section 5.2: w_k(y) = p(y) / q_k(y) with the target's shares p and those of
all of client k's images q_k, and the loss of a batch sum_i w_i l_i / sum_i w_i (equation 4). What that does, with S_k
the classes that client k has:

- FedAvg, whose clients count by their images, follows the population's gradient in its first step as it is. What
  reweighting changes is the clients' objectives: they become alike, so that clients drift apart less later on.
- A client can only be led to p restricted to S_k. Where clients lack classes, the round as a whole follows
  pi(y) = sum_k n_k/n p(y)/p(S_k) over the clients with y in S_k, which is no longer p: `shift` is their L1 distance.
- Equation 4 goes to p only as batches grow. Of q_k = (0.9, 0.1) and p = (0.5, 0.5) the rare class has 0.17, 0.27,
  0.36, 0.43 and 0.48 of the weight in batches of 2, 4, 8, 16 and 64 images.

By cluster, of the task's own embeddings, it reaches tasks without classes: if the images of a cluster are alike for all
clients, p(x, y | c) = q_k(x, y | c), the above holds with clusters for classes. That is so where clusters are dealt;
under other splits it is an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from network.partition.groups import read_assignments
from utils.errors import UserError

if TYPE_CHECKING:
    from datasets.task_data import TaskData

CLASS, CLUSTER, NONE = "class", "cluster", "none"
POPULATION, HELD_OUT, UNIFORM = "population", "held_out", "uniform"


@dataclass(frozen=True)
class Reweighting:
    """The target's shares `p` (C,) of C classes or clusters, and the cells that clients have of them.

    A cell is a class that a client has images of: `client`, `kind`, `count` (all (M,) int64) and `weight` (M,), which
    each of these images counts. `sizes` (K,) are the clients' images. M is at most the number of images, so that a
    hundred thousand clients need no table of clients times classes.
    """

    p: np.ndarray
    client: np.ndarray
    kind: np.ndarray
    count: np.ndarray
    weight: np.ndarray
    sizes: np.ndarray

    def of_images(self, kinds: np.ndarray, clients: Sequence[np.ndarray]) -> np.ndarray:
        """The weight of every image, (N,) float64, 0 for those of no client; `kinds` (N,) are their classes."""
        weights = np.zeros(len(kinds))
        images, owners = _dealt(clients)
        # Cells are sorted by client and class.
        cells = np.searchsorted(self.client * len(self.p) + self.kind, owners * len(self.p) + kinds[images])
        weights[images] = self.weight[cells]
        return weights

    def measures(self) -> dict[str, float]:
        """What reweighting can do here.

        `coverage` and `coverage_least` are p(S_k), the target's share of the classes that a client has, the mean over
        clients and the least; `kish` and `kish_least` Kish's effective sample size (sum w)^2 / sum w^2 over the
        client's images, as a share of their number; `largest_weight` the largest w; `shift` the L1 distance of pi from
        p, in [0, 2].
        """
        n_clients = len(self.sizes)
        coverage = np.bincount(self.client, self.p[self.kind], n_clients)
        mass = np.bincount(self.client, self.count * self.weight, n_clients)
        square = np.bincount(self.client, self.count * self.weight**2, n_clients)
        kish = np.divide(mass**2, self.sizes * square, out=np.zeros(n_clients), where=square > 0)
        portion = self.count * self.weight / np.maximum(mass, np.finfo(float).tiny)[self.client]
        pi = np.bincount(self.kind, portion * self.sizes[self.client] / self.sizes.sum(), len(self.p))
        return {
            "coverage": float(coverage.mean()),
            "coverage_least": float(coverage.min()),
            "kish": float(kish.mean()),
            "kish_least": float(kish.min()),
            "largest_weight": float(self.weight.max()),
            "shift": float(np.abs(pi - self.p).sum()),
        }


def reweighting(
    kinds: np.ndarray, clients: Sequence[np.ndarray], held_out: np.ndarray, target: str, bound: float | None = None
) -> Reweighting:
    """The weights of the clients' images.

    Args:
        kinds: (N,) the class or cluster of every image, -1 for none.
        clients: each client's images, as positions; no image is in two.
        held_out: the positions of the images that nobody trains on.
        target: whose shares p are: "population", all clients' images together; "held_out"; or "uniform", each class
            that occurs alike.
        bound: the largest weight, > 1; None for no bound. The client's images then stand for a mixture of q_k and p,
            w = p / (p / bound + (1 - 1 / bound) q_k): Hesterberg's defensive mixture (Technometrics 37, 1995).

    Raises:
        UserError: if a client's image has no class or cluster, or for "held_out" no held-out image has one.
    """
    images, owners = _dealt(clients)
    if (kinds[images] < 0).any():
        raise UserError(
            f"{(kinds[images] < 0).sum()} of the clients' images have no class or cluster to be reweighted by; "
            "see --importance_reweighting"
        )
    n_kinds = int(kinds.max()) + 1
    known = kinds[held_out][kinds[held_out] >= 0]
    shares = np.bincount(known if target == HELD_OUT else kinds[images], minlength=n_kinds).astype(float)
    if target == UNIFORM:
        shares = ((shares + np.bincount(known, minlength=n_kinds)) > 0).astype(float)
    if not shares.any():
        raise UserError("no held-out image has a class or cluster; give another --importance_target than held_out")
    p = shares / shares.sum()
    cells, count = np.unique(owners * n_kinds + kinds[images], return_counts=True)
    client, kind = np.divmod(cells, n_kinds)
    sizes = np.bincount(owners, minlength=len(clients))
    ratio = p[kind] / (count / sizes[client])
    weight = ratio if bound is None else ratio / (ratio / bound + (1 - 1 / bound))
    return Reweighting(p, client, kind, count, weight, sizes)


def kinds_of(by: str, data: TaskData, assignment_folder: Path | None) -> np.ndarray:
    """The class or cluster of every image, (N,) int64, -1 for none.

    Clusters are the task's own, which `extract_embeddings.py` left in `assignment_folder`, whatever the partition
    dealt. UserError where there are none.
    """
    if by == CLUSTER:
        folder = assignment_folder or Path()
        return read_assignments(data.task.name, data.table, folder, for_test=data.shortened)
    return data.labels.cpu().numpy()


def _dealt(clients: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All clients' images, and the client of each."""
    return np.concatenate(clients), np.repeat(np.arange(len(clients)), [len(images) for images in clients])
