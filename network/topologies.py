"""Who is whose neighbour: graphs of clients by the name that `--topology` takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from utils.errors import UserError
from utils.streams import derived_seed

if TYPE_CHECKING:
    import networkx

# (number of clients, neighbours of each where that may be chosen, seed) -> graph of the clients 0, 1, …
Topology = Callable[[int, int, int], "networkx.Graph"]


def ring(n_clients: int, degree: int, seed: int) -> networkx.Graph:
    """Each client between the one before and the one after."""
    import networkx

    return networkx.cycle_graph(n_clients) if n_clients > 2 else networkx.path_graph(n_clients)


def torus(n_clients: int, degree: int, seed: int) -> networkx.Graph:
    """Rows and columns that are rings, as square as the number of clients allows; UserError if it allows none.

    Client i is in row i // columns. Both sides are at least 3.
    """
    import networkx

    sides = [side for side in range(3, math.isqrt(n_clients) + 1) if n_clients % side == 0]
    if not sides:
        raise UserError(
            f"--topology torus: {n_clients} clients are no rows and columns of 3 or more; give 9, 12, 15, 16 …"
        )
    grid = networkx.grid_2d_graph(sides[-1], n_clients // sides[-1], periodic=True)
    return networkx.convert_node_labels_to_integers(grid, ordering="sorted")


def random_regular(n_clients: int, degree: int, seed: int) -> networkx.Graph:
    """Each client with `degree` others, drawn by the seed until all are connected; UserError if that cannot be."""
    import networkx

    if not 2 <= degree < n_clients or degree * n_clients % 2:
        raise UserError(
            f"--topology random_regular: no graph connects {n_clients} clients with --degree {degree} neighbours each; "
            "give at least 2, fewer than there are clients, and an even number of clients or neighbours"
        )
    # Pairs drawn at random hardly ever make a dense graph; the clients that are not neighbours are as random.
    dense = 3 * degree > 2 * n_clients
    drawn_degree, attempts = n_clients - 1 - degree if dense else degree, 0
    while True:
        drawn = networkx.random_regular_graph(drawn_degree, n_clients, seed=derived_seed("topology", seed, attempts))
        drawn = networkx.complement(drawn) if dense else drawn
        if networkx.is_connected(drawn):
            return drawn
        attempts += 1


def complete(n_clients: int, degree: int, seed: int) -> networkx.Graph:
    """Every client with every other."""
    import networkx

    return networkx.complete_graph(n_clients)


def star(n_clients: int, degree: int, seed: int) -> networkx.Graph:
    """Client 0 with every other."""
    import networkx

    return networkx.star_graph(n_clients - 1)


TOPOLOGIES: dict[str, Topology] = {
    "ring": ring, "torus": torus, "random_regular": random_regular, "complete": complete, "star": star,
}  # fmt: skip


def metropolis_weights(graph: networkx.Graph, clients: list[int], n_clients: int) -> np.ndarray:
    """The weights W_ij of the models of all n clients in the mixtures of some of them, (len(clients), n) float64.

    Among these clients, W_ij = 1 / (1 + max(d_i, d_j)) for neighbours i and j, where d counts a client's neighbours
    that are among these, too; W_ii is such that rows sum to 1. So W is symmetric and doubly stochastic, and the mean of
    the models stays what it is: Xiao, Boyd and Lall 2005 (IPSN, "A scheme for robust distributed sensor fusion based on
    average consensus").
    """
    among = graph.subgraph(clients)
    degrees = dict(among.degree())
    weights = np.zeros((len(clients), n_clients))
    for row, client in enumerate(clients):
        for other in among[client]:
            weights[row, other] = 1.0 / (1.0 + max(degrees[client], degrees[other]))
        weights[row, client] = 1.0 - weights[row].sum()
    return weights


def spectral_gap(weights: np.ndarray) -> float:
    """1 - |lambda_2| of mixing weights (n, n), lambda_2 being the eigenvalue with the second largest absolute value."""
    sizes = np.sort(np.abs(np.linalg.eigvalsh(weights)))
    return float(1.0 - sizes[-2]) if len(sizes) > 1 else 1.0
