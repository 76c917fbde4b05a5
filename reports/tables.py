"""The paper's comparison from run directories: what a split costs, by task, method and alpha."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from network.attacks import NO_ATTACK
from network.choices import Choices
from network.partition.rules import uses_alpha
from network.partition.settings import unread_by
from reports.finished import Results
from reports.labels import headline_metric
from reports.learnt import NO, learnt
from reports.statistics import increase, mean_text, with_interval, with_spread
from utils.runs import MEASURED_ON
from utils.settings import arguments_in

# The columns of the loss by the images that it is measured on; the first counts: personal models where there are some.
LOSS_COLUMNS = {
    "train": ("personal_train_loss_mean", "train_loss_mean"),
    "local_test": ("personal_local_test_loss_mean", "local_test_loss_mean"),
    "test": ("test_loss",),
    "unseen_train": ("unseen_train_loss_mean",),
    "unseen_test": ("unseen_test_loss_mean",),
}
COMPARED = ("class", "embedding")  # splits that are held against each other, of the `--type` <name>_based
_WHOSE = {"personal": "personal", "unseen": "received"}  # model it is, by the first word of its columns
_EXPERIMENT = ["task", "method"]
_SETTING = [*_EXPERIMENT, "alpha"]
SKEW = {
    "target_variance_share": "target share",
    "residual_variance_share": "residual share",
    "emd": "EMD",
    "gradient_dispersion": "V",
}  # by the names in heterogeneity.json
# FedArtML's two, which rank splits much as EMD does, are in the table of all splits and in `predictors` alone.
BETWEEN_CLIENTS = {"hellinger": "Hellinger", "jensen_shannon_distance": "JS distance"}
MEASURES = SKEW | BETWEEN_CLIENTS | {"frechet": "Fréchet distance"}
OVER_IID = "over_iid"  # V of a split over that of the IID split with the same seed, whose V is due to chance only
SPENT = {"epsilon": "epsilon", "delta": "at_delta"}  # by a private run, as its last round's metrics call it
CANDIDATES = MEASURES | {OVER_IID: "V over IID's"}  # what may tell a split's cost
# What assigns the data of a split: arguments that a random split does not use.
NOT_IID = {"type", *unread_by("iid")}


def by_setting(
    runs: Sequence[Mapping[str, Any]], keys: list[str], *measured: str
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yields each setting of a stage with its runs, given as their arguments and what was `measured` of them.

    A setting is the values of the arguments `keys`, of those that differ between runs with equal `keys`, and, if the
    method is among these, of those that tell methods apart.
    """
    if not runs:
        return
    table = _without_common_folders(pd.DataFrame(runs))
    arguments = [name for name in table if name not in {*keys, *measured, "rand_seed"}]
    shown = {*differing(table, arguments, keys), *(between_methods(table, arguments) if "method" in keys else ())}
    varying = [name for name in arguments if name in shown]
    table = table.assign(**table[varying].map(as_text))
    for values, part in table.groupby([*keys, *varying], sort=False):
        yield dict(zip([*keys, *varying], values, strict=True)), part


def read_runs(results: Results) -> pd.DataFrame:
    """All finished federated runs, one row each: arguments, losses of the last round, trivial losses and skew.

    Private runs also have `epsilon` and `at_delta`. Empty if there is no finished run.
    """
    rows = []
    for run in results["test_federated"]:
        row, summary = run.settings, run.summary
        name = row["metric"] = headline_metric(run.args["task"], [*summary["trivial"].get("test", ())])
        for images, columns in LOSS_COLUMNS.items():
            present = [column for column in columns if column in summary["last"]]
            row[f"{images}_loss"] = summary["last"][present[0]] if present else np.nan
            row[f"{images}_trivial"] = summary["trivial"].get(images, {}).get("loss", np.nan)
            row[f"{images}_metric"] = (
                summary["last"].get(present[0].replace("loss", name), np.nan) if present else np.nan
            )
            row[f"{images}_model"] = _WHOSE.get(present[0].split("_")[0], "global") if present else None
        whose = "personal_" if row["local_test_model"] == "personal" else ""
        # The loss on the training images of the clients that have held-out ones, too.
        row["tested_train_loss"] = row["local_test_loss"] - summary["last"].get(f"{whose}out_of_sample_gap", np.nan)
        for after in summary.get("adaptation", ()):
            row[f"adapted_{after['steps']}_loss"] = after["unseen_test_loss_mean"]
        row |= {column: summary["last"][name] for name, column in SPENT.items() if name in summary["last"]}
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


