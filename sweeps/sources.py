"""Where an experiment's images come from: the built-in rooms, photographs to be downloaded, or a folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from datasets.table import STAGE, TABLE_FILE
from sweeps.grid import Command
from utils.errors import UserError
from utils.versions import ROOT

ROOMS, NYU = "rooms", "nyu"
_SMALL = ("--n_buildings", "2", "--views_per_building", "60", "--image_size", "32")  # for test mode


@dataclass(frozen=True)
class Source:
    """A data folder, what it is called in the names of other folders (`title`), and the commands that make it."""

    name: str
    folder: Path
    title: str
    commands: tuple[Command, ...] = ()

    @property
    def has_table(self) -> bool:
        """Whether stage 1 has made a table there."""
        return (self.folder / TABLE_FILE).is_file()

    def check(self, buildings: str) -> None:
        """UserError for a folder that has neither a table nor the list of buildings that one is made from."""
        if not self.commands and not self.has_table and not (self.folder / buildings).is_file():
            raise UserError(
                f"{self.folder} has no table of images; run {STAGE} --data_path {self.folder} first, with its --source"
            )

    def prepare(self) -> None:
        """Run the commands; UserError where one fails, which has said why."""
        for command in self.commands:
            run(command)


def run(command: Command) -> None:
    """Run a script, or a module behind `-m`; UserError where it fails, which has then said why."""
    words = command if command[0] == "-m" else (str(ROOT / command[0]), *command[1:])
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    code = subprocess.run([sys.executable, *words], env=os.environ | {"PYTHONPATH": path}, check=False).returncode
    if code:
        raise UserError(f"{shlex.join(['python', *command])} ended with exit code {code}, see above")


def source_of(data: str, test_mode: bool) -> Source:
    """`rooms`, or `rooms:1000` with as many views of each building; `nyu`; or a folder."""
    name, _, views = data.partition(":")
    if name == ROOMS:
        title = f"sample_rooms{'_' if views else ''}{views}"
        folder = Path("data", "sample_rooms_small" if test_mode else title)
        size = _SMALL if test_mode else ("--views_per_building", views) if views else ()
        return Source(ROOMS, folder, title, (("-m", "datasets.rooms.make", "--data_path", str(folder), *size),))
    if data == NYU:
        folder = Path("data", NYU)
        where = ("--source", NYU, "--data_path", str(folder))
        made = Source(NYU, folder, NYU)
        return (
            made if made.has_table else Source(NYU, folder, NYU, (("-m", "datasets.download", *where), (STAGE, *where)))
        )
    return folder_source(Path(data))


def given_source(data: str, test_mode: bool) -> Source:
    """A folder that is there, whatever its name; otherwise as `source_of`."""
    folder = Path(data)
    return folder_source(folder) if folder.is_dir() else source_of(data, test_mode)


def folder_source(folder: Path) -> Source:
    """A folder that is there."""
    return Source("folder", folder, folder.resolve().name)
