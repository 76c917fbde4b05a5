"""Embeddings of a central model, and their clusters: what embedding-based partitions deal out."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.manifold import TSNE
from tqdm import tqdm

from datasets.task_data import TaskData
from models.task_model import TaskModel
from utils.errors import UserError

PCA_COMPONENTS = 64
_BATCH = 64
_PUBLISHED_BATCH = 16


@torch.no_grad()
def extract_embeddings(model: TaskModel, data: TaskData, path: Path) -> np.ndarray:
    """The embedding of every image, in eval mode, streamed into a memory-mapped file.

    The published code never leaves training mode, so that batch norm mixes an image with the fifteen that happen to
    stand next to it; a model made with `--published_quirks True` is treated likewise.

    Args:
        model: on the data's device.
        data: the task's images.
        path: the `.npy` file to make.

    Returns:
        (N, E * S * S) float32, memory-mapped; rows of unreadable images are 0.
    """
    quirks = model.config.published_quirks
    model = copy.deepcopy(model).train() if quirks else model.eval()  # training mode moves batch norm's statistics
    positions = np.flatnonzero(data.readable)
    embeddings: np.ndarray | None = None
    batches = torch.from_numpy(positions).split(_PUBLISHED_BATCH if quirks else _BATCH)
    for at in tqdm(batches, desc="embeddings", unit="batch"):
        embedding, _ = model(data.batch(at).images)
        flat = embedding.flatten(1).float().cpu().numpy()
        if embeddings is None:
            shape = (len(data), flat.shape[1])
            embeddings = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        embeddings[at.numpy()] = flat
    return embeddings


def reduce_dimension(embeddings: np.ndarray, fit_on: np.ndarray) -> tuple[np.ndarray, IncrementalPCA | None, float]:
    """Project onto the leading principal components of the rows `fit_on`, if that makes the dimension smaller.

    Works through a memory map in batches. Returns the projection (N, at most 64) float32, the PCA (None if the
    dimension was small already), and the fraction of the variance that is kept.
    """
    n_components = min(PCA_COMPONENTS, len(fit_on))
    if embeddings.shape[1] <= n_components:
        return np.asarray(embeddings), None, 1.0
    pca = IncrementalPCA(n_components)
    n_batches = max(1, len(fit_on) // max(256, n_components))
    for rows in tqdm(np.array_split(fit_on, n_batches), desc="PCA", unit="batch"):
        pca.partial_fit(embeddings[rows])
    batches = np.array_split(np.arange(len(embeddings)), max(1, len(embeddings) // 256))
    reduced = np.concatenate([pca.transform(embeddings[rows]) for rows in batches]).astype(np.float32)
    return reduced, pca, float(pca.explained_variance_ratio_.sum())


def check_n_clusters(n_clusters: int, data: TaskData) -> None:
    """UserError if there are fewer training images than clusters."""
    if n_clusters > len(data.train):
        raise UserError(f"--n_clusters {n_clusters} is more than the {len(data.train)} training images")


def cluster(
    reduced: np.ndarray, data: TaskData, n_clusters: int, threshold: float, seed: int
) -> tuple[np.ndarray, KMeans]:
    """K-means (k-means++, the best of ten starts) on the training images, and every image's nearest centre.

    Returns assignments (N,) int64, -1 for unreadable images and for clusters with a smaller share of the training
    images than `threshold`, and the fitted K-means. UserError if there are fewer training images than clusters.
    """
    check_n_clusters(n_clusters, data)
    kmeans = KMeans(n_clusters, n_init=10, random_state=seed).fit(reduced[data.train])
    assignments = kmeans.predict(reduced).astype(np.int64)
    assignments[~data.readable] = -1
    shares = np.bincount(kmeans.labels_, minlength=n_clusters) / len(data.train)
    assignments[np.isin(assignments, np.flatnonzero(shares < threshold))] = -1
    if (assignments[data.train] < 0).all():
        raise UserError(f"every cluster is below --cluster_threshold {threshold:g}; the largest has {shares.max():.2f}")
    return assignments, kmeans


def centres(kmeans: KMeans, pca: IncrementalPCA | None) -> np.ndarray:
    """The cluster centres in the space of the embeddings, (K, E * S * S) float32."""
    found = kmeans.cluster_centers_
    return (found if pca is None else pca.inverse_transform(found)).astype(np.float32)


def tsne(reduced: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE to the plane, (n, 2)."""
    perplexity = min(30.0, (len(reduced) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
