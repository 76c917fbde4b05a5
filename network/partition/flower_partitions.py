"""Partitions that Flower has saved: a folder `partition_<i>` for each client, as `flwr-datasets create` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from network.partition.arrays import numbered
from utils.errors import UserError
from utils.files import read_json

_NAME, _MADE_BY = "partition_", "flwr-datasets create"
_TRAIN = "train"  # of a client's data sets, where it has several
_NONE = -1


def is_flowers(folder: Path) -> bool:
    """Whether a folder has Flower's partitions."""
    return any(folder.glob(f"{_NAME}[0-9]*/"))


def read_flower(folder: Path, columns: Iterable[tuple[str, str]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Each image's client (N,) int64 and, by name, its group (N,) int64, -1 where there is none.

    Args:
        folder: has a `partition_<i>` of client i, which Hugging Face's `save_to_disk` wrote: a data set, or a
            dictionary of several, of which `train` is taken. The images of a client follow those of the one before.
        columns: names, and the columns of whole numbers or texts (null or negative: left out) that have the groups.
            Each column of Hugging Face's type `ClassLabel` is a grouping besides, called as it is.

    Raises:
        UserError: where pyarrow is missing, or a partition or column is missing or of another form.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(
            f"{folder}: Flower's partitions need pyarrow; pip install -r requirements-flower.txt"
        ) from error
    clients = sorted((int(path.name.removeprefix(_NAME)), path) for path in folder.glob(f"{_NAME}[0-9]*/"))
    read = [_of_client(path) for _, path in clients]
    labels = {name: name for classes, _ in read for name in classes}
    tables = [table for _, parts in read for table in parts]
    columns_by_name = labels | dict(columns)
    for table, column in product(tables, columns_by_name.values()):
        if column not in table.column_names:
            raise UserError(f"{folder} has no column {column}, but {', '.join(table.column_names)}")
    if not tables:
        raise UserError(f"{folder}: no client has an image")
    joined = pa.concat_tables(
        [table.select([*{*columns_by_name.values()}]) for table in tables], promote_options="default"
    )
    groups = {name: _numbers(joined[column], column) for name, column in columns_by_name.items()}
    sizes = [sum(table.num_rows for table in parts) for _, parts in read]
    return np.repeat([client for client, _ in clients], sizes), groups


def _of_client(path: Path) -> tuple[list[str], list[Any]]:
    """The columns of type `ClassLabel` of a client, and the tables of its files."""
    import pyarrow as pa

    folder = path if (path / "state.json").is_file() else path / _TRAIN
    state, info = (read_json(folder / name, _MADE_BY) for name in ("state.json", "dataset_info.json"))
    try:
        classes = [name for name, feature in info["features"].items() if feature.get("_type") == "ClassLabel"]
        files = [folder / record["filename"] for record in state["_data_files"]]
        return classes, [pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in files]
    except (OSError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise UserError(f"{folder}: not a readable data set ({error}); make it again with {_MADE_BY}") from error


def _numbers(values: Any, column: str) -> np.ndarray:
    """A column as groups, numbered from 0 in sorted order."""
    import pyarrow as pa

    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return numbered(values.cast(pa.int64()).fill_null(_NONE).to_numpy())[0]
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        missing = values.is_null().to_numpy()
        return np.where(missing, _NONE, numbered(values.fill_null("").to_numpy().astype(str))[0])
    raise UserError(f"column {column}: {values.type}; needs one whole number or text per image")
