"""What a run of `make_partition.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from datasets.tasks import TASKS
from network.partition.settings import ArrayFiles, AssignSettings, GroupSettings, add_partition, resolve_rule
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError
from utils.settings import setting
from utils.stage import Stage, add_shared


@dataclass(frozen=True, kw_only=True)
class PartitionStage(Stage):
    """A partition of any data set: of which files, by which rule; and the export of clients' images."""

    heading: ClassVar[str] = "output"

    files: ArrayFiles
    groups: GroupSettings
    assign: AssignSettings
    output_path: Path = setting(Path("partition"), "folder for the partition, report and figures", Path)
    export_clients: Path | None = setting(
        None, "folder for each client's images, as data folders of machines that hold nothing else", Path
    )
    partition_file: Path | None = setting(
        None,
        "with --export_clients: a saved partition, a run's folder or its partition.json, to take as it is",
        Path,
        heading="partition",
    )
    data_path: Path | None = setting(
        None, "with --export_clients: folder of the images; default: the run's", Path, heading="data"
    )
    task: str | None = setting(
        None, "with --export_clients: whose targets go along; default: the run's", choices=TASKS, heading="data"
    )
    image_size: int | None = setting(
        None, "with --export_clients: their side in pixels; default: the run's", POSITIVE_INT, heading="data"
    )

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ArrayFiles.add_arguments(parser)
        add_partition(parser)
        GroupSettings.add_arguments(parser)
        super().add_arguments(parser)
        add_shared(parser, "rand_seed")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the rule that follows from these arguments; UserError where they do not go together."""
        given = resolve_rule(config)
        if given["partition_file"] and not given["export_clients"]:
            raise UserError("--partition_file has nothing to assign; give --export_clients, or omit it")
        if given["users"] or given["lat_lng"]:  # each of which is a client whole
            given |= {"partition": "natural", "n_clients": None}
        return super().from_config(given, **others)
