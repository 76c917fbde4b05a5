"""The vectors of a teacher, a diffusion model or any other network, as targets of clients' embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.teacher.basis import Basis, Photographs
from models.teacher.guidance import BASIS, STAGE, read_guidance, vectors_of
from models.teacher.teachers import DIFFUSION, DiffusionTeacher
from utils.errors import UserError
from utils.streams import generator

if TYPE_CHECKING:
    from datasets.task_data import TaskData

_PASSES, _EMBEDDED = 32, 64  # batch sizes: passes of the denoiser, and images that are embedded


class Guide:
    """A teacher's vectors of each image: the image's own, those to choose among, and which of these is right.

    Args:
        folder: where `extract_diffusion_features.py` wrote them.
        data: the task's images, which must be those that the teacher has seen (UserError otherwise).
        clients: each client's images.
        shuffle: as a control, give each of the clients' images the vectors and the right choice of another, in an order
            drawn by this seed; None for their own.
    """

    def __init__(self, folder: Path, data: TaskData, clients: Sequence[np.ndarray], shuffle: int | None) -> None:
        self.guidance, self.data = read_guidance(folder, data.table, data.shortened), data
        self._assigned = np.sort(np.concatenate(list(clients)))
        self._source = np.arange(len(data.table))
        if shuffle is not None:
            self._source[self._assigned] = generator("shuffle", shuffle).permutation(self._assigned)
        self._source_on_device = torch.from_numpy(self._source).to(data.device)
        self._vectors = _on_device(self.guidance.features, data.device)
        # Cached, because a step must not wait until they are copied to the device.
        self._leading = cache(lambda size, device: torch.from_numpy(self.guidance.leading(size)).to(device))

    def contrast(self, among: str, groups: np.ndarray) -> None:
        """Set the vectors to choose among; UserError where there are none.

        "texts" are the image's vectors, one for each text. "classes" and "groups" are the means of the own vectors of
        each class's or group's images (`groups` (N,), -1 for none) over all clients, who would send sums and counts.
        These need no texts, so any network can be the teacher.
        """
        labels = self.data.labels.cpu().numpy()
        chosen = {"texts": self.guidance.positive, "classes": labels, "groups": groups}[among]
        if (chosen[self._assigned] < 0).all():
            raise UserError(
                f"--contrast {among}: {self.guidance.folder} or the images have no {among} to choose among; "
                "give another --contrast, or --tdcl_weight 0"
            )
        self._right = torch.from_numpy(chosen.astype(np.int64)).to(self.data.device)
        self._means = None if among == "texts" else self._means_of(chosen).to(self.data.device)

    def own(self, positions: Tensor) -> Tensor:
        """The images' own vectors (B, d)."""
        return self._at(positions)[:, -1]

    def choices(self, positions: Tensor) -> Tensor:
        """The vectors to choose among, (B, P, d), or (P, d) where they are the same for all."""
        return self._at(positions)[:, :-1] if self._means is None else self._means

    def right(self, positions: Tensor) -> Tensor:
        """The index of the right choice, (B,) int64, -1 where none is right."""
        return self._right[self._source_on_device[positions]]

    def sources(self, images: np.ndarray) -> np.ndarray:
        """The images whose vectors these images have: themselves, unless they are shuffled."""
        return self._source[images]

    def compared(self, z: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Representations z (B, F) and vectors (…, d), brought to the same length and then normalised."""
        cut = vectors.index_select(-1, self._leading(z.shape[1], vectors.device))
        cut = cut.to(z.device, z.dtype)
        if z.shape[1] > cut.shape[-1]:
            z = F.adaptive_avg_pool1d(z[:, None], cut.shape[-1])[:, 0]
        return F.normalize(z, dim=-1), F.normalize(cut, dim=-1)

    def _at(self, positions: Tensor) -> Tensor:
        rows = self._source_on_device[positions]
        return self._vectors.index_select(0, rows.to(self._vectors.device))

    def _means_of(self, ids: np.ndarray) -> Tensor:
        """The mean vector (K, d) of the clients' images of each id; 0 for an id that none of them has."""
        used = self._assigned[ids[self._assigned] >= 0]
        sums = np.zeros((int(ids.max()) + 1, self.guidance.features.shape[2]))
        np.add.at(sums, ids[used], self.guidance.features[used, -1].astype(np.float64))
        counts = np.bincount(ids[used], minlength=len(sums))[:, None]
        return torch.from_numpy((sums / np.maximum(counts, 1)).astype(np.float32))


class Condition:
    """A guide's teacher, asked again with a client's embeddings as its condition (section 3.3 of FedDifRC).

    The paper does not say how an embedding enters a text. Here, a fixed random matrix with orthonormal rows or columns
    (nothing could train it) maps it to the width of a token. The result is scaled to the tokens' mean length and added
    to every token. The published code has a function that adds an embedding to every token, but never calls it.
    """

    scale = 1.0  # of the condition

    def __init__(self, guide: Guide) -> None:
        guidance, data = guide.guidance, guide.data
        basis = Basis.load(guidance.folder / BASIS, guidance.record["inputs"], data.device)
        if guidance.settings.features != DIFFUSION or basis is None:
            raise UserError(
                f"--condition round: {guidance.folder} has no vectors of a diffusion model with their basis; "
                f"run {STAGE} again, or give --condition none"
            )
        self._guide, self._basis = guide, basis
        self._teacher = DiffusionTeacher(guidance.settings, data.table, data.device, _PASSES)
        self._photographs = Photographs(
            data.table, guidance.settings.diffusion_size, data.device, guidance.settings.blank_images
        )

    @torch.no_grad()
    def request(self, model: nn.Module, start: Mapping[str, Tensor], images: np.ndarray) -> dict[str, Tensor]:
        """The teacher's vectors of a client's images, given their embeddings by the model with the tensors `start`.

        For `answers`: `images` (n,), in increasing order, and `vectors` (n, P, d) float16.
        """
        images = np.unique(images)
        sources, parts = self._guide.sources(images), []
        columns = np.arange(self._guide.guidance.n_texts)
        model.eval()
        for at in np.array_split(sources, -(-len(sources) // _EMBEDDED)):
            batch = self._guide.data.batch(torch.from_numpy(at).to(self._guide.data.device))
            encoded = torch.func.functional_call(model, dict(start), batch.images).encoded
            choices, seen = np.tile(columns, (len(at), 1)), self._photographs.batch(at)
            parts.append(vectors_of(self._teacher, self._basis, seen, at, choices, self._lifted(encoded)).half())
        model.train()
        return {"images": torch.from_numpy(images).to(parts[0].device), "vectors": torch.cat(parts)}

    def answers(self, positions: Tensor, request: dict[str, Tensor]) -> Tensor:
        """The vectors to choose among (B, P, d) of some of the client's images."""
        return request["vectors"][torch.searchsorted(request["images"], positions)]

    def _lifted(self, encoded: Tensor) -> Tensor:
        """The encoder's vectors (B, F) as conditions (B, width)."""
        width, size = self._teacher.width, encoded.shape[1]
        draw = generator("lift", self._guide.guidance.settings.rand_seed, size).standard_normal((max(width, size),) * 2)
        lift = torch.from_numpy(np.linalg.qr(draw)[0][:size, :width].astype(np.float32)).to(encoded)
        return self.scale * self._teacher.token_norm * F.normalize(encoded @ lift, dim=1)


def _on_device(features: np.ndarray, device: torch.device) -> Tensor:
    """The vectors on the device where clients train, if they fit into a quarter of its free memory; else on the CPU."""
    if device.type == "cuda" and features.nbytes < torch.cuda.mem_get_info(device)[0] // 4:
        return torch.from_numpy(np.array(features)).to(device)
    return torch.from_numpy(features)
