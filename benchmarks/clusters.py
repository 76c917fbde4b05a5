"""Time to cluster embeddings: projected first, as here, against K-means on the embeddings themselves.

    python -m benchmarks.clusters          (two minutes on one core)

The embeddings are of the tiny encoder's size (8 x 32 x 32) and of the paper's (2 x 224 x 224): points around 16 centres
in 24 dimensions, put into that space at random with noise in all of it. All ways look for 16 clusters and take the
best of ten starts; they must find the same ones.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.tables import middle, print_table
from models.embeddings import fit_kmeans, reduce_dimension
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


def check(ours: np.ndarray, theirs: np.ndarray) -> None:
    """AssertionError if two ways find different clusters, given as ids (n,)."""
    agreement = adjusted_rand_score(ours, theirs)
    assert agreement >= _AGREEMENT, f"the clusters differ: adjusted Rand index {agreement:.3f}"


def measure(n: int, dimension: int, repeats: int) -> dict[str, object]:
    """A row of the table."""
    points = embeddings(n, dimension)
    marks = []
    for seed in range(repeats):
        times = [time.perf_counter()]
        reduced, _, _ = reduce_dimension(points, np.arange(n))
        times.append(time.perf_counter())
        ours = fit_kmeans(reduced, N_CLUSTERS, seed)
        times.append(time.perf_counter())
        raw = KMeans(N_CLUSTERS, n_init=_STARTS, random_state=seed).fit(points)
        times.append(time.perf_counter())
        check(ours.labels_, raw.labels_)
        marks.append(times)
    projection, clustering, on_embeddings = np.diff(marks).T
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
    rows = [measure(n, dimension, args.repeats) for n, dimension in SIZES]
    print_table(f"{N_CLUSTERS} clusters, median (min to max) of {args.repeats}", rows)


if __name__ == "__main__":
    run_script(main)
