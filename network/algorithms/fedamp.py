"""FedAMP."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, ClientRound, Phase
from network.engine.client_models import ClientModels
from network.engine.server import ServerContext
from network.engine.state import strip_prefix
from utils.args import POSITIVE
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class FedAMP(FedAvg):
    """Attentive message passing: Huang et al. 2021 (arXiv 2007.03797), algorithm 1.

    | symbol | argument |
    |---|---|
    | sigma in A(x) = 1 - exp(-x / sigma) | `--sigma` (the mean squared distance of a round's clients to all others) |
    | alpha_k | `--alpha_k` (sigma / N, N being the number of clients) |
    | lambda / alpha_k, the pull towards u_i | `--lam` (1) |

    Before training, client i receives u_i = sum_j xi_ij w_j over the latest models of all clients, with
    xi_ij = alpha_k A'(|w_i - w_j|^2) for j != i, and xi_ii such that the weights sum to 1. It then minimises
    F_i(w) + lambda / (2 alpha_k) |w - u_i|^2, starting from w_i. Distances are between parameters; buffers are mixed
    with the same weights. There is no global model.

    Sigma decides the weights: if it is far above the distances, they are those of a plain mean; if it is far below,
    every client is alone. Distances grow with the square of the learning rate and of the number of steps, so no single
    sigma suits all settings; unless it is given, it follows the distances from round to round (the paper has one for
    the whole run). With alpha_k = sigma / N, another model has the weight exp(-|w_i - w_j|^2 / sigma) / N, at most its
    weight in a plain mean. The paper needs alpha_k sum_j A' <= 1. Where a given alpha_k exceeds that, the others'
    weights are scaled down to a sum of 1, and the end of the run says how often. Where few clients take part in a
    round, models differ in how often they were trained as well as in the data that they were trained on.

    The round's clients are processed in batches: as many as fit into the memory that a process has for states, with two
    models in double precision each, and at least one. For each batch, every model is read twice, by the process that
    keeps it.
    """

    sigma: float | None = setting(None, "squared distance where attention falls to 1/e; default: the mean", POSITIVE)
    alpha_k: float | None = setting(None, "step size of message passing; default: sigma / number of clients", POSITIVE)
    lam: float = setting(1.0, "lambda / alpha_k, the strength of the pull towards u_i", NON_NEGATIVE)
    no_uploads: ClassVar[str] = "every client has a mixture of its own"

    def unprotected(self) -> str:
        """There is no sum over clients."""
        return "FedAMP sends each client a mixture of its own, of single clients' models"

    def is_shared(self, name: str) -> bool:
        """Nothing is averaged: every client keeps its whole model."""
        return False

    def start_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> dict[str, float]:
        """Put u_i into the state of each of the round's clients; returns the metrics of `attention`, over the round."""
        import torch

        models = self._models(context)
        clients = list(cohort)
        distances = torch.cat([models.distances(batch) for batch in models.batches(clients)])
        weights, metrics = self.attention(distances, clients)
        models.save_mixed("cloud", clients, weights)
        return metrics

    def received_model(self, context: ServerContext) -> Mapping[str, Tensor]:
        """The mean of all clients' latest models: the mixture for one to whom all are equally far.

        The paper does not treat non-participating clients, whose initial model is near nobody's.
        """
        return self._models(context).mean()

    def _models(self, context: ServerContext) -> ClientModels:
        parameters = [name for name, _ in context.model.named_parameters()]
        others = [name for name in context.server if name not in parameters]
        return ClientModels(context.server, context.states, parameters, others, context.total)

    def traffic(
        self, sent: int, server: Mapping[str, Tensor], shared: Collection[str], trained: Collection[str]
    ) -> tuple[int, int]:
        """The client's whole model, and u_i of the same size, which here is made from the states of all clients."""
        n_bytes = sum(server[name].nbytes for name in trained)
        return n_bytes, n_bytes

    def attention(self, distances: Tensor, clients: Sequence[int]) -> tuple[Tensor, dict[str, float]]:
        """The weights xi (B, N) of B clients, from their models' squared distances to all N (B, N), and metrics."""
        n_clients = distances.shape[1]
        own = range(len(clients)), clients
        mean = float(distances.sum()) / (len(clients) * max(1, n_clients - 1))
        sigma = self.sigma or max(mean, 1e-30)  # at first all models may be the same
        weights = (self.alpha_k or sigma / n_clients) / sigma * (-distances / sigma).exp()
        weights[own] = 0.0
        others = weights.sum(1)
        weights /= others.clamp(min=1.0)[:, None]
        weights[own] = 1.0 - others.clamp(max=1.0)
        return weights, {
            "squared_distance": mean,
            "own_weight": float(weights[own].mean()),
            "clients_mixed": len(clients),
            "clients_capped": int((others > 1.0).sum()),
        }

    def notes(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """The weight of a client's own model in u_i, and how often the others' weights were scaled down."""
        rounds = [row for row in rows if "clients_mixed" in row]
        mixed = sum(row["clients_mixed"] for row in rounds)
        own = sum(row["own_weight"] * row["clients_mixed"] for row in rounds) / mixed
        lines = [f"a client's own model had a weight of {own:.2f}, on average, in the mixture that it was pulled to"]
        if capped := sum(row["clients_capped"] for row in rounds):
            often = f"{capped:.0f} of {mixed:.0f} client-rounds ({capped / mixed:.0%})"
            lines.append(f"in {often}, the others' weights summed to more than 1 and were scaled down; lower --alpha_k")
        return lines

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """Train towards u_i, which does not stay in the state."""
        local.scratch["cloud"] = strip_prefix("cloud", local.state)
        for name in local.scratch["cloud"]:
            del local.state[f"cloud.{name}"]
        yield from super().local_update(local)

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Add lambda / alpha_k (w - u_i)."""
        local.pull(gradients, local.scratch["cloud"], self.lam)
