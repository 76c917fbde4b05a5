"""What a run of `extract_datapoints_for_experiments.py` follows from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from datasets.settings import TableSettings
from datasets.sources import SOURCES
from utils.args import Parser
from utils.arguments import add_arguments_of, with_defaults
from utils.settings import REQUIRED, setting
from utils.stage import Stage, add_shared


@dataclass(frozen=True, kw_only=True)
class TableStage(Stage):
    """A table of images: from which source, and how it is made; `config` has the source's own arguments."""

    heading: ClassVar[str] = "data"

    source: str = setting("taskonomy", "what the data folder holds", choices=SOURCES)
    data_path: Path = setting(REQUIRED, "data folder", Path)
    table: TableSettings

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        super().add_arguments(parser)
        TableSettings.add_arguments(parser)
        add_arguments_of(parser, "source", SOURCES, "source")
        add_shared(parser, "result_path", "rand_seed")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the source's defaults; UserError for arguments of another one."""
        return super().from_config(with_defaults(config, SOURCES, "source"), **others)
