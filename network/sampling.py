"""Sampling of the clients of a round, and of the images that a client sees at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from network.engine.client import ClientRound
from network.partition.client_images import ClientImages
from network.settings import LocalSettings
from utils.args import POSITIVE_INT
from utils.errors import UserError
from utils.settings import Configured, setting

POISSON = "poisson"
# (client sizes (clients,), clients per round, generator) -> the chosen clients and their weights in the server's mean
Sampler = Callable[[np.ndarray, int, np.random.Generator], dict[int, float]]


def uniform(sizes: np.ndarray, n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """Each client with the same probability, without replacement, weighted by its number of images.

    McMahan et al. 2017 (arXiv 1602.05629), algorithm 1. Scheme II of Li et al. 2020 (arXiv 1907.02189) weights the
    same draw by p_k N / K. That is unbiased, but its weights sum to one only on average, so that a round scales the
    whole model up or down. Weights that sum to one, as here, are biased instead, except where clients have equal sizes
    or all take part.
    """
    if n_chosen >= len(sizes):
        return dict(enumerate(sizes.astype(float).tolist()))
    chosen = np.sort(rng.choice(len(sizes), n_chosen, replace=False))
    return {int(client): float(sizes[client]) for client in chosen}


def by_size(sizes: np.ndarray, n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """`n_chosen` draws with replacement, each client with probability p_k, its share of the images; equal weights.

    Scheme I of Li et al. 2020 (arXiv 1907.02189): the mean over draws is an unbiased estimate of the mean over all
    clients weighted by p_k. A client that is drawn twice trains once and counts twice.
    """
    drawn = rng.choice(len(sizes), n_chosen, p=sizes / sizes.sum())
    chosen, draws = np.unique(drawn, return_counts=True)
    return dict(zip(chosen.tolist(), draws.astype(float).tolist(), strict=True))


def systematic(sizes: np.ndarray, n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """`n_chosen` evenly spaced draws from the images of all clients in random order; each counts as n/K images.

    These are the points u + i n/K, i < K, on the cumulative sizes (Madow 1944). Client k is drawn K n_k/n times on
    average, as in `by_size`, and never more than one draw away from that, so that the mean over draws is unbiased, too,
    and varies less. NumPy's draws without replacement do not have these probabilities. A client with more than n/K
    images is drawn several times, like the virtual clients into which Hsu, Qi and Brown 2020 (arXiv 2003.08082) split
    it; it trains once and counts as often as it is drawn. Clients of equal size are drawn at most once and, where all
    take part, have `uniform`'s weights.
    """
    order, everything = rng.permutation(len(sizes)), int(sizes.sum())
    # In units of 1/K image everything is an integer, so that all points are equally likely. Ends are whole images.
    points = rng.integers(everything) + everything * np.arange(n_chosen)
    at = np.searchsorted(np.cumsum(sizes[order]), points // n_chosen, side="right")
    chosen, draws = np.unique(order[at], return_counts=True)
    return dict(zip(chosen.tolist(), (draws.astype(float) * everything / n_chosen).tolist(), strict=True))


def poisson(sizes: np.ndarray, n_chosen: int, rng: np.random.Generator) -> dict[int, float]:
    """Each client with probability K/N, independently of all others; equal weights.

    This is the sampling that accounts of differential privacy amplify best (Mironov, Talwar and Zhang 2019, arXiv
    1908.10530), and the number of clients varies from round to round. Where nobody is drawn, the first client comes
    with a weight of 0: what it sends counts for nothing, but the round's noise needs its shape.
    """
    chosen = np.flatnonzero(rng.random(len(sizes)) < n_chosen / len(sizes))
    return {int(client): 1.0 for client in chosen} or {0: 0.0}


SAMPLERS: dict[str, Sampler] = {"uniform": uniform, "size": by_size, "systematic": systematic, POISSON: poisson}


class ClientSampling(Configured):
    """Which clients take part in a round, and on which of their images; the same for every method.

    | symbol | argument |
    |---|---|
    | C K, clients per round | `--clients_per_round` (all by default, as in arXiv 2503.14553) |
    | S_t, the clients of a round | `--client_sampling` |
    | N_VC of FedVC | `--virtual_client_size` |

    With `--virtual_client_size` it is FedVC's: Hsu, Qi and Brown 2020 (arXiv 2003.08082, section 5.3), for clients of
    different sizes. In a round, a client goes once over N_VC images, in N_VC / B steps: a random subset of its images
    or, where it has fewer, draws with replacement. Clients are drawn in proportion to their size (by `systematic`,
    unless another sampling is given), and all draws count the same. A large client may be drawn several times per
    round. In the paper, its virtual clients then train on different subsets; here it trains once and counts as often as
    it was drawn, which is unbiased, too. If each client has N_VC images and all take part, it is FedAvg with one local
    epoch, to the bit.
    """

    heading: ClassVar[str] = "method"

    clients_per_round: int | None = setting(None, "clients that take part in a round; default: all", POSITIVE_INT)
    client_sampling: str = setting(
        None,
        "how the clients of a round are chosen; default: uniform, or systematic with --virtual_client_size",
        choices=tuple(SAMPLERS),
    )
    virtual_client_size: int | None = setting(
        None, "images per client and round, in place of local epochs or steps; default: all it has", POSITIVE_INT
    )

    def __post_init__(self) -> None:
        if self.client_sampling is None:
            self.client_sampling = "systematic" if self.virtual_client_size else "uniform"

    def check(self, n_clients: int) -> None:
        """Raise UserError for more clients per round than there are."""
        if (self.clients_per_round or 0) > n_clients:
            raise UserError(
                f"--clients_per_round {self.clients_per_round} is more than the {n_clients} clients; see --n_clients"
            )

    def check_batches(self, batch_size: int) -> None:
        """Raise UserError where virtual clients do not consist of whole batches."""
        if self.virtual_client_size and self.virtual_client_size % batch_size:
            raise UserError(
                f"--virtual_client_size {self.virtual_client_size} is not a multiple of --batch_size {batch_size}; "
                "give a multiple"
            )

    def cohort(
        self, clients: ClientImages, settings: LocalSettings, rng: np.random.Generator
    ) -> dict[int, ClientRound]:
        """The clients that take part in a round, each with its images, steps and weight in it."""
        chosen = SAMPLERS[self.client_sampling](clients.sizes, self.clients_per_round or len(clients), rng)
        cohort = {}
        for i, weight in chosen.items():
            images = clients[i]
            client_fraction, n_steps = len(images) / len(clients.images), settings.steps(len(images))
            if virtual := self.virtual_client_size:
                # Sorted, so that a draw of all of a client's images changes nothing.
                images = images[np.sort(rng.choice(len(images), virtual, replace=len(images) < virtual))]
                n_steps = virtual // settings.batch_size
            cohort[i] = ClientRound(images, n_steps, weight, client_fraction)
        return cohort


def shuffled_epochs(n_images: int, batch_size: int, n_steps: int, rng: np.random.Generator) -> np.ndarray:
    """Batches (n_steps, B) of positions in 0..n_images - 1: consecutive shuffled epochs, cut into equal batches.

    B is the batch size, or the number of the client's images if that is smaller. A batch may begin in one epoch and
    end in the next, so that every step has a full batch.
    """
    size = min(batch_size, n_images)
    n_epochs = -(-n_steps * size // n_images)
    stream = np.concatenate([rng.permutation(n_images) for _ in range(n_epochs)])
    return stream[: n_steps * size].reshape(n_steps, size)
