"""Uploads as rows of single precision, in memory up to a bound and on disk beyond it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from utils.errors import UserError


class KeptRows:
    """Rows of one length, which come out as they went in, in their order.

    Args:
        folder: where those are written that are too much for the memory, to a file that vanishes with the process.
        memory: bytes of rows to keep in memory.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder, self._memory = folder, memory
        self._file: IO[bytes] | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._n, self._length = 0, 0
        self._in_memory: list[Tensor] = []
        if self._file:
            self._file.close()
        self._file = None

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Keep a row of copies of these tensors, one after the other, whose values fit into single precision."""
        row = torch.cat([torch.zeros(0), *(tensor.detach().float().cpu().flatten() for tensor in tensors)])
        self._n, self._length = self._n + 1, len(row)
        if self._file is None and (len(self._in_memory) + 1) * row.nbytes <= self._memory:
            self._in_memory.append(row)
        else:
            self._write(row)

    def columns(self, begin: int = 0, end: int | None = None) -> Iterator[Tensor]:
        """The part from `begin` to `end` of each row."""
        yield from (row[begin:end] for row in self._in_memory)
        if self._file:
            self._file.flush()
            shape = (self._n - len(self._in_memory), self._length)
            on_disk = np.memmap(self._file, np.float32, "r", shape=shape)  # type: ignore[call-overload]
            yield from (torch.from_numpy(np.array(row[begin:end])) for row in on_disk)

    def _write(self, row: Tensor) -> None:
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by `clear`
            self._file.write(row.numpy().data)
        except OSError as error:
            raise UserError(
                f"{self._folder}: cannot keep a round's uploads ({error.strerror}); make room there"
            ) from error
