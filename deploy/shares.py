"""What each machine of a deployed federation holds: a data folder with a client's images, and one for the server.

A folder has the table of its images, their packed arrays with the task's targets, and `share.json`; it names the files
that the images came from, but has none of them. The server's has the images that are held out in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datasets.packed import take_packed
from datasets.table import BOX_COLUMNS, PART, Listing, read_boxes, read_table, write_table
from datasets.task_data import TaskData
from datasets.tasks import BOXES, CLASS, RGB, get_task
from network.partition.assigning import Partition, read_partition
from network.partition.held_out import held_out_of
from utils.errors import UserError
from utils.files import read_json, write_json
from utils.renamed import with_present_names
from utils.runs import data_path_or_default
from utils.versions import ids_digest

if TYPE_CHECKING:
    from datasets.table import Table

SHARE_FILE = "share.json"
_MADE_BY = "make_partition.py --export_clients"
_SAID = ("type", "partition", "rule", "alpha", "rand_seed")  # of a partition's origin


@dataclass(frozen=True)
class Share:
    """Whose images lie in a folder: those of a client by its number, or the server's (None).

    `partition` is the digest of the partition, which all machines have in common; `origin` says how it was assigned.
    """

    client: int | None
    n_clients: int
    partition: str
    origin: Mapping[str, Any] = field(default_factory=dict)


def read_share(folder: Path) -> Share:
    """Whose images these are; UserError where the folder was not exported."""
    path = folder / SHARE_FILE
    try:
        share = Share(**read_json(path, _MADE_BY))
        is_valid = isinstance(share.n_clients, int) and isinstance(share.partition, str)
        if not is_valid or not (share.client is None or 0 <= share.client < share.n_clients):
            raise ValueError("it is of no client")
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}; run {_MADE_BY} again") from error
    return share


def export_shares(into: Path, data: TaskData, partition: Partition, held_out: Sequence[np.ndarray]) -> list[Path]:
    """Write a folder for each client, `client_<k>`, and one for the server, `server`; returns them.

    A client's folder has its training images and its own held-out ones in the order of the table, so that it draws the
    batches that it would draw in a simulation; the server's has all that are held out.
    """
    digest = ids_digest(partition.client_of)
    origin = {name: partition.origin[name] for name in _SAID if name in partition.origin}
    parts = [*zip(partition.clients, held_out, strict=True), (np.zeros(0, np.int64), data.test)]
    folders = [*(into / f"client_{client}" for client in range(partition.n_clients)), into / "server"]
    for folder in folders:  # a folder whose export is cut off must not pass for one of the partition before
        (folder / SHARE_FILE).unlink(missing_ok=True)
    for number, (folder, (own, tested)) in enumerate(zip(folders, parts, strict=True)):
        _export(folder, data, own, tested)
        client = number if number < partition.n_clients else None
        write_json(folder / SHARE_FILE, asdict(Share(client, partition.n_clients, digest, origin)))
    return folders


def _export(folder: Path, data: TaskData, own: np.ndarray, held_out: np.ndarray) -> None:
    """Write the table and the packed arrays of these images."""
    import pandas as pd

    table = data.table
    rows = np.sort(np.concatenate([own, held_out]))
    columns: dict[str, Any] = {domain: np.array(table.files[domain])[rows] for domain in table.info.domains}
    columns |= {CLASS: table.labels[rows], **{name: table.groups[name][rows] for name in table.info.groups}}
    columns[PART] = np.where(np.isin(rows, own), "train", "test")
    boxes = None
    if BOXES in table.info.classes:
        boxes = read_boxes(table)
        boxes = boxes[boxes["image"].isin(columns[RGB.domain])][BOX_COLUMNS]
    write_table(folder, Listing(pd.DataFrame(columns), table.info, boxes=boxes))
    for encoding in (*data.task.photographs, data.task.encoding):
        if encoding is not None:
            take_packed(table, encoding, data.image_size, rows, read_table(folder))


def export_clients(
    saved: Path, folder: Path, data_path: Path | None, task: str | None, image_size: int | None
) -> list[Path]:
    """`export_shares` into a folder, of a saved partition.

    A run's partition says the data, the task and the size of the images itself, where they are None. UserError where
    that is not known, or where the partition is of other images, or assigns some that are held out or cannot be read.
    """
    partition = read_partition(saved)
    folder_of_run = saved.parent if saved.is_file() else saved
    record = dict(partition.origin)
    if (folder_of_run / "args.json").is_file():
        record |= with_present_names(read_json(folder_of_run / "args.json", "the run"))
    given = {"data_path": data_path, "task": task, "image_size": image_size}
    record |= {name: value for name, value in given.items() if value is not None}
    if missing := [name for name in ("task", "image_size") if record.get(name) is None]:
        raise UserError(f"{saved} does not say the {missing[0]}; give --{missing[0]}")
    of_run = record.get("data_path") and Path(record["data_path"])
    table = read_table(data_path_or_default(of_run, Path(record.get("result_path") or "results")))
    bound = table.bind(
        get_task(record["task"], record.get("depth_target", "scaled"), record.get("published_quirks", False))
    )
    data = TaskData(table, bound, int(record["image_size"]), torch.device("cpu"))
    _check(saved, partition, data, record.get("table_sha256"))
    held_out = held_out_of(partition, data.test, int(record["rand_seed"]))
    return export_shares(folder, data, partition, held_out)


def _check(saved: Path, partition: Partition, data: TaskData, fingerprint: str | None) -> None:
    """UserError where a partition is not one of these images."""
    table: Table = data.table
    if len(partition.client_of) != len(table) or fingerprint not in (None, table.fingerprint):
        raise UserError(f"{saved} is of other images than those of {table.data_path}; give its --data_path")
    if partition.n_non_participating:
        raise UserError(
            f"{saved} sets {partition.n_non_participating} clients aside, which no machine has; "
            "omit --non_participating_clients"
        )
    assigned = np.flatnonzero(partition.client_of >= 0)
    if len(unknown := np.setdiff1d(assigned, data.train)):
        raise UserError(
            f"{saved} assigns {len(unknown)} images that are in the test split or that {data.task.name} cannot read; "
            "make the partition again, from the training images alone"
        )
    if empty := np.flatnonzero(partition.sizes == 0).tolist():
        raise UserError(f"{saved}: client {empty[0]} has no image to train on; make the partition again")
