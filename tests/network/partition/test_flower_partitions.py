"""Flower's saved partitions, written here as Hugging Face's `save_to_disk` lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from network.partition.flower_partitions import is_flowers, read_flower
from utils.errors import UserError

LABEL = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "writer": {"dtype": "string", "_type": "Value"}}


def save(folder: Path, **columns: list[Any]) -> None:
    """A client's data set, which has no file where it has no rows."""
    folder.mkdir(parents=True)
    files = []
    if columns["label"]:
        files = [{"filename": "data-00000-of-00001.arrow"}]
        import pyarrow as pa

        table = pa.table(columns)
        with pa.OSFile(str(folder / files[0]["filename"]), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": LABEL}))


@pytest.fixture(autouse=True)
def has_pyarrow() -> None:
    """It comes with Flower's data sets."""
    pytest.importorskip("pyarrow")


def test_clients_are_numbered_as_flower_does_and_classes_are_groups(tmp_path: Path) -> None:
    save(tmp_path / "partition_0", label=[0, 1, None], writer=["b", "a", "b"])
    save(tmp_path / "partition_1", label=[], writer=[])
    save(tmp_path / "partition_10" / "train", label=[1], writer=[None])
    save(tmp_path / "partition_2", label=[1, 1], writer=["c", "a"])
    assert is_flowers(tmp_path) and not is_flowers(tmp_path / "partition_10")
    client_of, groups = read_flower(tmp_path, [("who", "writer")])
    assert client_of.tolist() == [0, 0, 0, 2, 2, 10]
    assert groups["label"].tolist() == [0, 1, -1, 1, 1, 1]
    names = ["b", "a", "b", "c", "a", None]
    assert [names[i] for i in groups["who"].argsort()] == [None, "a", "a", "b", "b", "c"]
    assert groups["who"][5] == -1 and groups["who"][0] == groups["who"][2] != groups["who"][3]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    save(tmp_path / "partition_0", label=[0, 1], writer=["b", "a"], score=[0.5, 1.0])
    for column, error in (("age", "no column age, but label, writer, score"), ("score", "column score: double")):
        with pytest.raises(UserError, match=error):
            read_flower(tmp_path, [("who", column)])
    (tmp_path / "partition_0" / "data-00000-of-00001.arrow").write_bytes(b"no table")
    with pytest.raises(UserError, match="partition_0: not a readable data set"):
        read_flower(tmp_path, [])
    (tmp_path / "partition_0" / "state.json").unlink()
    with pytest.raises(UserError, match=r"state.json is missing; run flwr-datasets create"):
        read_flower(tmp_path, [])
