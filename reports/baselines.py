"""What runs cost over a baseline: runs with one value of an argument, such as FedAvg's or those of shuffled vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.compare import SETTING, Reference, compare, setting
from reports.console import wrapped
from reports.files import write_table
from reports.learnt import beats_trivial
from reports.statistics import MARGIN, Change, judged_rows, mean_text, with_spread
from reports.tables import as_text, differing, varying_arguments
from utils.files import as_file_name
from utils.runs import MEASURED_ON
from utils.words import counted

_LOSSES = (("loss", "trivial"), ("baseline", "baseline_trivial"))


def over_baseline(runs: pd.DataFrame, name: str, value: str) -> pd.DataFrame:
    """The loss over that of the runs in which the argument `name` has this value, as text.

    A row for each setting of the others and part of the data. Runs of `read_runs` are paired by seed where their other
    arguments agree, as far as both have them. What has one value for each value of `name` does not stand in the way,
    nor does a learning rate that has one for each setting of all else. The verdict's p is adjusted over the table;
    there is none where neither loss is clearly below the constant baseline's. Empty where nothing has a partner.
    """
    if name not in runs:
        return pd.DataFrame()
    shown = [argument for argument in varying_arguments(runs) if argument != name]
    keys = list(dict.fromkeys([*SETTING, name, *shown]))
    runs = runs.assign(**runs[keys].map(as_text))
    baseline, compared = runs[runs[name] == value], runs[~runs[name].isin([value, ""])]
    assigned = [part for part in SETTING if part != name]
    rates = [argument for argument in shown if argument.endswith("_lr")]
    others = [argument for argument in shown if argument not in rates]
    alike = [
        *assigned,
        *differing(runs, others, [*assigned, name]),
        *differing(runs, rates, [*assigned, name, *others]),
    ]
    rows: list[tuple[dict[str, Any], Change, bool]] = []
    table = compare(compared, keys, {"baseline": Reference(baseline, alike, loosely=True)}, in_order=False)
    for row in table.to_dict("records"):
        if (change := row["over_baseline"]).seeds:
            cells = setting(row) | {"alpha": row["alpha"] if row["has_alpha"] else ""}
            cells |= {"model": row["model"], "data": MEASURED_ON[row["images"]], "seeds": change.seeds}
            cells |= {"constant baseline": mean_text(row["trivial"], 4)}
            cells |= {value: with_spread(row["baseline"], 4), "loss": with_spread(row["loss"], 4)}
            cells |= {f"over {value}, %": str(change)}
            learnt = {beats_trivial(row[of], row[trivial]) for of, trivial in _LOSSES}
            rows.append((cells, change, False in learnt and True not in learnt))
    return judged_rows(_verdict(value), rows)


def _verdict(value: str) -> str:
    return f"loss beside {value} (margin ±{MARGIN:g} %)"


def report_baselines(runs: pd.DataFrame, baselines: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write a table for each baseline, by default for FedAvg where there are other methods, and say what it finds."""
    default = [("method", "fedavg")] if {"fedavg"} < set(runs["method"]) else []
    for name, value in baselines or default:
        table = over_baseline(runs, name, value)
        if table.empty:
            if baselines:
                known = sorted(set(runs[name].map(as_text)) - {""}) if name in runs else []
                has = f"; runs have {', '.join(known)}" if known else ""
                print(wrapped(f"--baseline {name}={value}: no two finished runs to compare{has}"), end="\n\n")
            continue
        path = folder / as_file_name(f"over_{name}_{value}")
        write_table(table, path)
        words = [verdict.split(" (")[0] for verdict in table[_verdict(value)]]
        amounts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        compared = f"loss compared with {name} {value}, {counted(len(words), 'row')}"
        print(wrapped(f"{compared}: {amounts}; see {path}.md"), end="\n\n")
