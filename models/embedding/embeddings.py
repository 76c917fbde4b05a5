"""Embeddings of a central model, and their clusters: what embedding-based partitions assign."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score, silhouette_score

from datasets.table import Table
from datasets.task_data import TaskData
from models.embedding.features import features_of
from models.embedding.projection import Projection, reduce_dimension
from models.networks.conventions import OWN_SCALING, Scaling
from models.networks.task_model import TaskModel
from utils import progress
from utils.errors import UserError
from utils.filling import fill
from utils.streams import derived_seed, generator
from utils.words import counted

BATCH = 64  # images that are embedded at once
_PUBLISHED_BATCH = 16
# With more rows than this, K-means works through random batches, and principal components come from a sample.
_MANY_ROWS = 100_000
# Runs, and share of the images per run, by which the stability of clusters is judged; images that silhouettes are of.
_RUNS, _SHARE, _SILHOUETTES = 5, 0.8, 5000
# Squared distances, as a share of the largest, up to which points are equal: single precision has seven digits, and a
# network's output for the same image another last one in another batch.
_EQUAL = 1e-10


@torch.no_grad()
def extract_embeddings(
    model: TaskModel,
    data: TaskData,
    path: Path,
    name: str = "model",
    weights_file: Path | None = None,
    scaling: Scaling = OWN_SCALING,
) -> np.ndarray:
    """The features of every image, in eval mode, streamed into a memory-mapped file.

    Where an earlier call for this file, with the same weights and images, was stopped, this one goes on.

    The published code never leaves training mode, so that batch norm mixes an image with the fifteen that happen to
    stand next to it; a model made with `--published_quirks True` is treated likewise.

    Args:
        model: on the data's device.
        data: the task's images.
        path: the `.npy` file to make.
        name: of features, see `models/embedding/features.py`: by default the model's embedding.
        weights_file: of a public network, see there.
        scaling: of a network's images, see there.

    Returns:
        (N, D) float32, memory-mapped; rows of unreadable images are 0. Of embeddings D is E * S * S.
    """
    quirks = model.config.published_quirks
    model = copy.deepcopy(model).train() if quirks else model.eval()  # training mode moves batch norm's statistics
    features = features_of(name, model, data, weights_file, scaling)
    positions = np.flatnonzero(data.readable)
    size = _PUBLISHED_BATCH if quirks else BATCH
    batches = np.split(positions, np.arange(size, len(positions), size))

    def embed(embeddings: np.ndarray, rows: np.ndarray) -> None:
        """Fill these rows."""
        embeddings[rows] = features.of(data.batch(torch.from_numpy(rows))).cpu().numpy()

    inputs = f"{features.inputs} {data.fingerprint}"
    fill(path, (len(data), features.size), np.float32, inputs, batches, embed, "features")
    return np.load(path, mmap_mode="r", allow_pickle=False)


def check_n_clusters(images: Table | TaskData, n_clusters: int, compared: Sequence[int] | None = None) -> None:
    """UserError if there are fewer training images than clusters, or than those `compared` need."""
    n_images = len(images.train)
    if n_clusters > n_images:
        raise UserError(f"--n_clusters {n_clusters} is more than the {n_images} training images")
    if compared and max(compared) > int(_SHARE * n_images):
        raise UserError(f"--compare_n_clusters {max(compared)} is more than {_SHARE:.0%} of {n_images} training images")


def cluster(
    reduced: np.ndarray, data: TaskData, n_clusters: int, threshold: float, seed: int
) -> tuple[np.ndarray, Clusters]:
    """K-means (k-means++, the best of ten starts) on the training images, and every image's nearest centre.

    Returns assignments (N,) int64, -1 for unreadable images and for clusters with a smaller share of the training
    images than `threshold`, and the fitted K-means. A line says where there are fewer different images than clusters,
    see `fit_kmeans`. UserError if there are fewer training images than clusters.
    """
    check_n_clusters(data, n_clusters)
    kmeans = fit_kmeans(reduced[data.train], n_clusters, seed)
    _say_how_many(kmeans, n_clusters)
    assignments = kmeans.predict(reduced).astype(np.int64)
    assignments[~data.readable] = -1
    shares = np.bincount(kmeans.labels_, minlength=n_clusters) / len(data.train)
    assignments[np.isin(assignments, np.flatnonzero(shares < threshold))] = -1
    if (assignments[data.train] < 0).all():
        raise UserError(f"every cluster is below --cluster_threshold {threshold:g}; the largest has {shares.max():.2f}")
    return assignments, kmeans


class Clusters:
    """K-means of points (n, D), and the nearest centres of others; attributes have scikit-learn's names.

    It computes around the points' mean, which is taken off in double precision: scikit-learn does not in batches, nor
    where it predicts, and distances far from the origin have no digits left in single precision.

    Args:
        kmeans: scikit-learn's, to be fitted.
        points: what it is fitted to.
    """

    def __init__(self, kmeans: KMeans | MiniBatchKMeans, points: np.ndarray) -> None:
        self._mean = points.mean(axis=0, dtype=np.float64)
        self._kmeans = kmeans.fit(self._around_mean(points))
        self.labels_, self.inertia_ = kmeans.labels_, kmeans.inertia_
        self.cluster_centers_ = kmeans.cluster_centers_ + self._mean

    def predict(self, points: np.ndarray) -> np.ndarray:
        """The nearest centre of each of these points, (n,)."""
        return self._kmeans.predict(self._around_mean(points))

    def _around_mean(self, points: np.ndarray) -> np.ndarray:
        return (points - self._mean).astype(np.float32)


def fit_kmeans(points: np.ndarray, n_clusters: int, seed: int, run: int | str = 0) -> Clusters:
    """K-means on points (n, D): k-means++ and the best of ten starts, or in batches where there are many points.

    There are at most as many clusters as different points, so that none is empty and copies are in one. Runs of
    different number or name draw different starts.
    """
    n_clusters = _different(points, n_clusters)
    random_state = derived_seed("kmeans", seed, run)
    if len(points) <= _MANY_ROWS:
        return Clusters(KMeans(n_clusters, n_init=10, random_state=random_state), points)
    return Clusters(MiniBatchKMeans(n_clusters, n_init=3, batch_size=10_000, random_state=random_state), points)


def _different(points: np.ndarray, most: int) -> int:
    """How many of the points (n, D) are different, up to rounding, counted up to `most`.

    The next one is always the one furthest from those counted (Gonzalez 1985, Theoretical Computer Science 38).
    """
    around = points - points.mean(axis=0, dtype=np.float64)
    nearest = np.square(around - around[0]).sum(axis=1)
    equal = _EQUAL * nearest.max()
    for number in range(1, most):
        furthest = int(nearest.argmax())
        if nearest[furthest] <= equal:
            return number
        nearest = np.minimum(nearest, np.square(around - around[furthest]).sum(axis=1))
    return most


def _say_how_many(kmeans: Clusters, n_clusters: int) -> None:
    """A line where there are fewer clusters than asked for."""
    if (number := len(kmeans.cluster_centers_)) < n_clusters:
        progress.say(f"{counted(number, 'cluster')} instead of {n_clusters}: no more of the images are different")


def cluster_rows(embeddings: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Project embeddings as `project_rows` does, and cluster them: (N, at most 64) float32, ids (N,) int64.

    A line says where there are fewer different rows than clusters. Raises `UserError` if there are fewer rows than
    clusters, or values that are not finite.
    """
    if n_clusters > len(embeddings):
        raise UserError(f"--n_clusters {n_clusters} is more than the {len(embeddings)} embeddings")
    reduced = project_rows(embeddings, seed)
    kmeans = fit_kmeans(reduced, n_clusters, seed)
    _say_how_many(kmeans, n_clusters)
    return reduced, kmeans.labels_.astype(np.int64)


