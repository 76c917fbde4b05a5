"""Download what the experiments need of Taskonomy, and no more, through omnidata-tools.

    python -m datasets.download --data_path taskonomy_dataset --name NAME --email EMAIL --agree_all True

fetches the paper's three buildings with the files of all tasks. The sizes come first, from the server, with the space
that is left on the disk; `--dry_run True` ends there. What is there already is not fetched again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import requests

from datasets.selection import needed_domains
from datasets.taskonomy import read_buildings
from datasets.tasks import TASKS
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script
from utils.files import write_atomically

SUBSETS = ("tiny", "medium", "full", "fullplus")
CLASS_NAMES = Path(__file__).with_name("places_class_names.txt")
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


def subset_list(subset: str) -> Path:
    """The official list of a subset's buildings, which omnidata-tools carries along."""
    from omnidata_tools.dataset.starter_dataset.component_datasets import taskonomy

    return Path(taskonomy.__file__).with_name(f"train_val_test_{subset}.csv")


def find_archives(domains: Sequence[str], buildings: Sequence[str]) -> list[Archive]:
    """The archives of these domains and buildings, with their sizes as the server states them.

    Raises UserError where the server cannot be reached or lacks one of them.
    """
    from omnidata_tools.dataset.starter_dataset import STARTER_DATASET_REMOTE_SERVER_METADATAS, TaskonomyMetadata

    [server] = [each for each in STARTER_DATASET_REMOTE_SERVER_METADATAS if isinstance(each, TaskonomyMetadata)]
    try:
        urls = {(model.domain, model.model_name): model.url for model in server.models}
        wanted = [(domain, building) for building in buildings for domain in domains]
        if absent := [f"{domain} of {building}" for domain, building in wanted if (domain, building) not in urls]:
            raise UserError(f"{server.link_file} does not list {', '.join(absent)}; leave out its task or building")
        with ThreadPoolExecutor(16) as pool:
            sizes = list(pool.map(_size, (urls[key] for key in wanted)))
    except (requests.RequestException, KeyError, ValueError) as error:
        raise UserError(f"{server.link_file}: cannot get the list of files ({error}); try again later") from error
    return [Archive(*key, urls[key], size) for key, size in zip(wanted, sizes, strict=True)]


def _size(url: str) -> int:
    reply = requests.head(url, allow_redirects=True, timeout=_TIMEOUT)
    reply.raise_for_status()
    return int(reply.headers["Content-Length"])


def report_sizes(archives: Sequence[Archive]) -> None:
    """Print gigabytes a domain (rows) and building (columns), with the sums."""
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
    there = next(path for path in (data_path, *data_path.resolve().parents) if path.exists())
    free = shutil.disk_usage(there).free
    print(f"{needed / 1e9:.2f} GB needed while downloading, {free / 1e9:.2f} GB free in {there}")
    if needed > free:
        raise UserError(f"{data_path}: {needed / 1e9:.2f} GB needed and {free / 1e9:.2f} GB free; see --data_path")


def fetch(archives: Sequence[Archive], data_path: Path, name: str, email: str, agree_all: bool) -> None:
    """Download and unpack the archives; UserError where any is missing afterwards."""
    from omnidata_tools.dataset import download as omnitools

    if shutil.which("aria2c") is None:
        raise UserError("omnidata-tools needs the program aria2c; install it (Debian: apt install aria2)")
    # The tool knows whole subsets only, and looks them up here by name.
    subsets = omnitools.STARTER_DATA_COMPONENT_TO_SUBSET["taskonomy"]
    subsets["chosen"] = {archive.building for archive in archives}
    try:
        omnitools.download(
            list(dict.fromkeys(archive.domain for archive in archives)), subset="chosen", components=["taskonomy"],
            dest=str(data_path), dest_compressed=str(data_path / "compressed"), n_workers=_WORKERS,
            # Without a server of its own, which would listen on all network interfaces.
            aria2_uri=None, aria2_create_server=False, name=name, email=email, agree_all=agree_all,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the download failed ({error}); the same command again continues it") from error
    if missing := [str(a.folder(data_path)) for a in archives if not any(a.folder(data_path).glob("*"))]:
        raise UserError(f"{', '.join(missing)} did not come; the same command again continues the download")


def main() -> None:
    """Report the sizes, download, and put the lists that stage 1 reads beside the data."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--data_path", type=Path, default=Path("taskonomy_dataset"), help="data folder")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="whose files are needed")
    parser.add_argument("--subset", choices=SUBSETS, default="tiny", help="Taskonomy's list of buildings")
    parser.add_argument("--taskonomy_clients_to_include", type=POSITIVE_INT, default=3, help="the first n buildings")
    parser.add_argument("--name", default=os.environ.get("USER", ""), help="yours, for Taskonomy's licence")
    parser.add_argument("--email", default="", help="yours, likewise")
    parser.add_flag("--agree_all", False, "agree to the licences of Taskonomy and Omnidata without being asked")
    parser.add_flag("--dry_run", False, "only say how much there is to download")
    args = parser.parse_args()
    if args.agree_all and not (args.name and "@" in args.email):
        raise UserError("--agree_all True needs --name and --email")

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
