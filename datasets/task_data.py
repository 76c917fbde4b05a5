"""A task's images and targets in memory, given out in batches that are decoded where they are used."""

from __future__ import annotations

import copy
import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from datasets.decoding import refuse_mirror
from datasets.packed import load_packed, packed_version
from datasets.table import STAGE, Table, read_table
from datasets.tasks import Task
from utils.errors import UserError

_READ_AHEAD = 2  # batches, where they are read beside the training
_DECODED_BYTES = 256 << 20  # of decoded images and targets that a process holds, on the CPU
_DECODED_AT_ONCE = 256
_GATHERED_BYTES = 512 << 10  # of the next batches, which are taken from there at once and fit into a core's cache
_ALIGNED = 64  # bytes: products of matrices may round otherwise where these begin elsewhere
_TEST_MODE = (256, 64)  # training and held-out images that --test_mode works on


@dataclass(frozen=True)
class Batch:
    """Images (B, 3 F, S, S) float32 in [0, 1], the task's decoded target, and which of its pixels count (bool).

    An image has the task's F photographs, the channels of one behind those of the other. Where a frozen encoder's
    outputs are kept, `images` are those, (B, K): see `TaskData.on_inputs`.
    """

    images: Tensor
    target: Tensor
    valid: Tensor


class TaskData:
    """The packed images and targets of one task.

    `train`, `val` and `test` are the positions, in the order of the table, of the readable images of each part;
    `readable` marks them all; `labels` are the images' classes, -1 for none, on `device`. `device` is where batches go;
    the packed arrays lie there too when they fit, and in memory-mapped files otherwise. `shortened` says that
    `--test_mode` has left most images out. UserError where one of the parts that it `needs` has no image.
    """

    shortened = False

    def __init__(
        self,
        table: Table,
        task: Task,
        image_size: int,
        device: torch.device,
        needs: Collection[str] = ("train", "test"),
    ) -> None:
        self.task, self.table, self.device, self.image_size = _in_its_axes(task, table), table, device, image_size
        _check_parts(task, table.train, table.test, needs)
        _check_classes(task, table)
        _check_margins(task, table)
        photographs = [load_packed(table, photograph, image_size) for photograph in task.photographs]
        self._images = tuple(torch.from_numpy(images) for images, _ in photographs)
        left_out = [position for _, missing in photographs for position in missing]
        if task.encoding is None:
            self._stored = torch.from_numpy(table.labels)
            left_out = left_out + np.flatnonzero(table.labels < 0).tolist()
        else:
            stored, more = load_packed(table, task.encoding, image_size)
            left_out = left_out + more
            self._stored = as_tensor(stored)
        self.readable = np.ones(len(table), bool)
        self.readable[left_out] = False
        self.train, self.val, self.test = (part[self.readable[part]] for part in (table.train, table.val, table.test))
        _check_parts(task, self.train, self.test, needs)
        self.labels = torch.from_numpy(table.labels).to(device)
        self._place()

    @classmethod
    def open(
        cls,
        data_path: Path,
        task: Task,
        image_size: int,
        accelerator: Accelerator,
        test_mode: bool = False,
        check: Callable[[Table], None] = lambda table: None,
    ) -> TaskData:
        """The data of the table in a folder; `test_mode` shortens them.

        `check` raises UserError where the table does not fit the arguments, before images are packed.
        """
        table = read_table(data_path)
        check(table)
        with accelerator.main_process_first():  # the other processes find the images packed
            data = cls(table, task, image_size, accelerator.device)
        if test_mode:
            data.shorten(*_TEST_MODE)
        return data

    def __len__(self) -> int:
        return len(self.table)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table and of which of its images are trained on and held out."""
        digest = hashlib.sha256(self.table.fingerprint.encode())
        for positions in (self.train, self.val, self.test):
            digest.update(positions.astype("<i8").tobytes())
        return digest.hexdigest()

    def shorten(self, n_train: int, n_test: int) -> None:
        """Keep at most so many training and held-out images, evenly spaced; the others count as unreadable."""
        self.train, self.val, self.test = (
            evenly(part, n) for part, n in ((self.train, n_train), (self.val, n_test), (self.test, n_test))
        )
        self.readable = np.isin(np.arange(len(self)), np.concatenate([self.train, self.val, self.test]))
        self.shortened = True

    def without(self, positions: np.ndarray) -> TaskData:
        """The same images, of which those at `positions` are neither trained on, nor held out."""
        other = copy.copy(self)
        other.train, other.val, other.test = (
            part[~np.isin(part, positions)] for part in (self.train, self.val, self.test)
        )
        return other

    def on_inputs(self, inputs: Tensor) -> TaskData:
        """The same images and targets, whose batches have rows of `inputs` (N, K), as float32, for images."""
        other = copy.copy(self)
        vars(other).pop("_decoded", None)
        other._images = (inputs,)
        other._place()
        return other

    @property
    def version(self) -> str | None:
        """See `data_version`."""
        return data_version(self.table, self.task, self.image_size)

    @property
    def digest(self) -> str:
        """SHA-256 of the table and of the packed images and targets themselves, all of which are read.

        `version` is what was noted when they were packed, whatever has become of them since.
        """
        digest = hashlib.sha256(self.table.fingerprint.encode())
        for array in (*self._images, self._stored):
            digest.update(array.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def batch(self, positions: Tensor) -> Batch:
        """The images at `positions` (int64, on any device), decoded on `self.device`."""
        if self._decoded is None:
            return decode_batch(self.task, *self._read(positions))
        images, target, valid = (tensor.index_select(0, positions) for tensor in self._decoded)
        return Batch(images.movedim(-1, 1), target, valid)

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches at these positions (int64), one after the other: the positions on `device`, and the batch.

        Where the packed arrays do not lie on the device, a thread reads the next batches into pinned memory while one
        is in use, so that they travel while the device works.
        """
        sizes = [len(at) for at in plan]
        positions = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *plan]))
        # One transfer for all, which nothing waits for.
        on_device = positions.to(self.device, non_blocking=True).split(sizes)
        if self._decoded is not None:
            for at, (images, target, valid) in zip(on_device, gathered(self._decoded, on_device), strict=True):
                yield at, Batch(images.movedim(-1, 1), target, valid)
            return
        if self._resident:
            yield from ((at, self.batch(at)) for at in on_device)
            return
        to_read = positions.split(sizes)
        with ThreadPoolExecutor(1) as reader:
            ahead = deque(reader.submit(self._read, at) for at in to_read[:_READ_AHEAD])
            for step, at in enumerate(on_device):
                packed = ahead.popleft().result()
                ahead.extend(reader.submit(self._read, later) for later in to_read[step + _READ_AHEAD :][:1])
                yield at, decode_batch(self.task, *packed)

    def in_physical_units(self, positions: Tensor, *maps: Tensor) -> tuple[Tensor, ...]:
        """Targets or outputs of the images at `positions` in the task's `unit`; as they are where it has none."""
        if self.task.physical is None:
            return maps
        values, valid = _values(self.task, self._take(self._stored, positions))
        return tuple(self.task.physical(feature_map, values, valid) for feature_map in maps)

    @cached_property
    def _decoded(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """All images (N, S, S, 3) or inputs (N, K), targets and what counts, decoded once, if they take little memory.

        Only on the CPU, where decoding a batch costs several per cent of a small network's step; a GPU has time for it.
        """
        if self.device.type != "cpu":
            return None
        one = decode_batch(self.task, *self._read(torch.zeros(1, dtype=torch.int64)))
        size = sum(tensor.nbytes for tensor in (one.images, one.target, one.valid)) * len(self._images[0])
        if size > _DECODED_BYTES:
            return None
        parts = [
            decode_batch(self.task, *self._read(at))
            for at in torch.arange(len(self._images[0])).split(_DECODED_AT_ONCE)
        ]
        images = torch.cat([part.images.movedim(1, -1) for part in parts])
        return images, torch.cat([part.target for part in parts]), torch.cat([part.valid for part in parts])

    def _place(self) -> None:
        """Put the packed arrays on the device, if they fit."""
        size = sum(tensor.nbytes for tensor in (*self._images, self._stored))
        self._resident = self.device.type == "cpu" or size < _free_bytes(self.device) // 2
        if self._resident:
            self._images = tuple(image.to(self.device) for image in self._images)
            self._stored = self._stored.to(self.device)

    def _read(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        images = [self._take(image, positions) for image in self._images]
        return images[0] if len(images) == 1 else torch.cat(images, dim=1), self._take(self._stored, positions)

    def _take(self, array: Tensor, positions: Tensor) -> Tensor:
        taken = array.index_select(0, positions.to(array.device))  # on a CPU three to five times as fast as array[…]
        if taken.device.type == "cpu" and self.device.type == "cuda":
            taken = taken.pin_memory()
        return taken.to(self.device, non_blocking=True)


def gathered(tensors: Sequence[Tensor], plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The rows of all tensors, batch after batch, at the plan's positions (B,): the inputs, and what belongs to them.

    Several batches are taken from memory at once, as many as take little of it, because one gathering of many rows is
    faster than many of few. They are as aligned as if each were taken alone, so that nothing rounds otherwise.
    """
    most, row = max(map(len, plan), default=1), sum(tensor[:1].nbytes for tensor in tensors)
    aligned = all(tensors[0][:1].nbytes * len(at) % _ALIGNED == 0 for at in plan)
    at_once = max(1, _GATHERED_BYTES // max(1, most * row)) if aligned else 1
    for first in range(0, len(plan), at_once):
        block = plan[first : first + at_once]
        positions, sizes = torch.cat(list(block)), [len(at) for at in block]
        yield from zip(*(tensor.index_select(0, positions).split(sizes) for tensor in tensors), strict=True)


def evenly(positions: np.ndarray, n: int) -> np.ndarray:
    """At most `n` of the positions, evenly spaced, with the first and the last."""
    return positions[np.linspace(0, len(positions) - 1, min(n, len(positions))).astype(int)]


def _check_parts(task: Task, train: np.ndarray, test: np.ndarray, needs: Collection[str]) -> None:
    """UserError if there is nothing to train on or to test with, where that is needed."""
    if not all(len(part) for name, part in (("train", train), ("test", test)) if name in needs):
        raise UserError(
            f"{task.name}: {len(train)} training and {len(test)} test images; "
            f"run {STAGE} again, with more images or another --test_fraction"
        )


def _in_its_axes(task: Task, table: Table) -> Task:
    """The task, which refuses to mirror directions where their axes are not the camera's."""
    scale = table.info.scales.get(task.encoding.domain) if task.encoding else None
    return replace(task, mirror=refuse_mirror) if scale is not None and scale.world else task


def _check_classes(task: Task, table: Table) -> None:
    """UserError where a model was made for other classes than the table has."""
    if task.categorical and task.classes != table.class_set(task):
        raise UserError(
            f"{task.name}: the model was made for other classes than those of {table.data_path}; "
            "run model_initialization.py and what comes after it again"
        )


def _check_margins(task: Task, table: Table) -> None:
    """UserError where the margins of images would count, because every pixel does."""
    if not task.masked and table.info.fit == "pad":
        raise UserError(
            f"{task.name}: --published_quirks True counts every pixel, the margins of --fit pad, too; "
            f"run {STAGE} with another --fit, or make the model without it"
        )


def data_version(table: Table, task: Task, image_size: int) -> str | None:
    """SHA-256 over the table and the packed images and targets of a task; None where they are not packed yet."""
    encodings = [*task.photographs, *([] if task.encoding is None else [task.encoding])]
    packed = [packed_version(table, encoding, image_size) for encoding in encodings]
    if None in packed:
        return None
    return hashlib.sha256(" ".join(map(str, [table.fingerprint, *packed])).encode()).hexdigest()


def as_tensor(packed: np.ndarray) -> Tensor:
    """A packed array as a tensor that shares its memory; 16-bit values as signed ones, which PyTorch can index."""
    return torch.from_numpy(packed.view(np.int16) if packed.dtype == np.uint16 else packed)


def decode_batch(task: Task, images: Tensor, stored: Tensor) -> Batch:
    """A batch from packed images (B, C, S, S) uint8, or inputs (B, K) of floats, and packed values, on their device."""
    if images.dtype == torch.uint8:
        inputs = images.to(torch.float32, memory_format=torch.channels_last).div_(255.0)
    else:
        inputs = images.float()
    return Batch(inputs, *task.decode(*_values(task, stored)))


def _values(task: Task, stored: Tensor) -> tuple[Tensor, Tensor]:
    """The values of the domain's own channels, and which pixels (B, 1, S, S) hold a surface; or boxes, and which do."""
    encoding = task.encoding
    if encoding is None:
        return stored, torch.ones_like(stored, dtype=torch.bool)
    if encoding.boxes:
        return stored, stored[..., -1] >= 0
    if stored.dtype == torch.int16:
        stored = stored.to(torch.int32) & 0xFFFF
    if stored.shape[1] > encoding.channels:  # the last one says what counts
        return stored[:, :-1], stored[:, -1:] > 0
    if encoding.nothing is None:
        return stored, torch.ones_like(stored[:, :1], dtype=torch.bool)
    mark = torch.tensor(encoding.nothing, dtype=stored.dtype, device=stored.device).view(1, -1, 1, 1)
    return stored, (stored != mark).any(dim=1, keepdim=True)


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
