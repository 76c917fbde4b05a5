"""FedProto."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.by_label import ByKind
from network.engine.client import ClientContext, Phase
from network.engine.state import add_prefix
from network.partition.client_images import ClientImages
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from datasets.task_data import TaskData

SUMS, COUNTS = "prototypes.sum", "prototypes.count"


class FedProto(ByKind):
    """Prototypes of classes: Tan et al. 2022 (arXiv 2105.00243), algorithm 1, on top of FedAvg.

    | symbol | argument |
    |---|---|
    | lambda | `--prototype_weight` (1) |
    | C^(j), the prototype of label j | the mean of the encoder's vectors of all clients' images of the label |

    An image's loss gains lambda times the mean squared difference between its vector and its label's prototype: the
    squared distance divided by the vector's length, as in the published code. Clients send sums and counts of the
    vectors that they computed while training, so that prototypes are means over images, as in the paper; the published
    code takes the unweighted mean of clients' means. A label that no client had in a round keeps its prototype; one
    that none has had yet has no prototype. In the paper, only prototypes travel and clients keep models of their own;
    here, as in comparisons with methods that share one model, models are averaged as well.
    """

    prototype_weight: float = setting(1.0, "weight of the distance to the prototype", NON_NEGATIVE)
    only_mean: ClassVar[str] = "prototypes are sums over clients"
    left_alone: ClassVar[Collection[str]] = (COUNTS,)

    def unprotected(self) -> str:
        """Sums and counts have another scale than a model, by orders of magnitude."""
        return "FedProto's sums and counts of vectors grow with a client's images, and no norm suits them and the model"

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Keep an image, by which `server_state` finds the length of the vectors."""
        import torch

        super().prepare(data, groups, clients)
        self._sample = data.batch(torch.zeros(1, dtype=torch.int64, device=data.device)).images

    def is_summed(self, name: str) -> bool:
        """Sums and counts are summed."""
        return name in (SUMS, COUNTS)

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """No prototypes at first."""
        import torch

        with torch.no_grad():
            encoded = model.eval()(self._sample).encoded
        empty = encoded.new_zeros(self._n_labels, encoded.shape[1])
        return {SUMS: empty, COUNTS: empty[:, 0].clone()}

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """Train, with sums and counts that start at 0."""
        import torch

        sums, counts = (torch.zeros_like(local.server[name]) for name in (SUMS, COUNTS))
        local.scratch["prototypes"] = {"sum": sums, "count": counts}
        yield from super().local_update(local)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The task's loss plus the distance to the prototypes; adds the vectors to the sums."""
        z, labels = local.batch.encoded, self.labels_at(local.batch.positions)
        at, known = labels.clamp(min=0), (labels >= 0).to(z)
        seen = local.scratch["prototypes"]
        seen["sum"].index_add_(0, at, z.detach() * known[:, None])
        seen["count"].index_add_(0, at, known)
        counts = local.server[COUNTS]
        prototypes = (local.server[SUMS] / counts.clamp(min=1.0)[:, None])[at]
        distance = (z - prototypes).square().mean(1) * known * (counts[at] > 0)
        return super().local_loss(loss + self.prototype_weight * distance, local)

    def upload(self, local: ClientContext) -> dict[str, Tensor]:
        """The model, and the sums and counts."""
        return super().upload(local) | add_prefix("prototypes", local.scratch["prototypes"])

    def received(self, server: Mapping[str, Tensor], shared: Collection[str]) -> Collection[str]:
        """Clients get the prototypes as well."""
        return [*shared, SUMS, COUNTS]

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """FedAvg's step, with new prototypes for the labels that were seen."""
        seen = mean[COUNTS] > 0
        totals = {
            SUMS: mean[SUMS].where(seen[:, None], server[SUMS].to(mean[SUMS])),
            COUNTS: mean[COUNTS].where(seen, server[COUNTS].to(mean[COUNTS])),
        }
        return super().server_step(server, dict(mean) | totals)
