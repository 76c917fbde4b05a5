"""What a run of `measure_clients.py` follows from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from datasets.tasks import TASKS
from utils.args import name_and_value
from utils.errors import UserError
from utils.settings import Settings, setting
from utils.stage import shared


def grouping(text: str) -> tuple[str, str]:
    """An argparse type: a name and a file, or a file alone, whose name it is."""
    return name_and_value(text) if "=" in text else (Path(text).stem, text)


@dataclass(frozen=True)
class OwnClientSettings(Settings):
    """Clients that are given, and the groups of images by which they are measured."""

    heading: ClassVar[str] = "data"

    clients: str | None = setting(
        None,
        ".npy of each image's client, numbers or text (negative: of nobody), or a column of natural groups of the "
        "table of images",
        metavar="FILE|COLUMN",
    )
    groups: Sequence[tuple[str, str]] = setting(
        (),
        ".npy of each image's class, cluster …, numbers or text (negative: left out); FILE alone: called as it. "
        "Several, to compare, beside those that a table has: its classes, and its clusters of each task",
        grouping,
        nargs="+",
        metavar="NAME=FILE",
    )
    partition_file: Path | None = setting(
        None,
        "for --clients: a saved partition, a run's folder or its partition.json (with --data_path, its table's "
        "groups count, too); or a folder of Flower's partitions, whose columns --groups NAME=COLUMN names",
        Path,
    )
    data_path: Path | None = shared("data_path")
    tasks: Sequence[str] = setting(
        (),
        "tasks of the table: also measure the share of their targets' variance that lies between clients",
        nargs="+",
        choices=TASKS,
        metavar="TASK",
    )
    assignment_files_path: Path = shared("assignment_files_path")
    result_path: Path = shared("result_path")
    output_path: Path = setting(Path("own_clients"), "folder for the tables and the figure", Path, heading="output")
    simulate: bool = setting(
        False, "also write the rule and α that assign such clients, and how near they come", bool, heading="output"
    )
    rand_seed: int = shared("rand_seed")

    def __post_init__(self) -> None:
        if self.clients and self.partition_file:
            raise UserError("--clients and --partition_file both say who has which images; omit one")
        if self.tasks and self.partition_file and not self.data_path:
            raise UserError("--tasks needs the table of the partition's images; give --data_path")
