"""What a teacher sees, and the basis by which its maps become vectors (equation 8 of FedDifRC, arXiv 2507.06482)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from scipy.linalg import eigh
from torch import Tensor

from datasets.packed import load_packed
from datasets.table import Table
from datasets.task_data import evenly
from datasets.tasks import RGB
from models.teacher.teachers import Teacher
from utils import progress
from utils.files import save_tensors, write_atomically
from utils.filling import BETWEEN_NOTES

SIZE = 512  # numbers of a vector, as many as the embeddings have that it is compared with
# How many training images bases and scales are fitted to, and with how many texts each of them.
_SAMPLE, _TEXTS_OF_SAMPLE = 512, 4
_IMAGES = 8  # that are computed together
_POINTS_PER_COMPONENT = 4  # at least, for a basis that holds beyond the points it was fitted to
_LEAST = 1e-3  # of the first component's deviation: what varies less is noise
_PASSES = "basis", "scale"  # over the sample
Sums: TypeAlias = dict[str, Tensor]


class Photographs:
    """The packed photographs of a table at a teacher's size; those that cannot be read are black, as `blank` all are.

    `rows` are the positions of the photographs that the teacher sees: all, or `few` of them, evenly spaced. `train` and
    `test` are the readable ones among them.
    """

    def __init__(
        self, table: Table, size: int, device: torch.device, blank: bool = False, few: int | None = None
    ) -> None:
        packed, unreadable = load_packed(table, RGB, size)
        self.table, self.few, self._packed, self.device, self._blank = table, few, packed, device, blank
        self.rows = np.arange(len(table)) if few is None else evenly(np.arange(len(table)), few)
        readable = np.setdiff1d(self.rows, unreadable)
        self.train, self.test = (np.intersect1d(part, readable) for part in (table.train, table.test))

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, rows: np.ndarray) -> Tensor:
        """(B, 3, S, S) float32 in [0, 1] on the device."""
        images = torch.from_numpy(self._packed[rows]).to(self.device).float().div_(255.0)
        return images.zero_() if self._blank else images


@dataclass(frozen=True)
class Basis:
    """How a teacher's maps become vectors of d numbers.

    A layer's maps are projected (equation 8) onto the principal components `components[l]` (k, C) of its pixels around
    `means[l]` (C,), one basis for the whole data set. Each component gives one number: the root of its mean square over
    the pixels or, for a teacher without maps, the coordinate itself. The numbers of all layers are then standardised to
    mean 0 and variance 1 by `centre` (2, d) and `scale` (2, d), whose row 0 is for columns with a text and row 1 for an
    image's own.

    The published code makes a new basis for each batch, so that vectors of two batches cannot be compared, and does not
    standardise, so that the largest components alone decide all cosines.
    """

    means: tuple[Tensor, ...]
    components: tuple[Tensor, ...]
    centre: Tensor
    scale: Tensor

    @property
    def sizes(self) -> list[int]:
        """How many numbers of a vector each layer gives."""
        return [len(component) for component in self.components]

    def project(self, layer: int, maps: Tensor) -> Tensor:
        """The coordinates of a layer's pixels: (b, C, H, W) to (b, k, H, W), or (b, C) to (b, k)."""
        shifted = maps.movedim(1, -1) - self.means[layer]
        return (shifted @ self.components[layer].T).movedim(-1, 1)

    def vectors(self, maps: Sequence[Tensor], own: Tensor) -> Tensor:
        """Standardised vectors (b, d) of all layers' maps; `own` (b,) int64 is 1 for an image's own, 0 with a text."""
        pooled = torch.cat([_pooled(self.project(layer, feature_map)) for layer, feature_map in enumerate(maps)], dim=1)
        return (pooled - self.centre[own]) / self.scale[own]

    def save(self, path: Path, inputs: str) -> None:
        """Write it, with `inputs`, which names all that it was made from."""
        tensors = {"centre": self.centre, "scale": self.scale}
        for layer, (mean, components) in enumerate(zip(self.means, self.components, strict=True)):
            tensors |= {f"mean.{layer}": mean, f"components.{layer}": components}
        with write_atomically(path) as temporary:
            plain = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            save_tensors(plain, temporary, {"inputs": inputs})

    @classmethod
    def load(cls, path: Path, inputs: str, device: torch.device) -> Basis | None:
        """The basis in a file; None where there is none, or it was made from something else."""
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("inputs") != inputs:
                    return None
                tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (SafetensorError, OSError):
            return None
        layers = range(sum(name.startswith("mean.") for name in tensors))
        means, components = (tuple(tensors[f"{what}.{i}"] for i in layers) for what in ("mean", "components"))
        return cls(means, components, tensors["centre"], tensors["scale"])


