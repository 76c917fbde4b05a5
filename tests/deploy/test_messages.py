"""What travels comes back as it was; what cannot be read, or is too large to be looked at, is refused in a line."""

from __future__ import annotations

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from deploy.messages import read, write
from utils.errors import UserError


def message(said: str | bytes | list[str], data: bytes) -> RecordDict:
    array = Array("uint8", (len(data),), "safetensors", data)
    return RecordDict({"metadata": ConfigRecord({"json": said}), "tensors": ArrayRecord({"safetensors": array})})


def data_of(content: RecordDict) -> bytes:
    return content.array_records["tensors"]["safetensors"].data


def test_words_and_tensors_come_back() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.tensor(True)}
    said, found = read(write({"round": 3, "kept": [1, None]}, tensors), most=1000)
    assert said == {"round": 3, "kept": [1, None]} and found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    ("said", "data", "line"),
    [
        ("[" * 10**5, None, r"it cannot be read \(brackets are nested too deeply\)"),
        ("[]", None, r"it cannot be read \(no object of JSON\)"),
        (["{}"], None, r"it cannot be read \(no text\)"),
        (b"{}", None, r"it cannot be read \(no text\)"),
        ("{}", b"none", "it cannot be read"),
        ('{"a": "' + "b" * 10**6 + '"}', None, "it has 10000.. bytes, and at most 1000000 are expected"),
        ('{"a": "' + "\u00e4" * 600_000 + '"}', None, "it has 12000.. bytes, and at most 1000000 are expected"),
        ("{}", bytes(10**6), "it has 1000002 bytes, and at most 1000000 are expected"),
    ],
)
def test_what_cannot_be_read_is_refused(said: str | bytes | list[str], data: bytes | None, line: str) -> None:
    with pytest.raises(UserError, match=line):
        read(message(said, data_of(write({})) if data is None else data), most=10**6)
