"""How the mixtures of clients of equal size are distributed, by the client's position, against the Dirichlet's own.

    python -m benchmarks.positions          (a minute on one core)

Clients are filled one after another (`dirichlet_hsu`; the same with counts rounded instead of drawn, so that chance
in small clients is left out), or fitted to the groups all at once (`equal_size`). Over many assigns, the first and
the last client's and everybody's earth mover's distance to the population, and the variance of the mixture over that
of the Dirichlet draw, Var q_j = p_j (1 - p_j) / (alpha + 1), summed over groups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.tables import print_table
from network.partition.shares import fill, fit, log_dirichlet, rounded
from utils import progress
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

CLIENTS, SIZE, GROUPS, ALPHAS = (10, 100), 200, 16, (0.1, 1.0, 100.0)

# (log q, sizes, capacity, source of randomness) -> shares (clients, groups)
Ways = dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]]
WAYS: Ways = {
    "the Dirichlet's own": lambda logs, sizes, capacity, rng: np.exp(logs) * sizes[:, None],
    "one after another, drawn (`dirichlet_hsu`)": lambda logs, sizes, capacity, rng: fill(
        logs, sizes, capacity, rng.multinomial
    ),
    "one after another, rounded": lambda logs, sizes, capacity, rng: fill(
        logs, sizes, capacity, partial(rounded, rng=rng)
    ),
    "all at once (`equal_size`)": fit,
}


def measure(way: str, n_clients: int, alpha: float, assigns: int) -> dict[str, object]:
    """A row of the table."""
    capacity = np.full(GROUPS, n_clients * SIZE // GROUPS)
    population = capacity / capacity.sum()
    distance, square = np.zeros(n_clients), np.zeros(n_clients)
    for seed in range(assigns):
        rng = np.random.default_rng(seed)
        drawn = log_dirichlet(alpha * population, n_clients, rng)
        away = WAYS[way](drawn, np.full(n_clients, SIZE), capacity, rng) / SIZE - population
        distance += np.abs(away).sum(axis=1) / assigns
        square += np.square(away).sum(axis=1) / assigns
    variance = square * (alpha + 1) / (population * (1 - population)).sum()
    row: dict[str, object] = {"clients": n_clients, "alpha": f"{alpha:g}", "filled": way}
    for name, values in (("EMD", distance), ("variance", variance)):
        places = {"first": values[0], "last": values[-1], "all": values.mean()}
        row |= {f"{name}, {place}": f"{value:.2f}" for place, value in places.items()}
    return row


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--assigns", type=POSITIVE_INT, default=1000, help="that the numbers are means of")
    args = parser.parse_args()
    cases = [(way, n, alpha) for n in CLIENTS for alpha in ALPHAS for way in WAYS]
    rows = [measure(*case, args.assigns) for case in progress.bar(cases, unit="row")]
    print_table(f"Clients of {SIZE} images, {GROUPS} groups, {args.assigns} assigns", rows)


if __name__ == "__main__":
    run_script(main)
