"""FedRep."""

from __future__ import annotations

from collections.abc import Iterator

from network.algorithms.fedper import FedPer
from network.engine.client import ClientContext, Phase
from utils.args import number
from utils.settings import setting


class FedRep(FedPer):
    """A shared representation with personal heads: Collins et al. 2021 (arXiv 2102.07078), algorithm 1.

    | symbol | argument |
    |---|---|
    | h, the head | `--personal_part`, as for FedPer |
    | tau, steps of the head | `--head_steps` (half of the local work; in the paper ten epochs, the body's being one) |

    In each round, a client first trains its head with the body frozen, then the body with the head frozen for the rest
    of the local work (at least one step), so that a round costs as many steps as with other methods. Running statistics
    of batch norm move in both phases. Where `--train` freezes the whole body, all steps are the head's.
    """

    head_steps: int | None = setting(None, "steps of the head per round; default: half of all", number(int, least=0))

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """The head's phase, then the body's."""
        n_steps = local.client_round.n_steps
        head_steps = min(n_steps // 2 if self.head_steps is None else self.head_steps, n_steps - 1)
        names = frozenset(local.trained())
        body = frozenset(filter(self.is_shared, names))
        if not body:
            head_steps = n_steps
        yield Phase(head_steps, "head", names - body)
        yield Phase(n_steps - head_steps, trained=body)
