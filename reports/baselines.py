"""What runs cost over a baseline: runs with one value of an argument, such as FedAvg's or those of shuffled vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.console import wrapped
from reports.files import write_table
from reports.learnt import beats_trivial
from reports.statistics import MARGIN, finite, increase, judged_rows, mean_text, with_interval, with_spread
from reports.tables import as_text, assigned_by_alpha, by_seed, differing, varying_arguments
from utils.files import as_file_name
from utils.runs import MEASURED_ON
from utils.words import counted


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
    runs = runs.assign(**runs[[name, "alpha", *shown]].map(as_text))
    baseline, compared = runs[runs[name] == value], runs[~runs[name].isin([value, ""])]
    assigned = [part for part in ("task", "method", "type", "alpha") if part != name]
    rates = [argument for argument in shown if argument.endswith("_lr")]
    others = [argument for argument in shown if argument not in rates]
    alike = [
        *assigned,
        *differing(runs, others, [*assigned, name]),
        *differing(runs, rates, [*assigned, name, *others]),
    ]
    rows: list[tuple[dict[str, Any], Any, bool]] = []
    keys = list(dict.fromkeys(["task", "method", "type", "alpha", name, *shown]))
    for values, part in compared.groupby(keys, sort=False):
        labels = dict(zip(keys, values, strict=True))
        loss = by_seed(part)
        reference = _partners(baseline, labels, alike).reindex(loss.index)
        alpha = labels["alpha"] if assigned_by_alpha(part, labels["type"]) else ""
        labels |= {"type": labels["type"].removesuffix("_based"), "alpha": alpha}
        for images, data in MEASURED_ON.items():
            column = f"{images}_loss"
            change = increase(loss[column].to_numpy(float), reference[column].to_numpy(float))
            if seeds := len(finite(change)):
                cells = {"model": loss[f"{images}_model"].iloc[0], "data": data, "seeds": seeds}
                cells |= {"trivial": mean_text(loss[f"{images}_trivial"], 4)}
                cells |= {value: with_spread(reference[column], 4), "loss": with_spread(loss[column], 4)}
                cells |= {f"over {value}, %": with_interval(change, 1, "+")}
                learnt = {beats_trivial(of[column], of[f"{images}_trivial"]) for of in (loss, reference)}
                rows.append((labels | cells, change, False in learnt and True not in learnt))
    return judged_rows(_verdict(value), rows).rename(columns={"type": "split"})


def _partners(baseline: pd.DataFrame, labels: Mapping[str, str], keys: Sequence[str]) -> pd.DataFrame:
    """The baseline's runs by seed that agree in these columns where both have a value; none if that leaves a choice."""
    agree = [baseline[key].isin([labels[key], ""]) | (labels[key] == "") for key in keys]
    partners = baseline[np.logical_and.reduce(agree)]
    return partners.set_index("rand_seed") if partners["rand_seed"].is_unique else partners[:0].set_index("rand_seed")


def _verdict(value: str) -> str:
    return f"loss beside {value} (margin ±{MARGIN:g} %)"


def report_baselines(runs: pd.DataFrame, baselines: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write a table for each baseline, by default for FedAvg where there are other methods, and say what it finds."""
    default = [("method", "fedavg")] if {"fedavg"} < set(runs["method"]) else []
    for name, value in baselines or default:
        table = over_baseline(runs, name, value)
        if table.empty and baselines:
            known = sorted(set(runs[name].map(as_text)) - {""}) if name in runs else []
            has = f"; runs have {', '.join(known)}" if known else ""
            print(wrapped(f"--baseline {name}={value}: no two finished runs to compare{has}"), end="\n\n")
        if table.empty:
            continue
        path = folder / as_file_name(f"over_{name}_{value}")
        write_table(table, path)
        words = [verdict.split(" (")[0] for verdict in table[_verdict(value)]]
        amounts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        compared = f"loss compared with {name} {value}, {counted(len(words), 'row')}"
        print(wrapped(f"{compared}: {amounts}; see {path}.md"), end="\n\n")
