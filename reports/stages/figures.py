"""What `make_figures.py` draws of a sweep; each figure imports what it is drawn with, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from network.algorithms import ALGORITHMS
from utils.runs import MEASURED_ON
from utils.settings import REQUIRED, Settings, setting
from utils.stage import shared

if TYPE_CHECKING:
    from reports.finished import Results


def rounds(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """The loss by round, a figure per method."""
    from reports.curves import read_rounds
    from reports.figures import sweeps

    table = read_rounds(results, settings.data, settings.methods)
    for method in settings.methods or dict.fromkeys(table["method"]):
        yield sweeps.rounds(table, settings.data, method, folder / f"rounds_{method}_{settings.data}.png")


def sensitivity(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """The loss after the last round by the values of an argument."""
    from reports.curves import read_last
    from reports.figures import sweeps

    table = read_last(results, settings.data, settings.argument)
    path = folder / f"sensitivity_{settings.argument}_{settings.data}.png"
    yield sweeps.sensitivity(table, settings.data, settings.argument, path)


def distributions(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """What clients have, a figure per task."""
    from reports.curves import read_assigned
    from reports.figures import sweeps

    for task, assigned in read_assigned(results).items():
        yield sweeps.distributions(assigned, task, folder / f"distributions_{task}.png")


def progress(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """A metric by round and by batch."""
    from reports.budgets import read_progress
    from reports.figures.budgets import learning_curves

    table = read_progress(results, settings.metric)
    yield learning_curves(table, settings.metric, folder / f"progress_{settings.metric}.png")


def emd(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """A metric after the last round against the partition's earth mover's distance."""
    from reports.budgets import read_progress, relative
    from reports.figures.budgets import against_emd

    last = relative(read_progress(results, settings.metric))
    yield against_emd(last, settings.metric, folder / f"emd_{settings.metric}.png")


def privacy(settings: FigureSettings, results: Results, folder: Path) -> Iterator[Path]:
    """The loss after the last round by epsilon."""
    from reports.curves import read_private
    from reports.figures import sweeps

    table = read_private(results, settings.data)
    yield sweeps.privacy(table, settings.data, folder / f"privacy_{settings.data}.png")


FIGURES = {each.__name__: each for each in (rounds, sensitivity, distributions, progress, emd, privacy)}


@dataclass(frozen=True)
class FigureSettings(Settings):
    """Which figure is drawn, and of what."""

    heading: ClassVar[str] = "options"

    figure: str = setting(REQUIRED, "what to draw", choices=FIGURES, positional=True)
    result_path: Path = shared("result_path")
    figure_path: Path | None = setting(
        None, "folder for the figures; default: figures/ in the result path", Path, heading="output"
    )
    methods: Sequence[str] = setting(
        (), "federated methods for rounds, a figure each; default: all found", nargs="+", choices=ALGORITHMS
    )
    metric: str = setting("accuracy", "metric for progress and emd; the larger, the better")
    argument: str = setting("init_lr", "argument for sensitivity, in which the runs differ")
    data: str = setting("train", "what losses are measured on; the paper's are on train", choices=MEASURED_ON)
    mixed_versions: bool = setting(
        False, "only warn if the runs of a line have different versions of code or data", bool, heading="running"
    )
