"""Time to cluster embeddings: projected first, as here, against K-means on the embeddings themselves.

    python -m benchmarks.clusters          (three minutes on one core)

The first table is of the projection alone, against scikit-learn's incremental PCA on batches of 256 (what works in as
little memory), with the share of the variance that either keeps and the most that 64 components can keep. The
variances of the components fall off slowly, as 1/i, as those of embeddings do.

In the second table the embeddings are of the tiny encoder's size (8 x 32 x 32) and of the paper's (2 x 224 x 224):
points around 16 centres in 24 dimensions, put into that space at random with noise in all of it. All ways look for 16
clusters and take the best of ten starts; they must find the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import IncrementalPCA
from sklearn.metrics import adjusted_rand_score

from benchmarks.tables import middle, print_table
from models.embedding.embeddings import fit_kmeans
from models.embedding.projection import PCA_COMPONENTS, reduce_dimension
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

SIZES = ((800, 8192), (4000, 8192), (400, 100_352))
N_CLUSTERS, _LATENT, _STARTS = 16, 24, 10
_AGREEMENT = 0.99  # adjusted Rand index


def embeddings(n: int, dimension: int) -> np.ndarray:
    """(n, dimension) float32."""
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((N_CLUSTERS, _LATENT), dtype=np.float32)
    points = centres[rng.integers(N_CLUSTERS, size=n)] + rng.standard_normal((n, _LATENT), dtype=np.float32)
    noise = rng.standard_normal((n, dimension), dtype=np.float32)
    return points @ rng.standard_normal((_LATENT, dimension), dtype=np.float32) + noise


def slowly_decaying(n: int, dimension: int) -> np.ndarray:
    """(n, dimension) float32, away from the origin."""
    rng = np.random.default_rng(0)
    rank = min(n, dimension)
    points = rng.standard_normal((n, rank), dtype=np.float32) * np.arange(1, rank + 1, dtype=np.float32) ** -0.5
    return points @ rng.standard_normal((rank, dimension), dtype=np.float32) + 3


def explained_share(points: np.ndarray, coordinates: np.ndarray) -> float:
    """The share of the variance of points (n, D) that their coordinates (n, k) on orthonormal axes have."""
    variances = [sum(column.var(dtype=np.float64) for column in array.T) for array in (coordinates, points)]
    return variances[0] / variances[1]


def most_explained(points: np.ndarray) -> float:
    """The largest share of the variance that any axes can keep, from all eigenvalues."""
    centred = points - points.mean(axis=0)
    gram = centred @ centred.T if len(points) < points.shape[1] else centred.T @ centred
    values = np.linalg.eigvalsh(gram.astype(np.float64))
    return values[-PCA_COMPONENTS:].sum() / values.sum()


def timed(way: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a call returns, and the seconds that it takes."""
    start = time.perf_counter()
    return way(*arguments), time.perf_counter() - start


def measure_projection(n: int, dimension: int, repeats: int) -> dict[str, object]:
    """A row of the table of projections."""
    points = slowly_decaying(n, dimension)
    times = []
    for _ in range(repeats):
        (ours, _, explained), of_ours = timed(reduce_dimension, points, np.arange(n))
        incremental = IncrementalPCA(min(PCA_COMPONENTS, n), batch_size=256)
        theirs, of_theirs = timed(incremental.fit_transform, points)
        times.append((of_ours, of_theirs))
    assert abs(explained - explained_share(points, ours)) < 1e-5, "the share that is kept is another"
    own, other = np.transpose(times)
    return {
        "embeddings": f"{n:,} x {dimension:,}",
        "projection, s": middle(own, 2),
        "incremental, s": middle(other, 2),
        "over ours": middle(other / own, 1),
        "most to keep, %": f"{most_explained(points):.3%}".rstrip("%"),
        "kept, %": f"{explained:.3%}".rstrip("%"),
        "by incremental, %": f"{explained_share(points, theirs):.3%}".rstrip("%"),
        "its estimate, %": f"{incremental.explained_variance_ratio_.sum():.3%}".rstrip("%"),
    }


def check(ours: np.ndarray, theirs: np.ndarray) -> None:
    """AssertionError if two ways find different clusters, given as ids (n,)."""
    agreement = adjusted_rand_score(ours, theirs)
    assert agreement >= _AGREEMENT, f"the clusters differ: adjusted Rand index {agreement:.3f}"


def measure(n: int, dimension: int, repeats: int) -> dict[str, object]:
    """A row of the table."""
    points = embeddings(n, dimension)
    times = []
    for seed in range(repeats):
        (reduced, _, _), first = timed(reduce_dimension, points, np.arange(n))
        ours, second = timed(fit_kmeans, reduced, N_CLUSTERS, seed)
        raw, instead = timed(KMeans(N_CLUSTERS, n_init=_STARTS, random_state=seed).fit, points)
        check(ours.labels_, raw.labels_)
        times.append((first, second, instead))
    projection, clustering, on_embeddings = np.transpose(times)
    return {
        "embeddings": f"{n:,} x {dimension:,}",
        "projection, s": middle(projection, 2),
        "K-means of it, s": middle(clustering, 2),
        "K-means of the embeddings, s": middle(on_embeddings, 2),
        "over both": middle(on_embeddings / (projection + clustering), 2),
        "over its K-means": middle(on_embeddings / clustering, 0),
    }


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=POSITIVE_INT, default=3, help="measurements of each")
    args = parser.parse_args()
    rows = [measure_projection(n, dimension, args.repeats) for n, dimension in SIZES]
    print_table(f"{PCA_COMPONENTS} principal components, median (min to max) of {args.repeats}", rows)
    rows = [measure(n, dimension, args.repeats) for n, dimension in SIZES]
    print_table(f"{N_CLUSTERS} clusters, median (min to max) of {args.repeats}", rows)


if __name__ == "__main__":
    run_script(main)
