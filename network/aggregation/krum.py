"""Krum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.aggregation.rule import Chooses, squared_distances
from utils.args import count_of, share_or_number
from utils.errors import UserError
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class Krum(Chooses):
    """The one change that is closest to its neighbours: Blanchard et al. 2017 (arXiv 1703.02757), section 4.

    | symbol | argument |
    |---|---|
    | f | `--assumed_attackers` (0.2), a share of the round's clients or a number |

    A client's score is the sum of the squared distances to the n - f - 2 changes closest to its own; the change with
    the lowest score is taken, of equal ones that of the lower client number. The paper needs n >= 2 f + 3 (UserError
    for rounds of fewer clients). Where a round has fewer uploads than clients were asked for, f is as large as that
    allows.
    """

    assumed_attackers: float = setting(
        0.2, "attackers that the rule reckons with: a share below 1 of a round's clients, or a number", share_or_number
    )

    def check_clients(self, n_clients: int) -> None:
        """Raise UserError for fewer than 2 f + 3 clients."""
        f = count_of(self.assumed_attackers, n_clients)
        if n_clients < 2 * f + 3:
            raise UserError(
                f"--assumed_attackers {self.assumed_attackers:g}: with {f} attackers, {self.label()} needs {2 * f + 3} "
                f"clients per round, and there are {n_clients}; give a smaller number"
            )

    def assumed(self, n_clients: int) -> int:
        """f among this many clients."""
        return max(0, min(count_of(self.assumed_attackers, n_clients), (n_clients - 3) // 2))

    def n_chosen_of(self, n_clients: int) -> int:
        """How many changes are taken."""
        return 1

    def coefficients(self, products: Tensor) -> Tensor:
        """Equal weights of those with the lowest scores."""
        n = len(products)
        closest = squared_distances(products).sort(dim=1).values[:, 1:]  # without the distance to itself
        scores = closest[:, : max(1, n - self.assumed(n) - 2)].sum(dim=1)
        chosen = scores.sort(stable=True).indices[: self.n_chosen_of(n)]
        weights = products.new_zeros(n)
        weights[chosen] = 1.0 / len(chosen)
        return weights
