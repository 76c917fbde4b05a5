"""Ditto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, Phase
from network.engine.state import add_prefix, strip_prefix
from utils.args import POSITIVE_INT
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class Ditto(FedAvg):
    """FedAvg with an additional personal model per client: Li et al. 2021 (arXiv 2012.04221), algorithm 1.

    | symbol | argument |
    |---|---|
    | lambda | `--lam` (1; the paper chooses from 0.05 to 2) |
    | s, personal steps | `--personal_steps` (as many as the global model's) |
    | eta, of both models | `--init_lr` |

    The personal model v_k minimises F_k(v) + lambda/2 |v - w_t|^2 and never travels; the global model is FedAvg's.
    v_k starts as the server's model of the client's first round, and so does a non-participating client's. Since v_k
    depends on w_t alone, it is trained first, and the global model afterwards, so that one working copy serves both.
    """

    lam: float = setting(1.0, "lambda, the strength of the pull on personal models", NON_NEGATIVE)
    personal_steps: int | None = setting(
        None, "steps of the personal model; default: as the global one's", POSITIVE_INT
    )
    personal: ClassVar[bool] = True

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """The personal model's phase, then FedAvg's."""
        local.load(self.personal_model(local.start, local.state))
        yield Phase(self.personal_steps or local.client_round.n_steps, "personal")
        local.state |= add_prefix("personal", local.copy())
        local.load(local.start)
        yield from super().local_update(local)

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Add lambda (v - w_t) in the personal phase."""
        if local.phase == "personal":
            local.pull(gradients, local.start, self.lam)

    def personal_model(self, start: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """v_k; its frozen part, which nobody trains, is the common one."""
        return {**start, **strip_prefix("personal", state)}
