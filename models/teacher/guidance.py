"""What a teacher says of each image of a data set, made once and kept: the targets of FedDifRC (arXiv 2507.06482).

A folder holds `features.npy` (N, P + 1, d) float16, for each image its P columns with a text and last its own;
`positive.npy` (N,), the column that belongs to the image, -1 for none; `basis.safetensors`, by which maps became these
vectors; and `guidance.json`, from what they were made. It is written last, and says that the others are complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors import SafetensorError, safe_open
from scipy.linalg import eigh
from torch import Tensor

from datasets.packed import load_packed
from datasets.table import Table
from datasets.task_data import evenly
from datasets.tasks import RGB
from models.teacher.teachers import Teacher, TeacherSettings
from utils import progress
from utils.errors import UserError
from utils.files import new_array, read_json, save_tensors, write_array, write_atomically, write_json
from utils.filling import fill
from utils.versions import file_digest

SIZE = 512  # numbers of a vector, as many as the embeddings have that it is compared with
STAGE = "extract_diffusion_features.py"
ABOUT, FEATURES, POSITIVE, BASIS = "guidance.json", "features.npy", "positive.npy", "basis.safetensors"
# How many training images bases and scales are fitted to, and with how many texts each of them.
_SAMPLE, _TEXTS_OF_SAMPLE = 512, 4
_IMAGES = 8  # that are computed together


class Photographs:
    """The packed photographs of a table at a teacher's size; those that cannot be read are black, as `blank` all are.

    `rows` are the positions of the photographs that the teacher sees: all, or `few` of them, evenly spaced. `train` and
    `test` are the readable ones among them.
    """

    def __init__(
        self, table: Table, size: int, device: torch.device, blank: bool = False, few: int | None = None
    ) -> None:
        packed, unreadable = load_packed(table, RGB, size)
        self.table, self.few, self._packed, self._device, self._blank = table, few, packed, device, blank
        self.rows = np.arange(len(table)) if few is None else evenly(np.arange(len(table)), few)
        readable = np.setdiff1d(self.rows, unreadable)
        self.train, self.test = (np.intersect1d(part, readable) for part in (table.train, table.test))

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, rows: np.ndarray) -> Tensor:
        """(B, 3, S, S) float32 in [0, 1] on the device."""
        images = torch.from_numpy(self._packed[rows]).to(self._device).float().div_(255.0)
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
        return [len(each) for each in self.components]

    def project(self, layer: int, maps: Tensor) -> Tensor:
        """The coordinates of a layer's pixels: (b, C, H, W) to (b, k, H, W), or (b, C) to (b, k)."""
        shifted = maps.movedim(1, -1) - self.means[layer]
        return (shifted @ self.components[layer].T).movedim(-1, 1)

    def vectors(self, maps: Sequence[Tensor], own: Tensor) -> Tensor:
        """Standardised vectors (b, d) of all layers' maps; `own` (b,) int64 is 1 for an image's own, 0 with a text."""
        pooled = torch.cat([_pooled(self.project(layer, each)) for layer, each in enumerate(maps)], dim=1)
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
    wanted = [size // 2, *[size // 2 // rest] * rest] if rest else [size]
    return [min(pair) for pair in zip(wanted, channels, strict=True)]


def fit(teacher: Teacher, photographs: Photographs) -> Basis:
    """The basis of a data set, by a fixed sample of its training images.

    Covariances are added up over pixels in double precision, so that clients could add up theirs; then the sample is
    looked at once more for the vectors' means and standard deviations.
    """
    rows = evenly(photographs.train, _SAMPLE)
    n, last = min(_TEXTS_OF_SAMPLE, teacher.columns - 1), teacher.columns - 1
    # Other texts for each image, so that all have their turn.
    texts = (np.arange(len(rows))[:, None] * n + np.arange(n)) % max(last, 1)
    columns = np.hstack([texts, np.full((len(rows), 1), last)])
    moments: list[tuple[Tensor, Tensor, int]] = []
    for maps, _ in _passes(teacher, photographs, rows, columns, "basis"):
        seen = [each.movedim(1, -1).flatten(0, -2).double() for each in maps]
        new = [(pixels.sum(0), pixels.T @ pixels, len(pixels)) for pixels in seen]
        moments = [(a + d, b + e, c + f) for (a, b, c), (d, e, f) in zip(moments, new, strict=True)] if moments else new
    sizes = shares([len(total) for total, _, _ in moments])
    means, components = zip(*(_components(*moment, k) for moment, k in zip(moments, sizes, strict=True)), strict=True)
    plain = Basis(means, components, *(torch.full((2, sum(sizes)), x, device=means[0].device) for x in (0.0, 1.0)))
    parts, of = [], []
    for maps, own in _passes(teacher, photographs, rows, columns, "scale"):
        parts.append(plain.vectors(maps, own).double())
        of.append(own)
    vectors, own = torch.cat(parts), torch.cat(of)
    groups = [vectors[own == which] if (own == which).any() else vectors for which in (0, 1)]
    centre, scale = (torch.stack([getattr(g, what)(0) for g in groups]) for what in ("mean", "std"))
    # A component that hardly varies says nothing: it stays about 0.
    scale = scale.nan_to_num(1.0).where(scale > 1e-6 * scale.amax(1, keepdim=True), 1.0)
    return Basis(means, components, centre.float(), scale.float())


def _components(total: Tensor, products: Tensor, n: int, k: int) -> tuple[Tensor, Tensor]:
    """The mean (C,) and the k leading principal components (k, C) of n pixels with this sum and sum of products."""
    mean = total / n
    covariance = (products / n - torch.outer(mean, mean)).cpu().numpy()
    found = eigh(covariance, subset_by_index=(len(mean) - k, len(mean) - 1))[1].T[::-1]
    # An eigenvector has no sign: its largest number is made positive, so that pictures have the same colours.
    found = found * np.sign(np.take_along_axis(found, np.abs(found).argmax(1)[:, None], axis=1))
    return mean.float(), torch.from_numpy(found.astype(np.float32)).to(mean.device)


def _passes(
    teacher: Teacher, photographs: Photographs, rows: np.ndarray, columns: np.ndarray, title: str
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Batch after batch the maps of these columns (n, m) of the images at `rows`, and which of them are their own."""
    for at in progress.bar(_blocks(np.arange(len(rows))), desc=title, unit="batch"):
        own, start = columns[at].ravel() == teacher.columns - 1, 0
        for maps in teacher.maps(photographs.batch(rows[at]), rows[at], columns[at]):
            of_maps = own[start : (start := start + len(maps[0]))]
            yield maps, torch.from_numpy(of_maps.astype(np.int64)).to(maps[0].device)


def vectors_of(
    teacher: Teacher,
    basis: Basis,
    images: Tensor,
    rows: np.ndarray,
    columns: np.ndarray,
    condition: Tensor | None = None,
) -> Tensor:
    """The vectors (B, n, d) of some columns (B, n) of images; arguments as for `Teacher.maps`."""
    own = torch.from_numpy((columns == teacher.columns - 1).ravel().astype(np.int64)).to(images.device)
    parts, start = [], 0
    for maps in teacher.maps(images, rows, columns, condition):
        parts.append(basis.vectors(maps, own[start : (start := start + len(maps[0]))]))
    return torch.cat(parts).unflatten(0, columns.shape)


def make_guidance(
    folder: Path, teacher: Teacher, settings: TeacherSettings, photographs: Photographs, accelerator: Accelerator
) -> tuple[np.ndarray, Basis]:
    """Fill a folder with the vectors of all images, or go on where that was stopped; returns them and the basis.

    Several processes take turns with the blocks of images; each finds the same basis, and so the same numbers come out
    however many there are. Which images stand beside each other in a block does not depend on it either.

    Args:
        folder: where the files go.
        teacher: who makes them.
        settings: of the teacher, to be noted.
        photographs: what it sees; the vectors of images that it does not look at are 0.
        accelerator: the processes.
    """
    table, rank, n_processes = photographs.table, accelerator.process_index, accelerator.num_processes
    inputs = hashlib.sha256(f"{teacher.inputs} {table.fingerprint} {photographs.few}".encode()).hexdigest()
    device = accelerator.device
    _check_place(folder, settings, inputs)
    if (basis := Basis.load(folder / BASIS, inputs, device)) is None:
        basis = fit(teacher, photographs)
        if accelerator.is_main_process:
            basis.save(folder / BASIS, inputs)
    rows = photographs.rows
    of_processes = [np.concatenate([rows[:0], *_blocks(rows)[r::n_processes]]) for r in range(n_processes)]
    own = of_processes[rank]

    def look(array: np.memmap, at: np.ndarray) -> None:
        """Fill these rows of the array with the vectors of their images."""
        columns = np.tile(np.arange(teacher.columns), (len(at), 1))
        array[at] = vectors_of(teacher, basis, photographs.batch(own[at]), own[at], columns).cpu().numpy()

    shape, path = (teacher.columns, sum(basis.sizes)), folder / FEATURES
    parts = [path.with_name(f"{path.stem}_{r}of{n_processes}.npy") for r in range(n_processes)]
    if len(own) == len(table):
        parts = [path]
    fill(parts[rank], (len(own), *shape), np.float16, inputs, _blocks(np.arange(len(own))), look, "features")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        if parts != [path]:
            _merge(path, (len(table), *shape), dict(zip(parts, of_processes, strict=True)))
        write_array(folder / POSITIVE, teacher.positive)
        about = {
            "settings": asdict(settings), "texts": teacher.texts, "layers": teacher.layers, "sizes": basis.sizes,
            "table": table.fingerprint, "inputs": inputs, "weights": teacher.weights, "few": photographs.few,
            "sha256": file_digest(path),
        }  # fmt: skip
        write_json(folder / ABOUT, about)
    accelerator.wait_for_everyone()
    return np.load(path, mmap_mode="r", allow_pickle=False), basis


def _check_place(folder: Path, settings: TeacherSettings, inputs: str) -> None:
    """UserError where the folder holds what another teacher, or this one of other images, has made."""
    if not (folder / ABOUT).is_file() or (about := read_json(folder / ABOUT, STAGE)).get("inputs") == inputs:
        return
    before, now = about.get("settings", {}), json.loads(json.dumps(asdict(settings)))
    others = [f"--{name} {before.get(name)}" for name, value in now.items() if before.get(name) != value]
    raise UserError(
        f"{folder} holds features that were made with {', '.join(others) or 'other images or weights'}; "
        "give another --guidance_path, or remove that folder"
    )


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, np.arange(_IMAGES, len(rows), _IMAGES))


def _merge(path: Path, shape: tuple[int, ...], parts: Mapping[Path, np.ndarray]) -> None:
    """Put the rows that several files have into one array, and remove these files."""
    with write_atomically(path) as temporary:
        whole = new_array(temporary, shape, np.float16)
        for part, rows in parts.items():
            whole[rows] = np.load(part, mmap_mode="r", allow_pickle=False)
        whole.flush()
    for part in parts:
        part.unlink()
        part.with_suffix(".filled.json").unlink()


@dataclass(frozen=True)
class Guidance:
    """What a folder holds; `features` (N, P + 1, d) is memory-mapped, `positive` (N,) int64."""

    folder: Path
    about: dict[str, Any]
    features: np.ndarray
    positive: np.ndarray

    @property
    def n_texts(self) -> int:
        """P, how many columns have a text."""
        return self.features.shape[1] - 1

    @cached_property
    def settings(self) -> TeacherSettings:
        """Of the teacher."""
        return TeacherSettings.of(self.about["settings"])

    def leading(self, size: int) -> np.ndarray:
        """Which numbers of a vector are compared with an embedding of `size` numbers: of each layer the first ones.

        All, where it has no more than that.
        """
        sizes, d = self.about["sizes"], sum(self.about["sizes"])
        if size >= d:
            return np.arange(d)
        starts = np.cumsum([0, *sizes])
        kept = np.diff(np.round(starts * (size / d)).astype(np.int64))
        return np.concatenate([start + np.arange(n) for start, n in zip(starts, kept, strict=False)])


def read_guidance(folder: Path, table: Table, shortened: bool) -> Guidance:
    """What a folder holds for the images of this table; UserError where it is missing, broken or of other images."""
    about = read_json(folder / ABOUT, STAGE)
    try:
        features, positive = (np.load(folder / n, mmap_mode="c", allow_pickle=False) for n in (FEATURES, POSITIVE))
        guidance = Guidance(folder, about, features, np.asarray(positive, np.int64))
        fits = features.shape == (len(positive), features.shape[1], sum(about["sizes"]))
        few, made_for = about["few"], about["table"]
        if not fits or not isinstance(guidance.settings.features, str):
            raise ValueError("its files do not belong together")
    except (OSError, ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"{folder / ABOUT}: not readable guidance ({error}); run {STAGE} again") from error
    if made_for != table.fingerprint:
        raise UserError(f"{folder}: made for other images than those of {table.data_path}; run {STAGE} again")
    if few is not None and not shortened:
        raise UserError(f"{folder} was made with --test_mode True from a few images; run {STAGE} again")
    return guidance
