"""What is made of an experiment's results: tables, figures, a report, and probes of encoders."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sweeps.grid import Command, Grid
from sweeps.sources import run
from utils.errors import UserError
from utils.files import files_below

# The keys of `[make]`: arguments of make_tables.py (or true), tables of those of make_figures.py, whether to make the
# report and to probe encoders, a folder that all grids' records are copied to for one table of all, patterns of the
# files to name at the end, in each folder that tables are made of, and what to say where runs failed without which the
# rest can be made.
MAKE: dict[str, Any] = {
    "tables": object(), "figures": [], "report": False, "probes": False, "gather": "", "show": [], "without_failed": "",
}  # fmt: skip
_STAGES = ("train_centralized", "test_federated")


@dataclass(frozen=True)
class Outputs:
    """What `[make]` asks for of the runs in some folders.

    `folders` are those of the grids' runs, in order.
    """

    result_path: Path
    data_path: Path
    folders: tuple[Path, ...]
    grids: tuple[Grid, ...]
    make: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise UserError for tables and figures that say neither what to draw nor arguments."""
        if not isinstance(self.make.get("tables", True), bool | Mapping):
            raise UserError("make: tables must be true or a table of arguments of make_tables.py")
        for figure in self.make.get("figures", ()):
            if not isinstance(figure, Mapping) or "figure" not in figure:
                raise UserError('make: figures must be tables such as { figure = "progress", metric = "accuracy" }')

    def commands(self) -> Iterator[Command]:
        """The commands, in order; those of each folder together, or of the one that all are gathered in."""
        for folder in self._shown:
            if (given := self.make.get("tables", False)) is not False:
                yield self._tables(folder, {} if given is True else given)
            for figure in self.make.get("figures", ()):
                further = {name: value for name, value in figure.items() if name != "figure"}
                yield ("make_figures.py", figure["figure"], *self._words(further, folder), "--result_path", str(folder))
            if self.make.get("report"):
                yield ("make_report.py", "--result_path", str(folder))

    def run(self) -> None:
        """Gather, run the commands, probe, and name the files that are asked for; UserError where a command fails."""
        if gather := self.make.get("gather"):
            self._gather(self.result_path / gather)
        probed = [path for folder in self.folders for path in _runs(folder)] if self.make.get("probes") else []
        for command in (*self.commands(), *(("linear_probe.py", "--run", str(path)) for path in probed)):
            run(command)
        if not self.make:
            for folder in filter(_runs, self.folders):
                tables = shlex.join(("python", *self._tables(folder, {})))
                print(f"figures of these runs: python make_figures.py --help; tables: {tables}")
        for folder, pattern in product(self._shown, self.make.get("show", ())):
            for text in dict.fromkeys(self._filled(pattern, folder, task) for task in self._tasks()):
                for path in _newest(folder, text):
                    print(path)

    def _tables(self, folder: Path, further: Mapping[str, Any]) -> Command:
        """The command that makes the tables of a folder's runs, with the sweep's own clusters."""
        arguments = {"assignment_files_path": self._first(folder).first_clusters, **further}
        where = ("--result_path", str(folder), "--data_path", str(self.data_path))
        return ("make_tables.py", *where, *self._words(arguments, folder))

    @property
    def _shown(self) -> tuple[Path, ...]:
        """The folders that tables and figures are made of, and lie in."""
        gather = self.make.get("gather")
        return (self.result_path / gather,) if gather else self.folders

    def _first(self, folder: Path) -> Grid:
        """The first of the grids whose runs lie in a folder; of a folder that all are gathered in, the first of all."""
        return next((grid for grid in self.grids if grid.runs_path == folder), self.grids[0])

    def _tasks(self) -> list[str]:
        return list(dict.fromkeys(task for grid in self.grids for task in grid.tasks))

    def _words(self, arguments: Mapping[str, Any], folder: Path) -> Command:
        """The words of some arguments, with what stands for values of the grids filled in."""
        words: list[str] = []
        for name, value in arguments.items():
            if value == "{methods}":
                value = list(dict.fromkeys(method for grid in self.grids for method in grid.methods))
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}", *(self._filled(each, folder) for each in values)]
        return tuple(words)

    def _filled(self, text: Any, folder: Path, task: str = "") -> str:
        """A text with a folder, its first seed and number of clusters, and a task, for their names in braces."""
        first = self._first(folder)
        known = {
            "folder": folder,
            "result_path": self.result_path,
            "seed": first.seeds[0],
            "n_clusters": first.n_clusters[0],
        }
        try:
            return str(text).format(**known, task=task)
        except (KeyError, IndexError, ValueError) as error:
            raise UserError(f"make: in braces of {text!r} there may be {', '.join(known)} and task") from error

    def _gather(self, together: Path) -> None:
        """Copy the records of all folders' runs, not their models, into one folder, for one table of all."""
        for folder in self.folders:
            for stage in _STAGES:
                for path in files_below(folder / stage, "*"):
                    if path.suffix == ".json" or path.name == "metrics.csv":
                        to = together / stage / folder.name / path.relative_to(folder / stage)
                        to.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy2(path, to)


def _runs(folder: Path) -> list[Path]:
    """The finished federated runs in a folder."""
    return [path.parent for path in files_below(folder / "test_federated", "summary.json")]


def _newest(folder: Path, pattern: str) -> list[Path]:
    """Of the files that fit a pattern, those in the run, or folder of figures, that was written last."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    return sorted(path for path in found if path.parent == found[-1].parent)
