"""What a teacher says of each image of a data set, made once and kept: the targets of FedDifRC (arXiv 2507.06482).

A folder holds `features.npy` (N, P + 1, d) float16, for each image its P columns with a text and last its own;
`positive.npy` (N,), the column that belongs to the image, -1 for none; `basis.safetensors`, by which maps became these
vectors; and `guidance.json`, from what they were made. It is written last, and says that the others are complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import DTypeLike
from torch import Tensor

from datasets.table import Table
from models.teacher.basis import Basis, Notes, Photographs, blocks_of, fit
from models.teacher.teachers import NetworkTeacher, SeenTeacher, Teacher, TeacherSettings
from utils.errors import UserError
from utils.files import locked, read_json, write_array, write_json
from utils.filling import fill, is_filled, merge, remove
from utils.versions import file_digest

STAGE = "extract_diffusion_features.py"
RECORD, FEATURES, POSITIVE, BASIS = "guidance.json", "features.npy", "positive.npy", "basis.safetensors"
SEEN = "seen.npy"  # what a network has seen, until all else is made of it


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

    Raises:
        UserError: if the folder holds something else, or another process is filling it.
    """
    refusal = f"{folder}: another process is filling this folder; wait for it, or give another --guidance_path"
    with locked(folder / ".lock", refusal) if accelerator.is_main_process else nullcontext():
        accelerator.wait_for_everyone()  # nobody begins before the folder is held
        return _made(folder, teacher, settings, photographs, accelerator)


def _made(
    folder: Path, teacher: Teacher, settings: TeacherSettings, photographs: Photographs, accelerator: Accelerator
) -> tuple[np.ndarray, Basis]:
    """`make_guidance` in a folder that is held."""
    table, device, path = photographs.table, accelerator.device, folder / FEATURES
    inputs = hashlib.sha256(f"{teacher.inputs} {table.fingerprint} {photographs.few}".encode()).hexdigest()
    _check_place(folder, settings, inputs)
    basis, filling = Basis.load(folder / BASIS, inputs, device), _Filling(photographs, accelerator, inputs)
    if isinstance(teacher, NetworkTeacher) and (basis is None or not is_filled(path, inputs)):
        teacher = _seen(teacher, folder / SEEN, filling)
    if basis is None:
        notes = Notes(folder, inputs, accelerator.is_main_process)
        basis = fit(teacher, photographs, notes)
        if accelerator.is_main_process:
            basis.save(folder / BASIS, inputs)
            notes.remove()

    def look(rows: np.ndarray) -> np.ndarray:
        """The vectors of the images at these rows."""
        columns = np.tile(np.arange(teacher.columns), (len(rows), 1))
        return vectors_of(teacher, basis, photographs.batch(rows), rows, columns).cpu().numpy()

    filling.fill(path, (teacher.columns, sum(basis.sizes)), np.float16, look, "features")
    if accelerator.is_main_process:
        write_array(folder / POSITIVE, teacher.positive)
        record = {
            "settings": asdict(settings), "texts": teacher.texts, "layers": teacher.layers, "sizes": basis.sizes,
            "table": table.fingerprint, "inputs": inputs, "weights": teacher.weights, "few": photographs.few,
            "sha256": file_digest(path),
        }  # fmt: skip
        write_json(folder / RECORD, record)
        remove(folder / SEEN)
    accelerator.wait_for_everyone()
    return np.load(path, mmap_mode="r", allow_pickle=False), basis


def _seen(network: NetworkTeacher, path: Path, filling: _Filling) -> SeenTeacher:
    """A network that has looked at each image once, as the basis, its scale and the vectors all need what it saw."""

    def look(rows: np.ndarray) -> np.ndarray:
        """What it sees in the images at these rows."""
        [[vectors]] = network.maps(filling.photographs.batch(rows), rows, np.zeros((len(rows), 1), np.int64))
        return vectors.cpu().numpy()

    filling.fill(path, (network.size,), np.float32, look, "images")
    return SeenTeacher(network, np.load(path, mmap_mode="r", allow_pickle=False))


