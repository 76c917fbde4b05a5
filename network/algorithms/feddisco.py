"""FedDisco."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from network.algorithms.by_label import ByKind
from network.engine.client import ClientRound
from network.importance import POPULATION, UNIFORM, reweighting
from network.partition.client_images import ClientImages
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from datasets.task_data import TaskData


class FedDisco(ByKind):
    """Aggregation that gives balanced clients more weight: Ye et al. 2023 (arXiv 2305.19229), equation 6.

    | symbol | argument |
    |---|---|
    | a, b | `--discrepancy_weight` (0.5), `--discrepancy_offset` (0.1) |
    | D, the target of d_k | `--discrepancy_target`: uniform, as in the paper, or the shares in all clients' images |

    In a round, a client counts ReLU(p_k - a d_k + b), where p_k is its share of the round's weight in FedAvg, and d_k
    the divergence KL(q_k | D) of its shares of labels, divided by the sum over the round's clients as in the published
    code. The offset b brings clients closer to equal weights. If no client would count, they count as in FedAvg.
    """

    discrepancy_weight: float = setting(0.5, "how much a client's discrepancy lowers its weight", NON_NEGATIVE)
    discrepancy_offset: float = setting(0.1, "added to every client's weight", NON_NEGATIVE)
    discrepancy_target: str = setting(
        UNIFORM, "the shares of labels that clients' shares are compared with", choices=(UNIFORM, POPULATION)
    )
    only_mean: ClassVar[str] = "it consists of clients' weights, which other aggregators do not use"

    def unprotected(self) -> str:
        """Weights are what the method is about."""
        return "FedDisco weights clients by their labels, and private ones must all count the same"

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Measure each client's discrepancy."""
        super().prepare(data, groups, clients)
        reweighted = reweighting(self._label_of, clients, data.test, self.discrepancy_target)
        # The weights are p / q_k; the divergence sums q_k log(q_k / p).
        shares = reweighted.count / reweighted.sizes[reweighted.client]
        self._discrepancy = np.bincount(reweighted.client, -shares * np.log(reweighted.weight), len(clients))

    def cohort(self, sampled: dict[int, ClientRound], clients: ClientImages) -> dict[int, ClientRound]:
        """The same clients, with other weights that have the same sum."""
        weights = np.array([client_round.weight for client_round in sampled.values()], float)
        discrepancy = self._discrepancy[list(sampled)].clip(min=0.0)
        relative = discrepancy / max(discrepancy.sum(), np.finfo(float).tiny)
        counted = weights / weights.sum() - self.discrepancy_weight * relative + self.discrepancy_offset
        counted = counted.clip(min=0.0)
        if counted.sum() > 0:
            weights = counted / counted.sum() * weights.sum()
        return {
            client: replace(client_round, weight=weight)
            for (client, client_round), weight in zip(sampled.items(), weights.tolist(), strict=True)
        }
