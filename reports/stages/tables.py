"""Tables of federated runs beside those of what splits cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reports.baselines import report_baselines
from reports.console import narrow
from reports.equal_skew import equal_skew
from reports.files import write_table
from reports.predictors import predictors, split_costs
from reports.privacy import noise_costs


def report_runs(runs: pd.DataFrame, baselines: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write and print what predicts costs, and costs at equal skew, of privacy and over `baselines` that runs tell.

    `runs` comes from `reports.tables.read_runs`.
    """
    tables = {
        "predictors": ("which measure of a partition predicts its cost", predictors(split_costs(runs)), 1),
        "equal_skew": ("own data, at equal shares of the target between clients", equal_skew(runs), 1),
        "privacy": ("what noise costs", noise_costs(runs), 3),
    }
    for name, (heading, table, n_keys) in tables.items():
        if not table.empty:
            write_table(table, folder / name)
            print(f"{heading}\n{narrow(table, list(table)[:n_keys])}\n")
    report_baselines(runs, baselines, folder)
