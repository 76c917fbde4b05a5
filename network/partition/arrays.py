"""What is dealt of any data set: embeddings or labels in `.npy` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.errors import UserError


def _read(path: Path, what: str) -> np.ndarray:
    """A `.npy` file, memory-mapped; UserError where there is none."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: no readable .npy file ({error}); see --{what}") from error


def read_labels(path: Path) -> np.ndarray:
    """The labels numbered from 0 in their order, (N,) int64; negative ones are -1."""
    labels = _read(path, "labels")
    if labels.ndim != 1 or labels.dtype.kind not in "iubU" or not len(labels):
        raise UserError(f"{path}: {labels.dtype} of shape {labels.shape}; needs one whole number or text an image")
    left_out = labels < 0 if labels.dtype.kind == "i" else np.zeros(len(labels), bool)
    ids = np.full(len(labels), -1, np.int64)
    ids[~left_out] = np.unique(labels[~left_out], return_inverse=True)[1]
    return ids


def read_embeddings(path: Path) -> np.ndarray:
    """The embeddings (N, D), memory-mapped."""
    embeddings = _read(path, "embeddings")
    if embeddings.ndim < 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
        raise UserError(f"{path}: {embeddings.dtype} of shape {embeddings.shape}; needs a row of numbers an image")
    return embeddings.reshape(len(embeddings), -1)
