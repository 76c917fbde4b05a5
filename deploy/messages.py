"""What travels between the server and a client: named tensors in the format of safetensors, and some words in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from utils.errors import UserError
from utils.files import json_of

_FORMAT = "safetensors"
_NAMES = 1 << 16  # bytes that the names and shapes of an upload may take, besides its numbers, and as much per tensor


def write(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> RecordDict:
    """A message's content."""
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in (tensors or {}).items()
    }
    data = save(plain)
    array = Array("uint8", (len(data),), _FORMAT, data)
    words = ConfigRecord({"json": json.dumps(metadata)})
    return RecordDict({"metadata": words, "tensors": ArrayRecord({_FORMAT: array})})


def read(content: RecordDict, most: int | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `write` was given, tensors on the CPU; UserError where it is none of that, or has more than `most` bytes.

    A client may have sent anything.
    """
    try:
        words = content.config_records["metadata"]["json"]
        data = content.array_records["tensors"][_FORMAT].data
        if not isinstance(words, str):
            raise ValueError("no text")
        if most is not None and (size := len(words.encode()) + len(data)) > most:
            raise UserError(f"it has {size} bytes, and at most {most} are expected")
        metadata, tensors = json_of(words), load(data)
        if not isinstance(metadata, dict):
            raise ValueError("no object of JSON")
    except (KeyError, ValueError, TypeError, AttributeError, SafetensorError) as error:
        raise UserError(f"it cannot be read ({error})") from error
    return metadata, tensors


@dataclass(frozen=True)
class Layout:
    """The names, shapes and dtypes that an upload must have."""

    tensors: Mapping[str, tuple[torch.Size, torch.dtype]]

    @classmethod
    def of(cls, upload: Mapping[str, Tensor]) -> Layout:
        """That of an upload like this one."""
        return cls({name: (tensor.shape, tensor.dtype) for name, tensor in upload.items()})

    @property
    def most_bytes(self) -> int:
        """The size of the largest message that may be read."""
        numbers = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.tensors.values())
        return numbers + _NAMES + 512 * len(self.tensors)

    def check(self, upload: Mapping[str, Tensor], finite: bool = True) -> None:
        """UserError where an upload has other names, shapes or dtypes, or, by default, numbers that are not finite."""
        if upload.keys() != self.tensors.keys():
            odd = sorted(upload.keys() ^ self.tensors.keys())[0]
            raise UserError(f"it {'has' if odd in upload else 'lacks'} {odd!r}")
        for name, (shape, dtype) in self.tensors.items():
            tensor = upload[name]
            if (tensor.shape, tensor.dtype) != (shape, dtype):
                sent, expected = (
                    f"{kind} {tuple(size)}" for size, kind in ((tensor.shape, tensor.dtype), (shape, dtype))
                )
                raise UserError(f"{name!r} is {sent} and not {expected}")
            if finite and tensor.is_floating_point() and not tensor.isfinite().all():
                raise UserError(f"{name!r} has numbers that are not finite")
