"""Principal components of embeddings that may be too many for the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, lobpcg

from utils import progress

PCA_COMPONENTS = 64
# Numbers of the embeddings that are in memory at a time.
_BLOCK = 2**24
# Up to so many rows or columns the Gram matrix is computed, in one pass over the embeddings; iterating takes about 15.
_GRAM = 2048
# When iterations end: at this residual of every eigenvector, in shares of the variance, or after so many.
_RESIDUAL, _ITERATIONS = 1e-5, 20


@dataclass(frozen=True)
class Projection:
    """Onto `components` (k, D), orthonormal rows, around `mean` (D,), in double precision where all D are kept."""

    mean: np.ndarray
    components: np.ndarray

    def transform(self, points: np.ndarray) -> np.ndarray:
        """The coordinates (n, k) of points (n, D)."""
        return (points - self.mean) @ self.components.T

    def inverse_transform(self, reduced: np.ndarray) -> np.ndarray:
        """The points (n, D) that have the coordinates (n, k) and lie among the components."""
        return reduced @ self.components + self.mean


def reduce_dimension(embeddings: np.ndarray, fit_on: np.ndarray) -> tuple[np.ndarray, Projection, float]:
    """Project onto the leading principal components of the rows `fit_on`, or only around their mean.

    The latter is where the dimension is small already. The mean is taken off before anything is rounded to single
    precision: far from the origin, as places in metres are, that would leave no digits to tell rows apart.

    Args:
        embeddings: (N, D), which may be a memory map: it is read in blocks.
        fit_on: the rows that count, in increasing order.

    Returns:
        The coordinates of all rows (N, at most 64) float32; the projection; and the share of the variance of the rows
        `fit_on` that their coordinates have.
    """
    n_components, dimension = min(PCA_COMPONENTS, len(fit_on)), embeddings.shape[1]
    if dimension <= n_components:
        projection, total = Projection(_mean(embeddings, fit_on), np.eye(dimension)), 0.0
    else:
        projection, total = _fit(embeddings, fit_on, n_components)
    parts = [projection.transform(embeddings[rows]) for rows in _slices(len(embeddings), dimension)]
    reduced = np.concatenate(parts).astype(np.float32, copy=False)
    explained = reduced[fit_on].var(axis=0, dtype=np.float64).sum() * len(fit_on)
    return reduced, projection, float(explained / total) if total > 0 else 1.0


def _fit(embeddings: np.ndarray, fit_on: np.ndarray, n_components: int) -> tuple[Projection, float]:
    """The leading principal components of some rows, and the sum of their squared distances to their mean."""
    n, dimension = len(fit_on), embeddings.shape[1]
    dtype = np.result_type(embeddings.dtype, np.float32)
    mean = _mean(embeddings, fit_on).astype(dtype)

    def blocks() -> Iterator[np.ndarray]:
        """The centred rows a block at a time, (smaller side, width)."""
        if dimension <= n:
            yield from ((embeddings[fit_on[rows]] - mean).T for rows in _slices(n, dimension))
        else:
            yield from (embeddings[fit_on, columns] - mean[columns] for columns in _slices(dimension, n))

    total = float(sum(np.square(block, dtype=np.float64).sum() for block in blocks()))
    vectors = _eigenvectors(blocks, min(n, dimension), n_components, total or 1.0)
    if dimension > n:
        vectors = np.concatenate([block.T @ vectors for block in blocks()])
    components = np.linalg.qr(vectors)[0].T
    # An eigenvector has no sign: its largest number is made positive, so that the same rows give the same coordinates.
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(n_components), largest])[:, None]
    return Projection(mean, components.astype(dtype, copy=False)), total


def _mean(embeddings: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The mean (D,) float64 of these rows."""
    blocks = _slices(len(rows), embeddings.shape[1])
    return sum(embeddings[rows[block]].sum(axis=0, dtype=np.float64) for block in blocks) / len(rows)


def _eigenvectors(blocks: Callable[[], Iterable[np.ndarray]], side: int, n_vectors: int, total: float) -> np.ndarray:
    """The leading eigenvectors (side, n_vectors) of the sum of block @ block.T, whose trace is `total`.

    Exact where that matrix is small. A large one is never formed: LOBPCG (Knyazev 2001, SIAM Journal on Scientific
    Computing 23) only needs its products with blocks of vectors; the share of the variance that is kept is then a few
    hundred-thousandths below the largest possible.
    """
    if side <= _GRAM:
        gram = sum(block @ block.T for block in progress.bar(blocks(), desc="PCA", unit="block"))
        return eigh(gram, subset_by_index=(side - n_vectors, side - 1))[1][:, ::-1]
    passes = progress.bar(desc="PCA", unit="pass")

    def product(vectors: np.ndarray) -> np.ndarray:
        """The covariance times vectors, in one pass."""
        passes.update()
        return sum(block @ (block.T @ vectors) for block in blocks()) / total

    matrix = LinearOperator((side, side), matvec=product, matmat=product, dtype=np.float32)
    start = np.random.default_rng(0).standard_normal((side, n_vectors), dtype=np.float32)
    with passes, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the residual was not reached; it is as small as it gets
        return lobpcg(matrix, start, tol=_RESIDUAL, maxiter=_ITERATIONS, largest=True)[1]


def _slices(length: int, width: int) -> list[slice]:
    """Slices over the length whose blocks of this width have at most `_BLOCK` numbers, but at least one line."""
    step = max(1, _BLOCK // width)
    return [slice(start, start + step) for start in range(0, length, step)]
