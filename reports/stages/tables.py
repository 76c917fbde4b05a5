"""Tables and figures of runs: what has been learnt, what partitions cost, and what else runs tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from datasets.tasks import TASKS
from reports.baselines import report_baselines
from reports.console import before, report_table, titled, wrapped
from reports.equal_skew import equal_skew
from reports.figures.comparison import comparison as draw
from reports.files import write_table
from reports.gaps import report_gaps
from reports.learnt import NO
from reports.predictors import predictors, split_costs
from reports.privacy import noise_costs
from reports.splits import in_short, increases, methods, readable, side_by_side, splits_over_iid, splits_table
from reports.tables import COMPARED
from reports.trivial import central_not_learnt, learnt_table, not_learnt
from reports.verdicts import WORDS, alpha_slopes, headlines, verdicts


def report_learnt(central: pd.DataFrame, runs: pd.DataFrame, folder: Path) -> None:
    """Write the IID runs beside the constant baseline, and print what they, and central models, have not learnt.

    The tables come from `read_central` and `read_runs`; either may be empty.
    """
    lines = central_not_learnt(central)
    if not runs.empty and not (table := learnt_table(runs)).empty:
        write_table(table, folder / "learnt")
        lines += not_learnt(table)
    if lines:
        print("not learnt:", *map(wrapped, lines), "", sep="\n")


def report_runs(runs: pd.DataFrame, baselines: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write and print what runs show of partitions, predictors of cost, privacy, methods and non-participating clients.

    `baselines` are names and values of arguments, whose runs others are held against. `runs` comes from
    `reports.tables.read_runs`.
    """
    at_equal_skew = "cost on client train where both partitions separate an equal share of the target"
    tables = {
        "predictors": ("which measure of a partition predicts its cost", predictors(split_costs(runs))),
        "equal_skew": (at_equal_skew, equal_skew(runs)),
        "privacy": ("what noise costs", noise_costs(runs)),
    }
    for name, (heading, table) in tables.items():
        report_table(heading, table, folder / name)
    report_baselines(runs, baselines, folder)
    report_splits(runs, folder)
    report_gaps(runs, folder)


def report_splits(runs: pd.DataFrame, folder: Path) -> None:
    """Write what partitions cost, in full, in short and in words; draw it, and print it in short."""
    splits, compared = splits_over_iid(runs), side_by_side(runs)
    if splits.empty:
        return
    text = splits_table(splits)
    write_table(text, folder / "splits")
    write_table(increases(splits), folder / "increases")
    if not (by_method := methods(splits)).empty:
        write_table(by_method, folder / "methods")
    judged = _report_comparison(compared, folder)
    others = text if compared.empty else text[~text["type"].isin(COMPARED)]
    if not others.empty:
        keys = before(others, "seeds")
        print(f"{titled('what partitions cost over IID', others, keys, f'{folder}/splits.md')}\n")
    print(f"figure in {draw(splits, folder / 'comparison.png')}\n")
    for heading, lines in headlines(judged, text).items():
        print(f"{heading}:", *map(wrapped, lines), "", sep="\n")


def _report_comparison(compared: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write the rows of `side_by_side` and their verdicts, print the former in short; returns the verdicts."""
    if compared.empty:
        return compared
    judged = verdicts(compared, [task.name for task in TASKS.values() if task.dense])
    write_table(readable(compared), folder / "comparison")
    write_table(judged, folder / "verdicts")
    if not (slopes := alpha_slopes(compared)).empty:
        write_table(slopes, folder / "alpha_slopes")
    for heading, table in in_short(compared):
        print(f"{titled(heading, table, list(table.loc[:, :'α']), f'{folder}/comparison.md')}\n")
    if (compared["learnt"] == NO).any():
        print("* not learnt: the loss under IID is not clearly below the constant baseline's\n")
    print(f"({wrapped(WORDS)})\n")
    return judged