def compare(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per task, method, alpha and part of the data (column `images`), with every loss by seed.

    Columns `iid`, `class`, `embedding` hold arrays of losses over `seeds`, and `trivial_iid`, `trivial_class` and
    `trivial` the constant baseline's, which on clients' images depend on the split, too; `class_emd`, `embedding_emd`,
    `class_gradient_dispersion` and so on hold the mean skew; `model` says whether the losses are those of the global
    model or of personal ones. A method has no row for data on which it has no loss. Runs are paired by seed; seeds
    without both splits are left out. Other arguments that differ between the runs of a task and method become columns
    of the setting, so that different settings are never mixed. Empty if no setting has both splits.
    """
    rows = []
    for fixed, part, iid in settings(runs, _SETTING):
        of_class, embedding = (part[part["type"] == f"{split}_based"].set_index("rand_seed") for split in COMPARED)
        if seeds := sorted({*of_class.index} & {*embedding.index}):
            rows += [
                fixed | {"seeds": seeds} | row for row in _by_images(of_class.loc[seeds], embedding.loc[seeds], iid)
            ]
    return pd.DataFrame(rows)


def by_seed(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a setting by seed, in order; the last one where a seed was run twice."""
    return runs.drop_duplicates("rand_seed", keep="last").set_index("rand_seed").sort_index()


def assigned_by_alpha(runs: pd.DataFrame, kind: str) -> bool:
    """Whether alpha has a part in what these runs of a `--type` have assigned."""
    return any(uses_alpha(kind, rule) for rule in runs.get("partition", [None]))


def settings(runs: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]]:
    """Yields each setting with its runs of splits other than IID, and the IID runs, by seed, to compare them with.

    A setting is the values of the columns `by`, and of the `varying_arguments`. IID runs match whatever their values of
    arguments that a random split does not use, such as alpha.
    """
    varying = varying_arguments(runs)
    keys = [*by, *varying]
    shared = [name for name in by if name not in NOT_IID]
    matching = {tuple(fixed.items()): iid for fixed, iid in random_settings(runs, shared)}
    runs = runs.assign(**runs[varying].map(as_text))
    none = runs[:0].set_index("rand_seed")
    for values, part in runs[runs["type"] != "iid"].groupby(keys, dropna=False):
        fixed = dict(zip(keys, values, strict=True))
        of_random = tuple((name, value) for name, value in fixed.items() if name not in NOT_IID)
        yield fixed, part, matching.get(of_random, none)


