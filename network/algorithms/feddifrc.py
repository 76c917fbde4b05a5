"""FedDifRC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.embedding.features import shrunk
from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, Phase
from network.partition.client_images import ClientImages
from network.settings import LocalSettings, SimulationSettings
from utils.args import POSITIVE
from utils.arguments import NON_NEGATIVE
from utils.errors import UserError
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from datasets.table import Table
    from datasets.task_data import TaskData
    from models.teacher.guide import Condition


class FedDifRC(FedAvg):
    """Guidance by a frozen teacher's vectors of each image: Wang, Li et al. 2025 (arXiv 2507.06482).

    | symbol | argument |
    |---|---|
    | z = h(x) | the encoder's vector (B, F) or, by `--representation embedding`, a map pooled to 8 by 8 cells |
    | F, right and wrong; H | vectors in `--guidance_path`, see `models/teacher/guide.py`; `--contrast` says what F is |
    | L_TDCL, equation 11 | `--tdcl_weight` (1); tau is `--contrast_temperature` (0.06, as in the paper) |
    | L_NDCR, equation 12 | `--ndcr_weight` (1) |
    | L_CE, equation 13 | `--task_weight` (1); 0 is the self-supervised mode of section 4.3 |
    | the condition on z | `--condition`: none, or in each round by the model that the client starts from |

    An image's loss gains two terms: log(1 + sum_j e^((s_j - s) / tau)), with s = cos(z, F) / U for the right F and s_j
    for each wrong one, and |z/|z| - H/|H||^2. U is the mean distance between z and its right F, both of unit length,
    over the batch (in the paper, over the client's images); gradients do not flow through it. With unit vectors,
    equation 12 has a scale on which a weight of 1 is sensible, and U does not make all similarities alike. An encoder
    that ends in a ReLU reaches a cosine of at most 0.71, since the teacher's vectors have mean 0. If a teacher's vector
    is longer than z, it is cut to the leading numbers of each layer; if z is longer, its neighbouring numbers are
    averaged. An image without a right F does not have the first term.

    The published code differs: in place of equation 11, it has one number per batch, in which most images do not meet
    their own wrong vectors; in place of equation 12, the divergence of two softmaxes of unit vectors, which is nearly
    0; and it has no condition. Its temperature (0.04) belongs to these terms.
    """

    guidance_path: Path = setting(Path("guidance"), "folder of the teacher's vectors", Path)
    guidance: str = setting(
        "own", "shuffled: as a control, each image has the vectors of another", choices=("own", "shuffled")
    )
    contrast: str = setting(
        "texts",
        "what an image is contrasted with: the teacher's vectors for other texts, or the "
        "mean vectors of other classes or groups",
        choices=("texts", "classes", "groups"),
    )
    representation: str = setting(
        "features", "what is guided: the encoder's vector, or the pooled embedding", choices=("features", "embedding")
    )
    condition: str = setting("none", "round: the teacher gets clients' embeddings", choices=("none", "round"))
    tdcl_weight: float = setting(1.0, "weight of the contrast", NON_NEGATIVE)
    ndcr_weight: float = setting(1.0, "weight of the distance to the image's own vector", NON_NEGATIVE)
    task_weight: float = setting(1.0, "weight of the task's loss; 0: self-supervised", NON_NEGATIVE)
    contrast_temperature: float = setting(0.06, "temperature of the contrast", POSITIVE)

    def __post_init__(self) -> None:
        if self.condition == "round" and self.contrast != "texts":
            raise UserError("--condition round needs texts, which it puts to the teacher; give --contrast texts")
        self._condition: Condition | None = None

    def bind(self, local_settings: LocalSettings, settings: SimulationSettings) -> None:
        """Take the seed by which vectors are shuffled."""
        self._shuffle = settings.rand_seed if self.guidance == "shuffled" else None

    def unprotected(self) -> str:
        """The teacher's vectors are centred, and their basis and scale fitted, over images of all clients."""
        if self.reads():
            return "the basis of FedDifRC's vectors is fitted to the images of all clients"
        return super().unprotected()

    def reads(self) -> list[Path]:
        """The file that says how the teacher's vectors were made."""
        from models.teacher.guidance import RECORD

        return [self.guidance_path / RECORD] if self.tdcl_weight or self.ndcr_weight else []

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """The teacher's vectors must be there, and of these images."""
        if self.reads():
            from models.teacher.guidance import read_guidance

            read_guidance(self.guidance_path, table, shortened)

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Read the teacher's vectors, and load the teacher itself if clients ask it again."""
        if not (self.tdcl_weight or self.ndcr_weight):
            return
        from models.teacher.guide import Condition, Guide

        self._guide = Guide(self.guidance_path, data, clients, self._shuffle)
        if self.tdcl_weight:
            self._guide.contrast(self.contrast, groups)
            self._condition = Condition(self._guide) if self.condition == "round" else None

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """With `--condition round`, ask the teacher about the client's images as they are embedded now; then train."""
        if self._condition:
            local.scratch["request"] = self._condition.request(local.model, local.start, local.client_round.images)
        yield from super().local_update(local)

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        """The weighted sum of the task's loss and the two terms."""
        loss, at = self.task_weight * loss, local.batch.positions
        if self.ndcr_weight:
            z, own = self._guide.compared(self._z(local), self._guide.own(at))
            loss = loss + self.ndcr_weight * restriction(z, own)
        if self.tdcl_weight:
            answers = (
                self._condition.answers(at, local.scratch["request"]) if self._condition else self._guide.choices(at)
            )
            z, choices = self._guide.compared(self._z(local), answers)
            loss = loss + self.tdcl_weight * contrast(z, choices, self._guide.right(at), self.contrast_temperature)
        return super().local_loss(loss, local)

    def _z(self, local: ClientContext) -> Tensor:
        """The representation (B, F) of a batch; maps are pooled and flattened."""
        return shrunk(local.batch.representation(self.representation))


def contrast(z: Tensor, choices: Tensor, right: Tensor, temperature: float) -> Tensor:
    """TDCL per image (B,), from unit vectors (B, d), choices (B, P, d) or (P, d), and indices of the right ones (B,).

    It is 0 where the index is -1.
    """
    import torch.nn.functional as F

    cosines = (z[:, None] * choices).sum(-1)
    counts = right >= 0
    to_right = cosines.detach().gather(1, right.clamp(min=0)[:, None])[:, 0]
    distances = (2.0 - 2.0 * to_right).clamp(min=0.0).sqrt() * counts
    scale = (distances.sum() / counts.sum().clamp(min=1)).clamp(min=1e-6)
    return F.cross_entropy(cosines / (scale * temperature), right, ignore_index=-1, reduction="none")


def restriction(z: Tensor, own: Tensor) -> Tensor:
    """NDCR per image (B,), from unit vectors (B, d): 2 - 2 cos."""
    return (z - own).square().sum(1)