@dataclass(frozen=True)
class _Filling:
    """Arrays with a row for each image of a table, which several processes fill in turns and may be stopped in."""

    photographs: Photographs
    accelerator: Accelerator
    inputs: str

    def fill(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        look: Callable[[np.ndarray], np.ndarray],
        title: str,
    ) -> None:
        """Make the array `path` (N, *shape), of whose rows `look` gives some; those of images not looked at are 0."""
        rank, n_processes = self.accelerator.process_index, self.accelerator.num_processes
        n, rows = len(self.photographs), self.photographs.rows
        of_processes = [np.concatenate([rows[:0], *blocks_of(rows)[r::n_processes]]) for r in range(n_processes)]
        own = of_processes[rank]

        def work(array: np.memmap, at: np.ndarray) -> None:
            """Fill rows of this process's array."""
            array[at] = look(own[at])

        parts = [path.with_name(f"{path.stem}_{r}of{n_processes}.npy") for r in range(n_processes)]
        if len(own) == n:
            parts = [path]
        if not is_filled(path, self.inputs):
            fill(parts[rank], (len(own), *shape), dtype, self.inputs, blocks_of(np.arange(len(own))), work, title)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process and parts != [path]:
                merge(path, (n, *shape), dtype, self.inputs, dict(zip(parts, of_processes, strict=True)))
        self.accelerator.wait_for_everyone()


def _check_place(folder: Path, settings: TeacherSettings, inputs: str) -> None:
    """UserError where the folder holds what another teacher, or this one of other images, has made."""
    if not (folder / RECORD).is_file() or (record := read_json(folder / RECORD, STAGE)).get("inputs") == inputs:
        return
    before, now = record.get("settings", {}), json.loads(json.dumps(asdict(settings)))
    others = [f"--{name} {before.get(name)}" for name, value in now.items() if before.get(name) != value]
    raise UserError(
        f"{folder} holds features that were made with {', '.join(others) or 'other images or weights'}; "
        "give another --guidance_path, or remove that folder"
    )


@dataclass(frozen=True)
class Guidance:
    """What a folder holds; `features` (N, P + 1, d) is memory-mapped, `positive` (N,) int64."""

    folder: Path
    record: dict[str, Any]
    features: np.ndarray
    positive: np.ndarray

    @property
    def n_texts(self) -> int:
        """P, how many columns have a text."""
        return self.features.shape[1] - 1

    @cached_property
    def settings(self) -> TeacherSettings:
        """Of the teacher."""
        made_with = self.record["settings"]
        return TeacherSettings(**{entry.name: made_with[entry.name] for entry in fields(TeacherSettings)})

    def leading(self, size: int) -> np.ndarray:
        """Which numbers of a vector are compared with an embedding of `size` numbers: of each layer the first ones.

        All, where it has no more than that.
        """
        sizes, d = self.record["sizes"], sum(self.record["sizes"])
        if size >= d:
            return np.arange(d)
        starts = np.cumsum([0, *sizes])
        n_kept = np.diff(np.round(starts * (size / d)).astype(np.int64))
        return np.concatenate([start + np.arange(n) for start, n in zip(starts, n_kept, strict=False)])


def read_guidance(folder: Path, table: Table, shortened: bool) -> Guidance:
    """What a folder holds for the images of this table; UserError where it is missing, broken or of other images."""
    record = read_json(folder / RECORD, STAGE)
    try:
        features, positive = (np.load(folder / n, mmap_mode="c", allow_pickle=False) for n in (FEATURES, POSITIVE))
        guidance = Guidance(folder, record, features, np.asarray(positive, np.int64))
        fits = features.shape == (len(positive), features.shape[1], sum(record["sizes"]))
        few, made_for = record["few"], record["table"]
        if record["sha256"] != file_digest(folder / FEATURES):
            raise ValueError(f"{FEATURES} is not as it was written")
        if not fits or not isinstance(guidance.settings.features, str):
            raise ValueError("its files do not belong together")
    except (OSError, ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"{folder / RECORD}: not readable guidance ({error}); run {STAGE} again") from error
    if made_for != table.fingerprint:
        raise UserError(f"{folder}: made for other images than those of {table.data_path}; run {STAGE} again")
    if few is not None and not shortened:
        raise UserError(f"{folder} was made with --test_mode True from a few images; run {STAGE} again")
    return guidance
