"""Download data sets: what the experiments need of Taskonomy, by omnidata-tools, and sets with a public address.

    python -m datasets.download --data_path taskonomy_dataset --name NAME --email EMAIL --agree_all True
    python -m datasets.download --source cifar10 --data_path data/cifar10

The first command gets the paper's three buildings with the files of all tasks. It first prints the sizes, as the server
states them, and the free space on the disk; `--dry_run True` stops there. Files that exist are not downloaded again.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from datasets.public import PUBLIC, check_room
from datasets.public import fetch as fetch_public
from datasets.sources.taskonomy import needed_domains, read_buildings
from datasets.tasks import INSTANCES, MAPS, MASK, TASKS
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script
from utils.files import write_atomically

SUBSETS = ("tiny", "medium", "full", "fullplus")
CLASS_NAMES = Path(__file__).with_name("places_class_names.txt")
# Masks, objects and maps of one's own come from other data sets.
_TASKS = [name for name in TASKS if not {MASK, INSTANCES, *MAPS}.intersection(needed_domains([name]))]
_WORKERS = 4
_TIMEOUT = 60


@dataclass(frozen=True)
class Archive:
    """One building's files of one domain on the server; `size` in bytes."""

    domain: str
    building: str
    url: str
    size: int

    def folder(self, data_path: Path) -> Path:
        """Where its files go."""
        return data_path / self.domain / "taskonomy" / self.building


def _optional(module: str) -> Any:
    """A module that only the download needs; UserError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{error}; the download needs more packages: python -m pip install -r requirements-taskonomy.txt"
        ) from error


def subset_list(subset: str) -> Path:
    """The official list of a subset's buildings, which omnidata-tools carries along."""
    taskonomy = _optional("omnidata_tools.dataset.starter_dataset.component_datasets.taskonomy")
    return Path(taskonomy.__file__).with_name(f"train_val_test_{subset}.csv")


def find_archives(domains: Sequence[str], buildings: Sequence[str]) -> list[Archive]:
    """The archives of these domains and buildings, with their sizes as the server states them.

    Raises UserError where the server cannot be reached or lacks one of them.
    """
    known = _optional("omnidata_tools.dataset.starter_dataset")
    servers = known.STARTER_DATASET_REMOTE_SERVER_METADATAS
    [server] = [server for server in servers if isinstance(server, known.TaskonomyMetadata)]
    try:
        urls = {(model.domain, model.model_name): model.url for model in server.models}
        requested = [(domain, building) for building in buildings for domain in domains]
        if absent := [f"{domain} of {building}" for domain, building in requested if (domain, building) not in urls]:
            raise UserError(f"{server.link_file} does not list {', '.join(absent)}; leave out its task or building")
        with ThreadPoolExecutor(16) as pool:
            sizes = list(pool.map(_size, (urls[key] for key in requested)))
    except (OSError, KeyError, ValueError) as error:  # what requests raises is an OSError
        raise UserError(
            f"{server.link_file}: the list of files could not be downloaded ({error}); try again later"
        ) from error
    return [Archive(*key, urls[key], size) for key, size in zip(requested, sizes, strict=True)]


def _size(url: str) -> int:
    reply = _optional("requests").head(url, allow_redirects=True, timeout=_TIMEOUT)
    reply.raise_for_status()
    return int(reply.headers["Content-Length"])


def report_sizes(archives: Sequence[Archive]) -> None:
    """Print the gigabytes per domain (rows) and building (columns), with their sums."""
    table = pd.DataFrame({"domain": a.domain, "building": a.building, "GB": a.size / 1e9} for a in archives)
    pivot = table.pivot_table("GB", "domain", "building", "sum", margins=True, margins_name="all", sort=False)
    print(pivot.to_markdown(floatfmt=".2f"))


def check_space(archives: Sequence[Archive], data_path: Path) -> None:
    """UserError where the disk has too little space.

    Archives are not compressed, and each is deleted once it is unpacked: besides the files themselves there are at
    most as many archives at a time as there are workers.
    """
    missing = [archive for archive in archives if not archive.folder(data_path).exists()]
    needed = sum(a.size for a in missing) + _WORKERS * max((a.size for a in missing), default=0)
    check_room(needed, data_path)


def fetch(archives: Sequence[Archive], data_path: Path, name: str, email: str, agree_all: bool) -> None:
    """Download and unpack the archives; UserError where any is missing afterwards."""
    omnitools = _optional("omnidata_tools.dataset.download")
    if shutil.which("aria2c") is None:
        raise UserError("omnidata-tools needs the program aria2c; install it (Debian: apt install aria2)")
    # The tool knows whole subsets only, and looks them up here by name.
    subsets = omnitools.STARTER_DATA_COMPONENT_TO_SUBSET["taskonomy"]
    subsets["chosen"] = {archive.building for archive in archives}
    try:
        omnitools.download(
            list(dict.fromkeys(archive.domain for archive in archives)),
            subset="chosen",
            components=["taskonomy"],
            dest=str(data_path),
            dest_compressed=str(data_path / "compressed"),
            n_workers=_WORKERS,
            # Without a server of its own, which would listen on all network interfaces.
            aria2_uri=None,
            aria2_create_server=False,
            name=name,
            email=email,
            agree_all=agree_all,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the download failed ({error}); the same command again continues it") from error
    if missing := [str(a.folder(data_path)) for a in archives if not any(a.folder(data_path).glob("*"))]:
        raise UserError(f"{', '.join(missing)} could not be downloaded; run the same command again to continue it")


def main() -> None:
    """Report the sizes, download, and put the lists that stage 1 reads beside the data."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--source", choices=("taskonomy", *PUBLIC), default="taskonomy", help="which data set")
    parser.add_argument("--data_path", type=Path, default=Path("taskonomy_dataset"), help="data folder")
    parser.add_argument("--tasks", nargs="+", choices=_TASKS, default=_TASKS, help="whose files are needed")
    parser.add_argument("--subset", choices=SUBSETS, default="tiny", help="Taskonomy's list of buildings")
    parser.add_argument("--taskonomy_clients_to_include", type=POSITIVE_INT, default=3, help="the first n buildings")
    parser.add_argument("--name", default=os.environ.get("USER", ""), help="yours, for Taskonomy's licence")
    parser.add_argument("--email", default="", help="yours, likewise")
    parser.add_flag("--agree_all", False, "agree to the licences of Taskonomy and Omnidata without a question")
    parser.add_flag("--dry_run", False, "only say how much there is to download")
    args = parser.parse_args()
    if args.source in PUBLIC:
        fetch_public(args.source, args.data_path, args.dry_run)
        return
    if args.agree_all and not args.name:
        raise UserError("--agree_all True needs --name, for Taskonomy's licence")
    if args.agree_all and "@" not in args.email:
        raise UserError(
            f"--email {args.email!r} is not an address; --agree_all True needs yours, for Taskonomy's licence"
        )

    listing = subset_list(args.subset)
    buildings = read_buildings(listing)[: args.taskonomy_clients_to_include]
    archives = find_archives([*needed_domains(args.tasks), "class_scene"], buildings)
    report_sizes(archives)
    check_space(archives, args.data_path)
    if args.dry_run:
        return
    fetch(archives, args.data_path, args.name, args.email, args.agree_all)
    for source, target in ((listing, f"{args.subset}.csv"), (CLASS_NAMES, CLASS_NAMES.name)):
        with write_atomically(args.data_path / target) as temporary:
            shutil.copyfile(source, temporary)
    print(f"{len(buildings)} buildings in {args.data_path}: {', '.join(buildings)}")


if __name__ == "__main__":
    run_script(main)
