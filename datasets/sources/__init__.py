"""Where images come from, by the name that `--source` takes: one short module per kind of data set."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import replace

from datasets.sources.arrays import Arrays
from datasets.sources.cifar import Cifar10, Cifar100
from datasets.sources.coco import Coco
from datasets.sources.csv import Csv
from datasets.sources.digits import Digits
from datasets.sources.folder import Folder
from datasets.sources.in_frames import in_frames
from datasets.sources.inaturalist import INaturalist
from datasets.sources.landmarks import Landmarks
from datasets.sources.maps import Maps
from datasets.sources.masks import Masks
from datasets.sources.nyu import Nyu
from datasets.sources.office_caltech import OfficeCaltech
from datasets.sources.panoptic import Panoptic
from datasets.sources.source import Source
from datasets.sources.taskonomy import Taskonomy
from datasets.sources.voc import Voc
from datasets.table import Found, make_table, write_table

SOURCES: dict[str, type[Source]] = {
    "taskonomy": Taskonomy,
    "masks": Masks,
    "maps": Maps,
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


def find_images(args: Namespace) -> Found:
    """The images that the arguments of stage 1 ask for, each with its part."""
    source = SOURCES[args.source](args)
    found = source.find()
    if not source.is_rendered:
        found = in_frames(args.data_path, found)
    rows = make_table(found, args.test_fraction, args.rand_seed)
    return replace(
        found, rows=rows, about=replace(found.about, made_by=shlex.join(["python", *sys.argv]), resize=args.resize)
    )


def select_images(args: Namespace) -> Found:
    """`find_images`, with their table written into the data folder."""
    found = find_images(args)
    write_table(args.data_path, found)
    return found
