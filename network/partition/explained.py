"""How much of a task's target the groups explain, and so how far a partition can make clients differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_matrix

from datasets.task_data import TaskData, evenly
from models.embedding.features import shrunk_target
from network.partition.heterogeneity import beyond_chance, variance_share

CLUSTERS, CLASSES, CEILING = "clusters", "classes", "ceiling"
_CHUNK, _MOST = 256, 10_000


def share_explained(values: np.ndarray, groups: np.ndarray) -> float:
    """Share of the variance of `values` that the groups explain, `beyond_chance`: at most 1, 0 for random groups.

    Args:
        values: (N, D), a row per image.
        groups: (N,) each image's group, -1 for none; these images do not count.
    """
    names, group = np.unique(groups, return_inverse=True)
    of_group = np.where(groups >= 0, group - (names < 0).sum(), -1)
    n_groups = int((names >= 0).sum())
    return beyond_chance(variance_share(values, of_group, n_groups), n_groups, int((groups >= 0).sum()))


def target_share(data: TaskData, client_of: np.ndarray, n_clients: int) -> float:
    """Share of the variance of the targets, in a grid of 8 by 8 cells, that lies between clients, `beyond_chance`.

    It says how far a partition separates what the task is about: a number of at most 1 that needs no model and can be
    compared between tasks.

    Args:
        data: the task's images.
        client_of: (N,) each image's client, -1 for none.
        n_clients: number of clients.
    """
    return share_between(lambda at: shrunk_targets(data, at), client_of, n_clients)


def share_between(rows: Callable[[np.ndarray], np.ndarray], client_of: np.ndarray, n_clients: int) -> float:
    """Share of the variance of all images' rows that lies between clients, `beyond_chance`: 0 by chance, at most 1.

    Takes one pass over the images, and memory for one sum per client. 0 where all rows are equal.

    Args:
        rows: returns the rows (n, D) of positions (n,).
        client_of: (N,) each image's client, -1 for none.
        n_clients: number of clients.
    """
    assigned = np.flatnonzero(client_of >= 0)
    sizes = np.bincount(client_of[assigned], minlength=n_clients)
    sums, squares = np.zeros((n_clients, 0)), 0.0
    for at in np.split(assigned, range(_CHUNK, len(assigned), _CHUNK)):
        values = rows(at).astype(np.float64)
        if not sums.size:
            sums = np.zeros((n_clients, values.shape[1]))
        owners, owner = np.unique(client_of[at], return_inverse=True)
        sums[owners] += csr_matrix((np.ones(len(at)), (owner, range(len(at)))), (len(owners), len(at))) @ values
        squares += np.square(values).sum()
    of_all = np.square(np.sum(sums, axis=0)).sum() / len(assigned)
    total = squares - of_all
    of_client = np.concatenate([np.square(part).sum(axis=1) for part in np.array_split(sums, -(-n_clients // _MOST))])
    between = (of_client / np.maximum(sizes, 1)).sum() - of_all
    return beyond_chance(between / total, n_clients, len(assigned)) if total > 1e-12 * squares else 0.0


def shrunk_targets(data: TaskData, positions: np.ndarray) -> np.ndarray:
    """The `shrunk_target` of the images at `positions`, (n, C * 64) float32, or (n, C) for one class per image."""
    parts = torch.from_numpy(positions).split(_CHUNK)
    return np.concatenate([shrunk_target(data, data.batch(at)).cpu().numpy() for at in parts])


def target_explained(data: TaskData, clusters: np.ndarray, n_clusters: int, seed: int) -> dict[str, float]:
    """Shares of the variance of the training images' targets, in a grid of 8 by 8 cells, that groups explain.

    The groups are the `clusters` (N,), the table's classes where it has any, and K-means clusters of these targets
    themselves, as many (or as there are different targets): the ceiling. It is computed on training images, so a model
    that has memorised their targets reaches it as well. If there are more than 10,000 images, that many evenly spaced
    ones are used.
    """
    from models.embedding.embeddings import fit_kmeans  # scikit-learn is slow to import, and federations do not need it

    images = evenly(data.train, _MOST)
    targets = shrunk_targets(data, images)
    shares = {CLUSTERS: share_explained(targets, clusters[images])}
    labels = data.table.labels[images]
    if (labels >= 0).any():
        shares[CLASSES] = share_explained(targets, labels)
    return shares | {CEILING: share_explained(targets, fit_kmeans(targets, n_clusters, seed).labels_)}
