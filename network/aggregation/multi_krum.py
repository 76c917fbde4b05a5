"""Multi-Krum."""

from __future__ import annotations

from network.aggregation.krum import Krum
from utils.args import POSITIVE_INT
from utils.errors import UserError
from utils.settings import setting


class MultiKrum(Krum):
    """The mean of the changes with the lowest of Krum's scores: Blanchard et al. 2017 (arXiv 1703.02757), section 4.

    | symbol | argument |
    |---|---|
    | f | `--assumed_attackers`, as for Krum |
    | m | `--n_chosen` (all but f) |
    """

    title = "Multi-Krum"
    n_chosen: int | None = setting(
        None, "changes that are averaged; default: all but the assumed attackers", POSITIVE_INT
    )

    def check_clients(self, n_clients: int) -> None:
        """Raise UserError as Krum does, and where more changes are to be averaged than there are clients."""
        super().check_clients(n_clients)
        if (self.n_chosen or 0) > n_clients:
            raise UserError(f"--n_chosen {self.n_chosen} is more than the {n_clients} clients per round")

    def n_chosen_of(self, n_clients: int) -> int:
        """m, at most all."""
        return min(self.n_chosen or n_clients - self.assumed(n_clients), n_clients)
