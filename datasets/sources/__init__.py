"""Where images come from, by the name that `--source` takes: one short module per kind of data set."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from datasets.held_out import make_table
from datasets.settings import TableSettings
from datasets.sources.arrays import Arrays
from datasets.sources.cifar import Cifar10, Cifar100
from datasets.sources.coco import Coco
from datasets.sources.csv import Csv
from datasets.sources.digits import Digits
from datasets.sources.folder import Folder
from datasets.sources.in_frames import in_frames
from datasets.sources.inaturalist import INaturalist
from datasets.sources.landmarks import Landmarks
from datasets.sources.listing import say_pages
from datasets.sources.maps import Maps
from datasets.sources.masks import Masks
from datasets.sources.motion import Motion
from datasets.sources.nyu import Nyu
from datasets.sources.office_caltech import OfficeCaltech
from datasets.sources.panoptic import Panoptic
from datasets.sources.ranges import lines_of_levels
from datasets.sources.source import Source
from datasets.sources.taskonomy import Taskonomy
from datasets.sources.voc import Voc
from datasets.table import Listing, write_table
from datasets.tasks import RGB
from utils.command import command_line
from utils.errors import UserError
from utils.stage import StageSettings

SOURCES: dict[str, type[Source]] = {
    "taskonomy": Taskonomy,
    "masks": Masks,
    "maps": Maps,
    "motion": Motion,
    "coco": Coco,
    "panoptic": Panoptic,
    "voc": Voc,
    "nyu": Nyu,
    "inaturalist": INaturalist,
    "landmarks": Landmarks,
    "folder": Folder,
    "csv": Csv,
    "arrays": Arrays,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "digits": Digits,
    "office_caltech": OfficeCaltech,
}


def find_images(config: Mapping[str, Any]) -> Listing:
    """The images that the arguments of stage 1, by name, ask for, each with its part."""
    source, levels = SOURCES[config["source"]](config), tuple(config["levels"]) if config["levels"] else None
    if levels and not levels[0] < levels[1]:
        raise UserError(f"--levels {levels[0]:g} {levels[1]:g}: white is to be above black")
    listing = source.find()
    if not source.is_rendered:
        listing = in_frames(config["data_path"], listing)
        cells = listing.rows[RGB.domain].tolist()
        say_pages(config["data_path"], cells)
        for line in lines_of_levels(config["data_path"], cells, levels):
            print(line)
    rows = make_table(listing, config["test_fraction"], config["rand_seed"])
    info = replace(
        listing.info, made_by=shlex.join(["python", *command_line()]), resize=config["resize"], levels=levels
    )
    return replace(listing, rows=rows, info=info)


def select_images(
    data_path: Path,
    source: str = "taskonomy",
    *,
    test_fraction: float = TableSettings.test_fraction,
    fit: str = TableSettings.fit,
    resize: str = TableSettings.resize,
    levels: tuple[float, float] | None = TableSettings.levels,
    rand_seed: int = StageSettings.rand_seed,
    **arguments: Any,
) -> Listing:
    """Find a folder's images and write their table into it, as stage 1 does; `arguments` are the source's own.

    Raises:
        UserError: where there are none, or the table cannot be written.
    """
    common = asdict(TableSettings(test_fraction, fit, resize, levels)) | {"rand_seed": rand_seed}
    listing = find_images({"data_path": data_path, "source": source, **common, **arguments})
    write_table(data_path, listing)
    return listing