def _pooled(maps: Tensor) -> Tensor:
    return maps if maps.dim() == 2 else maps.square().mean((2, 3)).sqrt()


def shares(channels: Sequence[int], size: int = SIZE) -> list[int]:
    """How many components each layer has: the first half of them, the others equal shares, at most its channels."""
    rest = len(channels) - 1
    sizes = [size // 2, *[size // 2 // rest] * rest] if rest else [size]
    return [min(pair) for pair in zip(sizes, channels, strict=True)]


class Notes:
    """How far the passes that a basis is fitted by have come, in files of a folder, for a later call to go on.

    `inputs` names all that they depend on. Of several processes, which add up the same, one `writes`.
    """

    def __init__(self, folder: Path, inputs: str, writes: bool = True) -> None:
        self.folder, self.inputs, self.writes = folder, inputs, writes

    def path(self, title: str) -> Path:
        """The file of the pass of this title."""
        return self.folder / f"{title}.part.safetensors"

    def write(self, title: str, sums: Sums, done: int) -> None:
        """Note the sums of the first `done` blocks of images."""
        if self.writes:
            with write_atomically(self.path(title)) as temporary:
                plain = {name: tensor.cpu().contiguous() for name, tensor in sums.items()}
                save_tensors(plain, temporary, {"inputs": self.inputs, "done": str(done)})

    def read(self, title: str, device: torch.device) -> tuple[Sums, int]:
        """What was noted, and of how many blocks; nothing where there is nothing, or it is of other inputs."""
        try:
            with safe_open(self.path(title), framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("inputs") != self.inputs:
                    return {}, 0
                sums = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118 - no mapping
                return sums, int(metadata["done"])
        except (SafetensorError, OSError, KeyError, ValueError):
            return {}, 0

    def remove(self) -> None:
        """Forget the passes: the basis is there."""
        for title in _PASSES:
            self.path(title).unlink(missing_ok=True)


def fit(teacher: Teacher, photographs: Photographs, notes: Notes) -> Basis:
    """The basis of a data set, by a fixed sample of its training images, or by all where each has one vector.

    Covariances are added up over pixels in double precision, so that clients could add up theirs; then the sample is
    looked at once more for the vectors' means and standard deviations. `notes` are where both go on after a kill.
    """
    # An image's hundreds of pixels say much of a covariance, its one vector next to nothing.
    rows = photographs.train if teacher.columns == 1 else evenly(photographs.train, _SAMPLE)
    n, last = min(_TEXTS_OF_SAMPLE, teacher.columns - 1), teacher.columns - 1
    # Other texts for each image, so that all have their turn.
    texts = (np.arange(len(rows))[:, None] * n + np.arange(n)) % max(last, 1)
    columns = np.hstack([texts, np.full((len(rows), 1), last)])
    seen = _summed(teacher, photographs, rows, columns, "basis", _moments, notes)
    moments = [(seen[f"sum.{i}"], seen[f"square.{i}"], int(seen[f"n.{i}"])) for i in range(len(seen) // 3)]
    sizes = shares([len(total) for total, _, _ in moments])
    means, components = zip(*(_components(*moment, k) for moment, k in zip(moments, sizes, strict=True)), strict=True)
    d = sum(map(len, components))
    plain = Basis(means, components, *(torch.full((2, d), x, device=means[0].device) for x in (0.0, 1.0)))

    def spread(maps: Sequence[Tensor], own: Tensor) -> Sums:
        """The numbers, sums and sums of squares of vectors, with a text and without."""
        vectors, side = plain.vectors(maps, own).double(), torch.nn.functional.one_hot(own, 2).T.double()
        return {"n": side.sum(1, keepdim=True), "sum": side @ vectors, "square": side @ vectors.square()}

    of = _summed(teacher, photographs, rows, columns, "scale", spread, notes)
    # Columns of a kind that there are none of are like the others.
    count, total, square = (value.where(of["n"] > 0, value.sum(0)) for value in (of["n"], of["sum"], of["square"]))
    centre = total / count
    scale = ((square - count * centre.square()).clamp(min=0) / (count - 1)).sqrt()
    # A number that hardly varies says nothing: it stays about 0.
    scale = scale.nan_to_num(1.0).where(scale > _LEAST * scale.amax(1, keepdim=True), 1.0)
    return Basis(means, components, centre.float(), scale.float())


def _moments(maps: Sequence[Tensor], own: Tensor) -> Sums:
    """The number, sum and products of each layer's pixels."""
    sums: Sums = {}
    for layer, feature_map in enumerate(maps):
        pixels = feature_map.movedim(1, -1).flatten(0, -2).double()
        sums[f"n.{layer}"] = torch.tensor(len(pixels), device=pixels.device)
        sums |= {f"sum.{layer}": pixels.sum(0), f"square.{layer}": pixels.T @ pixels}
    return sums


def _components(total: Tensor, products: Tensor, n: int, k: int) -> tuple[Tensor, Tensor]:
    """The mean (C,) and at most k leading principal components of n pixels with this sum and sum of products.

    There are fewer than k where so few pixels determine fewer (the trailing components of n points are of noise, and
    hardly reach other points), or where their deviation is next to nothing beside the first one's.
    """
    mean = total / n
    covariance = (products / n - torch.outer(mean, mean)).cpu().numpy()
    k = min(k, max(1, n // _POINTS_PER_COMPONENT))
    variances, components = eigh(covariance, subset_by_index=(len(mean) - k, len(mean) - 1))
    components = components.T[::-1][variances[::-1] >= _LEAST**2 * max(variances[-1], 0.0)]
    # An eigenvector has no sign: its largest number is made positive, so that pictures have the same colours.
    components = components * np.sign(np.take_along_axis(components, np.abs(components).argmax(1)[:, None], axis=1))
    return mean.float(), torch.from_numpy(components.astype(np.float32)).to(mean.device)


def _summed(
    teacher: Teacher,
    photographs: Photographs,
    rows: np.ndarray,
    columns: np.ndarray,
    title: str,
    sums_of: Callable[[Sequence[Tensor], Tensor], Sums],
    notes: Notes,
) -> Sums:
    """The sums over all batches of `sums_of` the maps of columns (n, m) of the images at `rows` (n,).

    It also gets which of the maps are their own, (b,) int64. Blocks are noted now and then, and at Ctrl-C.
    """
    state = notes.read(title, photographs.device)
    saved_at = time.monotonic()
    try:
        for at in progress.bar(blocks_of(np.arange(len(rows)))[state[1] :], desc=title, unit="batch"):
            sums, start = dict(state[0]), 0
            own = torch.from_numpy((columns[at].ravel() == teacher.columns - 1).astype(np.int64)).to(photographs.device)
            for maps in teacher.maps(photographs.batch(rows[at]), rows[at], columns[at]):
                new = sums_of(maps, own[start : (start := start + len(maps[0]))])
                sums = {name: sums[name] + value if name in sums else value for name, value in new.items()}
            state = sums, state[1] + 1
            if time.monotonic() - saved_at >= BETWEEN_NOTES:
                notes.write(title, *state)
                saved_at = time.monotonic()
    finally:
        notes.write(title, *state)
    return state[0]


def blocks_of(rows: np.ndarray) -> list[np.ndarray]:
    """The rows that are computed together."""
    return np.split(rows, np.arange(_IMAGES, len(rows), _IMAGES))
