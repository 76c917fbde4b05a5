"""Time and memory of the equivalent α of many clients, beside counting their images once.

    python -m benchmarks.equivalent_alpha          (a minute on one core)

Counting is `numpy.bincount` of the same pairs of client and group. The estimate is α with its interval by likelihood;
"all" is everything that `measure_clients.py` measures of a grouping: bootstrap, test of fit, merged groups, distances.
Times are of the processor, in which other programs count little. Memory is NumPy's peak, beyond the pairs.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from benchmarks.partition import peak_bytes, shortest
from benchmarks.tables import print_table
from network.partition.equivalent_alpha import equivalent_alpha
from network.partition.heterogeneity import sparse_counts
from network.partition.own_clients import OwnClients, measure

CLIENTS, IMAGES, GROUPS, ALPHA = 100_000, 1_000_000, (10, 100), 0.5
_CHUNK = 50_000


def pairs(n_clients: int, n_images: int, n_groups: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Each image's client and group, (images,) each: mixtures ~ Dir(α p) with equal groups, and sizes by chance."""
    client_of = rng.integers(0, n_clients, n_images)
    below = rng.dirichlet(np.full(n_groups, ALPHA / n_groups), n_clients).cumsum(axis=1)
    groups = [
        (rng.random((len(at), 1)) > below[at, :-1]).sum(axis=1)
        for at in np.array_split(client_of, -(-n_images // _CHUNK))
    ]
    return client_of, np.concatenate(groups)


def row(n_groups: int) -> dict[str, object]:
    """The measurements of clients with this number of groups."""
    client_of, groups = pairs(CLIENTS, IMAGES, n_groups, np.random.default_rng(0))
    clients = OwnClients(client_of, {"groups": groups})
    seconds = partial(shortest, clock=time.process_time)
    counting = seconds(lambda: np.bincount(client_of * n_groups + groups, minlength=CLIENTS * n_groups))
    estimate = seconds(lambda: equivalent_alpha(sparse_counts(client_of, groups, CLIENTS)))
    everything = seconds(lambda: measure(clients, seed=0))
    return {
        "groups": n_groups,
        "numpy.bincount, s": f"{counting:.2f}",
        "estimate, s": f"{estimate:.2f}",
        "all, s": f"{everything:.2f}",
        "all - 3 x bincount, s": f"{everything - 3 * counting:.2f}",
        "memory, MB": f"{peak_bytes(lambda: measure(clients, seed=0)) / 1e6:.0f}",
    }


def main() -> None:
    """Print a row for each number of groups."""
    print_table(f"{CLIENTS:,} clients, {IMAGES:,} images, alpha {ALPHA:g}", [row(n_groups) for n_groups in GROUPS])


if __name__ == "__main__":
    main()
