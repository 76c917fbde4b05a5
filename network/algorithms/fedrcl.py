"""FedRCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from network.algorithms.by_label import ByKind
from network.engine.client import ClientContext
from utils.args import POSITIVE, number
from utils.arguments import NON_NEGATIVE
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

_NEGATIVES = 2  # per image: the most similar ones


class FedRCL(ByKind):
    """Relaxed contrastive learning: Seo, Kim and Han 2024 (arXiv 2401.04928).

    | symbol | argument |
    |---|---|
    | tau | `--temperature` (0.05) |
    | lambda, the cosine above which images of a label are too alike | `--relaxation_threshold` (0.7) |
    | weights of the two terms | `--contrast_weight` (1), `--relaxation_weight` (1) |
    | z | the encoder's vector, of unit length; the published code adds up five levels of maps |

    Among the other images of a batch, let s+ be an image's smallest cosine with one of its own label, and s_j its two
    largest with images of other labels. Its loss gains -log(e^(s+ / tau) / (e^(s+ / tau) + sum_j e^(s_j / tau))) and,
    where s+ > lambda, so that all images of the label are about to collapse, -log(e^(1 / tau) / (e^(1 / tau) +
    e^(s+ / tau))), which pushes images of the label apart. An image without another of its label, or without a label,
    has neither term.
    """

    temperature: float = setting(0.05, "temperature of the contrast", POSITIVE)
    relaxation_threshold: float = setting(
        0.7, "cosine above which images of one label are pushed apart", number(float, least=-1, most=1)
    )
    contrast_weight: float = setting(1.0, "weight of the contrast between labels", NON_NEGATIVE)
    relaxation_weight: float = setting(1.0, "weight of the term that pushes images of one label apart", NON_NEGATIVE)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The task's loss plus the two terms."""
        import torch
        import torch.nn.functional as F

        z, labels = F.normalize(local.batch.encoded, dim=1), self.labels_at(local.batch.positions)
        cosines, known = z @ z.T, labels >= 0
        alike = (labels[:, None] == labels) & known[:, None]
        own = torch.eye(len(z), dtype=torch.bool, device=z.device)
        nearest = cosines.masked_fill(alike | ~known, -torch.inf).topk(min(_NEGATIVES, len(z)), dim=1).values
        alike = alike & ~own
        paired = alike.any(1)
        # An image without another of its label is paired with itself: its terms, which do not count, then stay finite.
        least = cosines.masked_fill(~torch.where(paired[:, None], alike, own), torch.inf).amin(1)
        scores = torch.cat([least[:, None], nearest], dim=1) / self.temperature
        contrast = torch.logsumexp(scores, dim=1) - scores[:, 0]
        relaxation = F.softplus((least - 1.0) / self.temperature) * (least > self.relaxation_threshold)
        terms = self.contrast_weight * contrast + self.relaxation_weight * relaxation
        return super().local_loss(loss + terms * paired, local)
