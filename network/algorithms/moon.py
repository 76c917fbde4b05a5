"""MOON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from models.networks.parts import in_eval_mode
from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, Phase, StepView
from network.engine.state import add_prefix, strip_prefix
from utils.args import POSITIVE
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from models.networks.task_model import Outputs


class MOON(FedAvg):
    """Model-contrastive learning: Li, He and Song 2021 (arXiv 2103.16257), algorithm 1.

    | symbol | argument |
    |---|---|
    | mu | `--mu` (1) |
    | tau, the temperature | `--temperature` (0.5, as in the paper) |
    | z = R_w(x), the representation | `--representation`, as one vector per image |

    Each image's loss gains mu times -log(e^(s_g / tau) / (e^(s_g / tau) + e^(s_p / tau))), where s_g is the cosine
    similarity between the z of the local model and that of the server's model, and s_p between the z of the local model
    and that of the client's model at the end of its previous round. Those two models run in eval mode, so that their
    statistics stay. In its first round, a client has no previous model and no such term: with the server's model in its
    place, the term would be constant.

    R_w is the network before its last layer, which gives the embedding. On a dense task, that is a map of the image's
    size; there, the encoder's vector is closer to the paper's vector of a whole image.
    """

    mu: float = setting(1.0, "weight of the contrastive term", NON_NEGATIVE)
    temperature: float = setting(0.5, "temperature of the contrastive term", POSITIVE)
    representation: str = setting("embedding", "what is contrasted", choices=("embedding", "features"))

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """Train with the previous model as contrast, then keep the new one in its place."""
        local.scratch["previous"] = strip_prefix("previous", local.state)
        yield from super().local_update(local)
        local.state |= add_prefix("previous", local.copy())

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The task's loss plus the contrastive term."""
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
        """The representation (B, D), from a model's outputs or from what a client sees in a step."""
        return of.representation(self.representation).flatten(1)