def project_rows(embeddings: np.ndarray, seed: int) -> np.ndarray:
    """Embeddings (N, D) as `reduce_dimension` projects them, (N, at most 64) float32; they may be memory-mapped.

    Raises `UserError` if there are values that are not finite.
    """
    for rows in np.array_split(np.arange(len(embeddings)), max(1, len(embeddings) // _MANY_ROWS)):
        if not np.isfinite(embeddings[rows[0] : rows[-1] + 1]).all():
            raise UserError(f"embeddings {rows[0]} to {rows[-1]} have values that are not finite; mend the file")
    rng = generator("pca", seed)
    fit_on = np.sort(rng.choice(len(embeddings), min(len(embeddings), _MANY_ROWS), replace=False))
    return reduce_dimension(embeddings, fit_on)[0]


def compare_n_clusters(points: np.ndarray, numbers: Sequence[int], seed: int) -> list[dict[str, float]]:
    """Criteria of the number of clusters: for each number a row of inertia, silhouette, stability and its spread.

    Inertia is the squared distance to the nearest centre over that to the common mean. The silhouette is Rousseeuw's
    (1987), of 5000 points where there are more. Stability follows Ben-Hur, Elisseeff and Guyon (Pacific Symposium on
    Biocomputing 2002): K-means with different seeds on five random samples of 80 % of the points, each of which then
    names the cluster of every point; the mean and standard deviation over pairs of runs of the adjusted Rand index
    (Hubert and Arabie 1985): 1 if all agree, 0 if they agree by chance only.

    Args:
        points: (n, D).
        numbers: numbers of clusters, from 2 to 80 % of the points, see `check_n_clusters`.
        seed: of all randomness.
    """
    n_sampled = int(_SHARE * len(points))
    rng = generator("stability", seed)
    samples = [rng.choice(len(points), n_sampled, replace=False) for _ in range(_RUNS)]
    total = np.square(points - points.mean(axis=0, dtype=np.float64)).sum()
    rows = []
    for number in progress.bar(numbers, desc="numbers of clusters", unit="number"):
        kmeans = fit_kmeans(points, number, seed)
        runs = [fit_kmeans(points[s], number, seed, i).predict(points) for i, s in enumerate(samples, start=1)]
        agreement = [adjusted_rand_score(*pair) for pair in combinations(runs, 2)]
        size, state = min(len(points), _SILHOUETTES), derived_seed("silhouette", seed)
        several = 1 < len(kmeans.cluster_centers_) < size
        silhouette = (
            silhouette_score(points, kmeans.labels_, sample_size=size, random_state=state) if several else np.nan
        )
        rows.append(
            {
                "n_clusters": number,
                "inertia": float(kmeans.inertia_ / total) if total else 0.0,
                "silhouette": float(silhouette),
                "stability": float(np.mean(agreement)),
                "stability_std": float(np.std(agreement)),
            }
        )
    return rows


def centres(kmeans: Clusters, projection: Projection) -> np.ndarray:
    """The cluster centres in the space of the embeddings, (K, E * S * S) float32."""
    return projection.inverse_transform(kmeans.cluster_centers_).astype(np.float32)


def tsne(reduced: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE to the plane, (n, 2)."""
    perplexity = min(30.0, (len(reduced) - 1) / 3)
    start = "pca" if min(reduced.shape) > 1 else "random"  # one number has no two principal components
    return TSNE(perplexity=perplexity, init=start, random_state=derived_seed("tsne", seed)).fit_transform(reduced)
