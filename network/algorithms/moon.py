"""MOON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from models.parts import in_eval_mode
from network.algorithms.fedavg import FedAvg
from network.client import ClientContext, Phase, StepView
from network.state import add_prefix, strip_prefix
from utils.args import POSITIVE
from utils.arguments import NON_NEGATIVE, Argument

if TYPE_CHECKING:
    from torch import Tensor

    from models.task_model import Outputs


class MOON(FedAvg):
    """Model-contrastive learning: Li, He and Song 2021 (arXiv 2103.16257), algorithm 1.

    | symbol | argument |
    |---|---|
    | mu | `--mu` (1) |
    | tau, the temperature | `--temperature` (0.5, as in the paper) |
    | z = R_w(x), the representation | `--representation`, as one vector per image |

    To each image's loss comes mu times -log(e^(s_g / tau) / (e^(s_g / tau) + e^(s_p / tau))), s_g and s_p being the
    cosine similarities of the local model's z with the server's model's and with that of the client's model at the end
    of its last turn. The other two models are read in eval mode, so that their statistics stay. In its first turn a
    client has no last model; if it were the server's, as everybody's is at first, the term would be constant, so it is
    left out.

    R_w is the network before its last layer, as the embedding is. On a dense task that is a map of the image's size;
    there the encoder's features are nearer to the paper's vector of a whole image.
    """

    arguments: ClassVar[dict[str, Argument]] = FedAvg.arguments | {
        "mu": Argument(1.0, "weight of the contrastive term", NON_NEGATIVE),
        "temperature": Argument(0.5, "temperature of the contrastive term", POSITIVE),
        "representation": Argument("embedding", "what is contrasted", choices=("embedding", "features")),
    }
    mu: float
    temperature: float
    representation: str

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """Train against the last model, then keep the new one in its place."""
        local.scratch["previous"] = strip_prefix("previous", local.state)
        yield from super().local_update(local)
        local.state |= add_prefix("previous", local.copy())

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The task's loss and the contrastive term."""
        import torch
        import torch.nn.functional as F

        previous = local.scratch["previous"]
        if not previous:
            return super().local_loss(loss, local)
        with torch.no_grad(), in_eval_mode(local.model):
            of_models = [
                self._z(torch.func.functional_call(local.model, dict(tensors), local.batch.inputs))
                for tensors in (local.start, {**local.start, **previous})  # the frozen part is not kept
            ]
        to_server, to_last = (F.cosine_similarity(self._z(local.batch), z) for z in of_models)
        return super().local_loss(loss + self.mu * F.softplus((to_last - to_server) / self.temperature), local)

    def _z(self, of: Outputs | StepView) -> Tensor:
        """The representation (B, D) among a model's outputs, or in what a client sees."""
        return getattr(of, self.representation).flatten(1)
