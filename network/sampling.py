"""Who takes part in a round, and which of its images a client sees at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from utils.registry import Registry

# (client sizes, clients per round, generator) -> the chosen clients and how much each counts in the server's mean
Sampler = Callable[[Sequence[int], int, np.random.Generator], dict[int, float]]


def uniform(sizes: Sequence[int], n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """Each client with the same chance, none twice, counted by its number of images.

    McMahan et al. 2017 (arXiv 1602.05629), algorithm 1. Scheme II of Li et al. 2020 (arXiv 1907.02189) weighs the
    same draw by p_k N / K, which is unbiased; but these weights add up to one on average only, so that a round scales
    the whole model up or down. Weights that add up to one, as here, trade that for a bias that is nothing for clients
    of equal size or where all take part.
    """
    if n_chosen >= len(sizes):
        return dict(enumerate(map(float, sizes)))
    chosen = np.sort(rng.choice(len(sizes), n_chosen, replace=False))
    return {int(client): float(sizes[client]) for client in chosen}


def by_size(sizes: Sequence[int], n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """`n_chosen` draws with replacement, a client's chance being its share p_k of the images; all draws count the same.

    Scheme I of Li et al. 2020 (arXiv 1907.02189): the mean over draws is an unbiased estimate of the mean of all
    clients weighted by p_k. A client that is drawn twice trains once and counts twice.
    """
    draws = np.bincount(rng.choice(len(sizes), n_chosen, p=np.asarray(sizes) / np.sum(sizes)), minlength=len(sizes))
    return {int(client): float(draws[client]) for client in np.flatnonzero(draws)}


def systematic(sizes: Sequence[int], n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """`n_chosen` evenly spaced draws from the images of all clients in random order; each counts as n/K images.

    The points u + i n/K, i < K, on the cumulated sizes (Madow 1944): client k is drawn K n_k/n times on average, as by
    `by_size`, and never more than one draw away from that, so that the mean over draws is as unbiased and varies less.
    Independent draws without replacement would not do: NumPy's have not these chances. A client with more than n/K
    images is drawn several times, as the virtual clients into which Hsu, Qi and Brown 2020 (arXiv 2003.08082) split
    it; it trains once and counts as often as it is drawn. Clients of equal size are drawn once at most, and where all
    take part with `uniform`'s weights.
    """
    order, everything = rng.permutation(len(sizes)), int(np.sum(sizes))
    # In units of 1/K image all is whole: each of these points is as likely as any other.
    points = rng.integers(everything) + everything * np.arange(n_chosen)
    ends = np.cumsum(np.asarray(sizes, np.int64)[order]) * n_chosen
    draws = np.bincount(order[np.searchsorted(ends, points, side="right")], minlength=len(sizes))
    return {int(client): float(draws[client]) * everything / n_chosen for client in np.flatnonzero(draws)}


SAMPLERS: Registry[Sampler] = {"uniform": uniform, "size": by_size, "systematic": systematic}


def shuffled_epochs(n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> np.ndarray:
    """Batches (n_steps, B) of positions in 0..n_images - 1: epochs in random order, one after another, cut evenly.

    B is the batch size, or all images of a client that has fewer. A batch may begin in one epoch and end in the next,
    so that every step of every client has as many images as it can have.
    """
    size = min(batch_size, n_images)
    n_epochs = -(-n_steps * size // n_images)
    stream = np.concatenate([rng.permutation(n_images) for _ in range(n_epochs)])
    return stream[: n_steps * size].reshape(n_steps, size)
