"""Data sets behind plain addresses: where they are, and how they get into a data folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import requests

from utils.errors import UserError

_TIMEOUT = 60


@dataclass(frozen=True)
class File:
    """A file on a server, with its MD5 sum as far as one is known; archives are unpacked into `folder`."""

    url: str
    md5: str | None = None
    archive: bool = True
    folder: str = "."

    @property
    def name(self) -> str:
        """What it is called."""
        return self.url.rsplit("/", 1)[-1]


_COCO = "http://images.cocodataset.org"
_INATURALIST = "https://ml-inat-competition-datasets.s3.amazonaws.com/2017"
# By the source that reads them. `landmarks` and `office_caltech` are no plain downloads; see docs/data.md.
# The authors of COCO, NYUv2 and iNaturalist 2017's metadata publish no sums: these are the ones several projects check.
PUBLIC: dict[str, tuple[File, ...]] = {
    "cifar10": (File("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    "cifar100": (File("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    "arrays": (  # HAM10000 as DermaMNIST
        File("https://zenodo.org/records/10519652/files/dermamnist.npz", "0744692d530f8e62ec473284d019b0c7", False),
    ),
    "masks": (
        File(
            "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
            "6cd6e144f989b92b3379bac3b3de84fd",
        ),
    ),
    "coco": (
        File(f"{_COCO}/annotations/annotations_trainval2017.zip", "f4bbac642086de4f52a3fdda2de5fa2c"),
        File(f"{_COCO}/zips/val2017.zip", "442b8da7639aecaf257c1dceb8ba8c80", folder="images"),
        File(f"{_COCO}/zips/train2017.zip", "cced6f7f71b7629ddf16f17bbcfab6b2", folder="images"),
    ),
    "inaturalist": (
        File(f"{_INATURALIST}/train_val2017.zip", "444c835f6459867ad69fcb36478786e7"),
        File(f"{_INATURALIST}/inat2017_locations.zip", "afc1956f9a100b165b89f3923d040912"),
        File(f"{_INATURALIST}/train_val_images.tar.gz", "7c784ea5e424efaec655bd392f87301f"),
    ),
    "nyu": (
        File(
            "http://horatio.cs.nyu.edu/mit/silberman/nyu_depth_v2/nyu_depth_v2_labeled.mat",
            "520609c519fba3ba5ac58c8fefcc3530",
            archive=False,
        ),
    ),
}


def fetch(source: str, data_path: Path, dry_run: bool = False) -> None:
    """Say how large a source's data are and whether the disk has room, then download, check and unpack them.

    What is there already is not downloaded again. UserError where the server or the disk refuses, or a file
    does not have its sum.
    """
    from torchvision.datasets.utils import download_and_extract_archive, download_url  # takes seconds to import

    files = [file for file in PUBLIC[source] if not _marker(data_path, file).exists()]
    sizes = [_size(file) for file in files]
    for file, size in zip(files, sizes, strict=True):
        print(f"{size / 1e9:8.2f} GB  {file.url}" + ("" if file.md5 else "  (no checksum is known)"))
    check_room(2 * sum(sizes), data_path)  # archives, and what comes out of them
    if dry_run:
        return
    for file in files:
        try:
            if file.archive:
                folder = data_path / file.folder
                download_and_extract_archive(file.url, data_path, folder, file.name, file.md5, remove_finished=True)
            else:
                download_url(file.url, data_path, file.name, file.md5)
        except (OSError, RuntimeError, ValueError, EOFError) as error:
            raise UserError(f"{file.url} could not be downloaded ({error}); the same command tries again") from error
        _marker(data_path, file).touch()
    print(f"{source} is in {data_path}")


def check_room(needed: int, data_path: Path) -> None:
    """Print how many bytes are needed and free; UserError where the disk has too little space."""
    there = next(path for path in (data_path, *data_path.resolve().parents) if path.exists())
    free = shutil.disk_usage(there).free
    print(f"{needed / 1e9:.2f} GB needed while downloading, {free / 1e9:.2f} GB free in {there}")
    if needed > free:
        raise UserError(f"{data_path}: {needed / 1e9:.2f} GB needed and {free / 1e9:.2f} GB free; see --data_path")


def _marker(data_path: Path, file: File) -> Path:
    """The empty file that marks this one as downloaded: archives are removed once they are unpacked."""
    return data_path / f".{file.name}.downloaded"


def _size(file: File) -> int:
    try:
        reply = requests.head(file.url, allow_redirects=True, timeout=_TIMEOUT)
        reply.raise_for_status()
        return int(reply.headers["Content-Length"])
    except (requests.RequestException, KeyError, ValueError) as error:
        raise UserError(f"{file.url} could not be reached ({error}); try again later") from error
