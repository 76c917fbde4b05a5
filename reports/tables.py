"""The finished runs as one frame, and the arguments that tell its settings apart: what tables are made from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from network.attacks import NO_ATTACK
from network.choices import Choices
from network.partition.settings import unread_by
from reports.finished import Results
from reports.labels import headline_metric
from utils.runs import MEASURED_ON, columns_of
from utils.settings import arguments_in

Measured = TypeVar("Measured")
COMPARED = ("class", "embedding")  # partitions that are held against each other, of the `--type` <name>_based
_EXPERIMENT = ["task", "method"]
_SETTING = [*_EXPERIMENT, "alpha"]
SKEW = {
    "target_variance_share": "target share",
    "residual_variance_share": "residual share",
    "emd": "EMD",
    "gradient_dispersion": "V",
}  # by the names in heterogeneity.json
# FedArtML's two, which rank partitions much as EMD does, are in the table of all partitions and in `predictors` alone.
BETWEEN_CLIENTS = {"hellinger": "Hellinger", "jensen_shannon_distance": "JS distance"}
MEASURES = SKEW | BETWEEN_CLIENTS | {"frechet": "Fréchet distance"}
# V of a partition over that of the IID partition with the same seed, whose V is due to chance only.
OVER_IID = "over_iid"
SPENT = {"epsilon": "epsilon", "delta": "at_delta"}  # by a private run, as its last round's metrics call it
CANDIDATES = MEASURES | {OVER_IID: "V over IID's"}  # what may tell a partition's cost
# What assigns the data of a partition: arguments that a random partition does not use.
NOT_IID = {"type", *unread_by("iid")}


def by_setting(
    runs: Sequence[tuple[Mapping[str, Any], Measured]], keys: list[str]
) -> Iterator[tuple[dict[str, Any], list[Measured]]]:
    """Yields each setting of a stage with what was measured of its runs, which are given as their arguments and that.

    A setting is the values of the arguments `keys`, of those that differ between runs with equal `keys`, and, if the
    method is among these, of those that tell methods apart.
    """
    if not runs:
        return
    table = _without_common_folders(pd.DataFrame([args for args, _ in runs]))
    arguments = [name for name in table if name not in {*keys, "rand_seed"}]
    shown = {*differing(table, arguments, keys), *(between_methods(table, arguments) if "method" in keys else ())}
    for setting, part in groups(*in_settings(table, keys, [name for name in arguments if name in shown])):
        yield setting, [runs[row][1] for row in part.index]


def in_settings(
    runs: pd.DataFrame, by: Sequence[str], varying: Sequence[str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The runs, and the columns whose values are a setting: `by` and the `varying` arguments, which become text.

    By default these are the `varying_arguments`.
    """
    varying = varying_arguments(runs) if varying is None else varying
    return runs.assign(**runs[[*varying]].map(as_text)), [*by, *varying]