def random_settings(runs: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yields each setting of the IID runs with these, by seed, also where nothing else was assigned.

    A setting is as in `settings`, without the arguments that a random split does not use.
    """
    varying = [name for name in varying_arguments(runs) if name not in NOT_IID]
    keys = [*by, *varying]
    iid = runs[runs["type"] == "iid"]
    iid = iid.assign(**iid[varying].map(as_text)).drop_duplicates([*keys, "rand_seed"], keep="last")
    for values, part in iid.set_index("rand_seed").groupby(keys):
        yield dict(zip(keys, values, strict=True)), part


def arguments_of(runs: pd.DataFrame) -> list[str]:
    """The columns of `read_runs` that are arguments, but for task, method, split, alpha and seed."""
    return [name for name in runs if name not in {*_SETTING, "type", "rand_seed"} and not _measured(name)]


def varying_arguments(runs: pd.DataFrame) -> list[str]:
    """The arguments that differ between runs of a task and method, and those that tell methods apart.

    Between IID runs, those that such a split uses.
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


def _by_images(of_class: pd.DataFrame, embedding: pd.DataFrame, iid: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Losses and skew of the same seeds' runs under three splits: a row per part of the data."""
    runs_of = dict(zip(COMPARED, (of_class, embedding), strict=True))
    skew = {f"{split}_{name}": runs[name].mean() for split, runs in runs_of.items() for name in SKEW}
    for images in MEASURED_ON:
        column = f"{images}_loss"
        if embedding[column].notna().any():
            losses = {
                "class": of_class[column],
                "embedding": embedding[column],
                "iid": iid[column].reindex(embedding.index),
                "trivial": embedding[f"{images}_trivial"],
                "trivial_class": of_class[f"{images}_trivial"],
                "trivial_iid": iid[f"{images}_trivial"].reindex(embedding.index),
            }
            cells = {"images": images, "model": embedding[f"{images}_model"].iloc[0]}
            cells |= {"learnt": learnt(iid, images), "metric": embedding["metric"].iloc[0]}
            cells |= {
                f"{split}_metric": of[f"{images}_metric"].mean()
                for split, of in (("iid", iid.reindex(embedding.index)), *runs_of.items())
            }
            yield cells | {name: values.to_numpy() for name, values in losses.items()} | skew


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


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The comparison as text: losses with mean ± standard deviation over seeds, increases with their 95 % intervals."""
    rows = []
    for row in table.to_dict("records"):
        skew = {
            f"{label} class / embedding": f"{row[f'class_{name}']:.2f} / {row[f'embedding_{name}']:.2f}"
            for name, label in SKEW.items()
            if np.isfinite(row[f"class_{name}"])
        }
        rows.append(
            row_labels(row)
            | {
                "learnt": row["learnt"],
                "seeds": len(row["seeds"]),
                "trivial": trivial_text(4, row["trivial_iid"], row["trivial_class"], row["trivial"]),
                "IID": with_spread(row["iid"], 4),
                "class": with_spread(row["class"], 4),
                "embedding": with_spread(row["embedding"], 4),
                "class over IID, %": with_interval(increase(row["class"], row["iid"]), 1, "+"),
                "embedding over IID, %": with_interval(increase(row["embedding"], row["iid"]), 1, "+"),
                "embedding over class, %": with_interval(increase(row["embedding"], row["class"]), 1, "+"),
            }
            | skew
        )
    return pd.DataFrame(rows)


def in_short(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The comparison in narrow tables, one per method, model and part of the data, each with its title.

    As text, in 100 columns: the constant baseline's and the runs' loss, both under the IID split, and the increases in
    percent with 95 % intervals; an asterisk marks what has not been learnt under IID. Where there are more methods than
    tasks, it is one per task. Global test comes last, where a reader of the console looks first.
    """
    order = {images: rank for rank, images in enumerate(sorted(MEASURED_ON, key=lambda images: images == "test"))}
    last = table.sort_values("images", key=lambda column: column.map(order), kind="stable")
    apart = "task" if table["method"].nunique() > table["task"].nunique() else "method"
    for (images, named, model), part in last.groupby(["images", apart, "model"], sort=False):
        rows = [
            {name: value for name, value in setting(row).items() if name not in {apart, "alpha"}}
            | {
                "α": f"{row['alpha']:g}",
                "trivial, IID": mean_text(row["trivial_iid"], 3),
                "IID": mean_text(row["iid"], 3) + "*" * (row["learnt"] == NO),
                "class over IID, %": with_interval(increase(row["class"], row["iid"]), 1, "+"),
                "embedding over IID, %": with_interval(increase(row["embedding"], row["iid"]), 1, "+"),
                "embedding over class, %": with_interval(increase(row["embedding"], row["class"]), 1, "+"),
            }
            for row in part.to_dict("records")
        ]
        yield f"{named}, {model} model, {MEASURED_ON[images]}", pd.DataFrame(rows)


def row_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    """The setting, model and data of a row of `compare`, in the words of the tables."""
    return setting(row) | {"model": row["model"], "data": MEASURED_ON[row["images"]]}


def setting(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task, method, alpha and differing arguments of a row of `compare`."""
    measured = {"seeds", "class", "embedding", "iid", "images", "model", "learnt", "metric"}
    measured |= {"trivial", "trivial_class", "trivial_iid"} | {f"{split}_metric" for split in ("iid", *COMPARED)}
    measured |= {f"{split}_{name}" for split in COMPARED for name in SKEW}
    return {name: value for name, value in row.items() if name not in measured}


def trivial_text(digits: int, *of_splits: np.ndarray) -> str:
    """The constant baseline's mean losses under these splits: one where they do not differ, else all, in their order.

    Splits without runs are left out.
    """
    means = [mean_text(np.asarray(values), digits) for values in of_splits if np.isfinite(values).any()]
    return " / ".join(means if len({*means}) > 1 else means[:1]) or "–"


def alike_but(table: pd.DataFrame, name: str) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of `compare` in groups that differ only in this part of the setting, each with `about` it but for that.

    In the order in which the groups' first rows stand. What each method has one value of in a task, such as a learning
    rate, may differ between tasks.
    """
    if table.empty:
        return
    arguments = [part for part in setting(table.iloc[0].to_dict()) if part not in _SETTING]
    own = {*arguments}.difference(differing(table, arguments, _EXPERIMENT)) if name == "task" else set()
    fixed = [part for part in (*_SETTING, *arguments) if part not in {name, *own}]
    for _, group in table.groupby([*fixed, "images", "model"], sort=False, dropna=False):
        yield (
            {part: value for part, value in row_labels(group.iloc[0].to_dict()).items() if part not in {name, *own}},
            group,
        )


def in_words(arguments: Mapping[str, Any]) -> str:
    """A setting in a sentence: task and method by their values, others with their names; nothing of what is empty.

    Alpha may be text.
    """
    formats = {"task": "{}", "method": "{}", "split": "split by {}", "alpha": "α = {:g}"}
    values = {name: float(value) if name == "alpha" else value for name, value in arguments.items() if value != ""}
    return ", ".join(formats.get(name, f"{name} {{}}").format(value) for name, value in values.items())
