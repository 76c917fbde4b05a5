"""A task's images and targets in memory, given out in batches that are decoded where they are used."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from datasets.packed import load_packed, packed_version
from datasets.selection import Selection, read_selection
from datasets.tasks import RGB, Task
from utils.errors import UserError
from utils.runs import data_path_or_default


@dataclass(frozen=True)
class Batch:
    """Images (B, 3, S, S) float32 in [0, 1], the task's decoded target, and which of its pixels count (bool)."""

    images: Tensor
    target: Tensor
    valid: Tensor


class TaskData:
    """The packed images and targets of one task.

    `train` and `test` are the positions, in the order of the selection, of the readable images of either part;
    `readable` marks them all; `labels` are the scene classes, on `device`. `device` is where batches go; the packed
    arrays lie there too when they fit, and in memory-mapped files otherwise.
    """

    def __init__(self, selection: Selection, task: Task, image_size: int, device: torch.device) -> None:
        self.task, self.selection, self.device, self.image_size = task, selection, device, image_size
        images, left_out = load_packed(selection.data_path, selection.views, RGB, image_size)
        self._images = torch.from_numpy(images)
        if task.encoding is None:
            self._stored = torch.from_numpy(selection.labels)
        else:
            stored, more = load_packed(selection.data_path, selection.views, task.encoding, image_size)
            left_out = left_out + more
            self._stored = as_tensor(stored)
        self.readable = np.ones(len(selection), bool)
        self.readable[left_out] = False
        self.train = selection.train[self.readable[selection.train]]
        self.test = selection.test[self.readable[selection.test]]
        if not len(self.train) or not len(self.test):
            raise UserError(f"{task.name}: {len(self.train)} training and {len(self.test)} held-out images; need both")
        self.labels = torch.from_numpy(selection.labels).to(device)
        size = self._images.nbytes + self._stored.nbytes
        if device.type != "cpu" and size < _free_bytes(device) // 2:
            self._images, self._stored = self._images.to(device), self._stored.to(device)

    @classmethod
    def open(cls, args: Namespace, task: Task, image_size: int, accelerator: Accelerator) -> TaskData:
        """The data of a script's arguments; fills in `args.data_path` where it was not given."""
        args.data_path = data_path_or_default(args.data_path, args.result_path)
        selection = read_selection(args.data_path)
        with accelerator.main_process_first():  # the other processes find the images packed
            return cls(selection, task, image_size, accelerator.device)

    def __len__(self) -> int:
        return len(self.selection)

    @property
    def version(self) -> str | None:
        """See `data_version`."""
        return data_version(self.selection, self.task, self.image_size)

    def batch(self, positions: Tensor) -> Batch:
        """The images at `positions` (int64, on any device), decoded on `self.device`."""
        return decode_batch(self.task, self._take(self._images, positions), self._take(self._stored, positions))

    def in_physical_units(self, positions: Tensor, *maps: Tensor) -> tuple[Tensor, ...]:
        """Targets or outputs of the images at `positions` in the task's `unit`; as they are where it has none."""
        if self.task.physical is None:
            return maps
        values, valid = _values(self.task, self._take(self._stored, positions))
        return tuple(self.task.physical(each, values, valid) for each in maps)

    def _take(self, array: Tensor, positions: Tensor) -> Tensor:
        return array[positions.to(array.device)].to(self.device, non_blocking=True)


def data_version(selection: Selection, task: Task, image_size: int) -> str | None:
    """SHA-256 over the selection and the packed images and targets of a task; None where they are not packed yet."""
    encodings = [RGB] if task.encoding is None else [RGB, task.encoding]
    packed = [packed_version(selection.data_path, selection.views, each, image_size) for each in encodings]
    if None in packed:
        return None
    return hashlib.sha256(" ".join(map(str, [selection.fingerprint, *packed])).encode()).hexdigest()


def as_tensor(packed: np.ndarray) -> Tensor:
    """A packed array as a tensor that shares its memory; 16-bit values as signed ones, which PyTorch can index."""
    return torch.from_numpy(packed.view(np.int16) if packed.dtype == np.uint16 else packed)


def decode_batch(task: Task, images: Tensor, stored: Tensor) -> Batch:
    """A batch from packed images (B, 3, S, S) uint8 and packed values of the task, on their device."""
    images = images.float().div_(255.0).contiguous(memory_format=torch.channels_last)
    return Batch(images, *task.decode(*_values(task, stored)))


def _values(task: Task, stored: Tensor) -> tuple[Tensor, Tensor]:
    """The values of the domain's own channels, and which pixels (B, 1, S, S) hold a surface."""
    encoding = task.encoding
    if encoding is None:
        return stored, torch.ones_like(stored, dtype=torch.bool)
    if stored.dtype == torch.int16:
        stored = stored.to(torch.int32) & 0xFFFF
    if encoding.mask is not None:
        return stored[:, :-1], stored[:, -1:] > 0
    if encoding.nothing is None:
        return stored, torch.ones_like(stored[:, :1], dtype=torch.bool)
    mark = torch.tensor(encoding.nothing, dtype=stored.dtype, device=stored.device).view(1, -1, 1, 1)
    return stored, (stored != mark).any(dim=1, keepdim=True)


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