def groups(
    runs: pd.DataFrame, keys: Sequence[str], in_order: bool = False
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yields each setting, the values of the columns `keys`, with its runs: as the first runs come, or by value."""
    for values, part in runs.groupby([*keys], sort=in_order, dropna=False):
        yield dict(zip(keys, values, strict=True)), part


def read_runs(results: Results) -> pd.DataFrame:
    """All finished federated runs, one row each: arguments, losses of the last round, trivial losses and skew.

    Private runs also have `epsilon` and `at_delta`. Empty if there is no finished run.
    """
    rows = []
    for run in results["test_federated"]:
        row, summary, last = run.settings, run.summary, run.summary["last"]
        name = row["metric"] = headline_metric(run.args["task"], [*summary["trivial"].get("test", ())])
        for images in MEASURED_ON:
            losses, metrics = columns_of(images, "loss"), columns_of(images, name)
            model = next((whose for whose, column in losses.items() if column in last), None)
            row[f"{images}_loss"] = last[losses[model]] if model else np.nan
            row[f"{images}_trivial"] = summary["trivial"].get(images, {}).get("loss", np.nan)
            row[f"{images}_metric"] = last.get(metrics[model], np.nan) if model else np.nan
            row[f"{images}_model"] = model
        whose = "personal_" if row["local_test_model"] == "personal" else ""
        # The loss on the training images of the clients that have held-out ones, too.
        row["tested_train_loss"] = row["local_test_loss"] - last.get(f"{whose}out_of_sample_gap", np.nan)
        for after in summary.get("adaptation", ()):
            row[f"adapted_{after['steps']}_loss"] = after["unseen_test_loss_mean"]
        row |= {column: last[name] for name, column in SPENT.items() if name in last}
        rows.append(row | {name: summary["heterogeneity"].get(name, np.nan) for name in MEASURES})
    table = _without_common_folders(pd.DataFrame(rows))
    return table.fillna({name: argument.default for name, argument in arguments_in(Choices).items() if name in table})


def _without_common_folders(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs with folders among their arguments as paths within what all of these have in common."""
    short = {}
    for name in (column for column in runs if column.endswith("_path")):
        paths = runs[name].dropna().map(Path)
        with suppress(ValueError):  # some absolute and some not
            common = os.path.commonpath([path.parent for path in paths])
            short[name] = paths.map(lambda path, common=common: str(path.relative_to(common)))
    return runs.assign(**short)


def arguments_of(runs: pd.DataFrame) -> list[str]:
    """The columns of `read_runs` that are arguments, but for task, method, partition, alpha and seed."""
    return [name for name in runs if name not in {*_SETTING, "type", "rand_seed"} and not _measured(name)]


def varying_arguments(runs: pd.DataFrame) -> list[str]:
    """The arguments that differ between runs of a task and method, and those that tell methods apart.

    Between IID runs, those that such a partition uses.
    """
    arguments = arguments_of(runs)
    of_random = [name for name in arguments if name not in NOT_IID]
    varying = {
        name
        for part, names in ((runs[runs["type"] != "iid"], arguments), (runs, of_random))
        for name in (*differing(part, names, _EXPERIMENT), *between_methods(part, names))
    }
    return [name for name in arguments if name in varying]


def between_methods(runs: pd.DataFrame, arguments: Sequence[str]) -> list[str]:
    """The arguments of which each method has one value in a task, and not all methods of the task the same.

    These are arguments that all of the task's methods have, such as the clients' learning rate, and learning rates that
    only some have, such as the server's. What else only some have is another thing in each: FedProx's mu and MOON's.
    """
    tasks = [*map(str, runs["task"])]
    varied = []
    for name in arguments:
        values = {*zip(tasks, map(as_text, runs[name]), strict=True)}
        lacking = set() if name.endswith("_lr") else {task for task, value in values if not value}
        counts = Counter(task for task, value in values if value and task not in lacking)
        if max(counts.values(), default=0) > 1:
            varied.append(name)
    within = differing(runs, varied, _EXPERIMENT)
    return [name for name in varied if name not in within]


def differing(
    runs: pd.DataFrame,
    arguments: Sequence[str],
    within: Sequence[str],
    always: tuple[str, ...] = ("evaluate_clients", "attack"),
) -> list[str]:
    """The arguments with more than one value among the runs that agree in the columns `within`.

    What makes a loss another one, that of some clients alone or of a federation under attack, is always said: arguments
    whose names end like these.
    """
    # As text, because nan (an argument that was not given) does not equal itself.
    groups = [*zip(*(map(str, runs[name]) for name in within), strict=True)]
    n_groups = len({*groups})
    several = {name for name in arguments if len({*zip(groups, map(str, runs[name]), strict=True)}) > n_groups}
    requested = [
        name for name in arguments if name.endswith(always) and not {*runs[name].map(as_text)} <= {"", NO_ATTACK}
    ]
    return [name for name in arguments if name in several or name in requested]


def telling(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Of these columns of a setting, task, method and alpha, and those that tell rows apart which agree in the three.

    What all of them have in common is for the table, not for a sentence or a figure.
    """
    within = [name for name in _SETTING if name in table]
    others = differing(table, [name for name in names if name not in _SETTING], within)
    return [name for name in names if name in {*_SETTING, *others}]


def as_text(value: Any) -> str:
    """An argument in a table; nothing where it was not given, as that of a partition rule by the runs of another."""
    if value is None or value != value:  # nan, of a run that has no such argument
        return ""
    is_integer = isinstance(value, float) and value.is_integer()  # also of whole numbers in a column that has gaps
    return f"{value:.0f}" if is_integer else str(value)


def _measured(column: str) -> bool:
    return column in {*MEASURES, *SPENT.values(), "metric"} or column.endswith(
        ("_loss", "_metric", "_trivial", "_model")
    )


def in_words(arguments: Mapping[str, Any]) -> str:
    """A setting in a sentence: task and method by their values, others with their names; nothing of what is empty.

    Alpha may be text.
    """
    formats = {"task": "{}", "method": "{}", "type": "partition by {}", "alpha": "α = {:g}"}
    values = {name: float(value) if name == "alpha" else value for name, value in arguments.items() if value != ""}
    return ", ".join(formats.get(name, f"{name} {{}}").format(value) for name, value in values.items())
