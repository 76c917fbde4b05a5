"""How uneven a partition is, in numbers."""

from __future__ import annotations

import numpy as np


def group_counts(clients: list[np.ndarray], groups: np.ndarray) -> np.ndarray:
    """Images of each group that each client has, (clients, groups) int64, for group ids 0..max."""
    width = int(groups.max(initial=0)) + 1
    return np.stack([np.bincount(groups[images][groups[images] >= 0], minlength=width) for images in clients])


def earth_movers_distance(counts: np.ndarray) -> float:
    """Mean L1 distance of a client's group shares to the population's, weighted by client size; in [0, 2].

    Hsu et al. 2019 (arXiv 1909.06335), section 3; 0 for identical clients.
    """
    sizes = counts.sum(axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    population = counts.sum(axis=0) / counts.sum()
    return float((sizes / sizes.sum()) @ np.abs(shares - population).sum(axis=1))


def effective_groups(counts: np.ndarray) -> float:
    """Mean over clients of exp(entropy of its group shares): 1 where each client has one group only."""
    shares = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
    entropy = -np.sum(shares * np.log(shares, where=shares > 0, out=np.zeros_like(shares)), axis=1)
    return float(np.exp(entropy).mean())


def size_imbalance(counts: np.ndarray) -> float:
    """Coefficient of variation of the client sizes: standard deviation over mean."""
    sizes = counts.sum(axis=1)
    return float(sizes.std() / sizes.mean())


def report(clients: list[np.ndarray], groups: np.ndarray) -> dict[str, float]:
    """All measures of a partition by name."""
    counts = group_counts(clients, groups)
    return {
        "images_dealt": int(counts.sum()),
        "smallest_client": int(counts.sum(axis=1).min()),
        "largest_client": int(counts.sum(axis=1).max()),
        "size_imbalance": size_imbalance(counts),
        "emd": earth_movers_distance(counts),
        "effective_groups": effective_groups(counts),
    }
