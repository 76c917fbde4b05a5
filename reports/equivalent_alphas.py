"""What partitions cost by the α from which their clients look drawn, by class and by cluster, and by target share.

    python -m reports.equivalent_alphas results/pacs_own_clients results/digits_own_clients

The command takes the finished runs of each result folder, with the IID run and the clusters of each seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from datasets.table import Table, read_table
from network.partition.assigning import read_partition
from network.partition.assignments import read_assignments
from network.partition.equivalent_alpha import equivalent_alpha
from network.partition.heterogeneity import sparse_counts
from network.partition.rules import uses_alpha
from reports.console import titled
from reports.files import write_table
from reports.finished import Finished, Results, check_versions
from reports.predictors import OWN, folder_names, measured_on, permuted, rank_correlation
from reports.statistics import Change, increase
from reports.tables import NOT_IID, groups
from utils.errors import UserError, run_script
from utils.settings import REQUIRED, Settings, setting

SHARE = "target_variance_share"
# Of a partition, by column: what a figure's axis says.
BY = {
    "class": "equivalent α by class",
    "cluster": "equivalent α by cluster",
    SHARE: "target share between clients",
}
LOSSES = {OWN: f"{OWN}_mean", "test_loss": "test_loss"}  # and where a run's last round has them
IID = "iid"


def costs(results: Results) -> pd.DataFrame:
    """What each run costs over the IID run of its seed, in percent, beside the measures of its partition.

    Columns: `task`, `type` (the partition type, and alpha where it depends on one), `rand_seed`, and those of `BY`.
    There α is infinite where the counts do not distinguish clients from IID ones. Each of the `LOSSES` has its increase
    (by its name) and the losses of the partition, of IID clients and of the constant baseline (`<name>_split`, `_iid`,
    `_constant`).

    Raises:
        UserError: if no run has an IID run to compare with.
    """
    runs = results["test_federated"]
    iid = {_alike(run): run for run in runs if run.args["type"] == IID}
    read, rows = cache(read_table), []
    for run in (candidate for candidate in runs if candidate.args["type"] != IID and _alike(candidate) in iid):
        table = read(Path(run.args["data_path"]))
        clusters = read_assignments(run.args["task"], table, Path(run.args["assignment_files_path"]))
        client_of = read_partition(run.path).participants.client_of
        about = {"task": run.args["task"], "type": _split(run, table), "rand_seed": run.args["rand_seed"]}
        of_partition = {
            "class": _alpha(client_of, table.labels),
            "cluster": _alpha(client_of, clusters),
            SHARE: run.summary["heterogeneity"][SHARE],
        }
        rows.append(about | of_partition | _losses(run, iid[_alike(run)]))
    if not rows:
        raise UserError(f"{results.path} has no finished run of a partition with an IID run of its seed")
    return pd.DataFrame(rows)


def _losses(run: Finished, iid: Finished) -> dict[str, float]:
    """The `LOSSES` of a run, of the IID run and of the constant baseline, and their increases."""
    found: dict[str, float] = {}
    for name, column in LOSSES.items():
        split, reference = run.summary["last"][column], iid.summary["last"][column]
        constant = run.summary["trivial"][name.removesuffix("_loss")]["loss"]
        found[name] = float(increase(np.array(split), np.array(reference)))
        found |= {f"{name}_split": split, f"{name}_iid": reference, f"{name}_constant": constant}
    return found


def _alike(run: Finished) -> tuple[str, str | None]:
    """What a run and the IID run that it is compared with have in common: all but what assigns the data."""
    return run.alike(but=NOT_IID), run.environment.get("data_version")


def _split(run: Finished, table: Table) -> str:
    """The partition in words: of clusters, whatever their features, or what it is by; with its alpha, if it has one."""
    name = run.args["type"].removesuffix("_based")
    name = name if name in {"class", "object", *table.groups} else "cluster"
    return f"{name}, α = {run.args['alpha']:g}" if uses_alpha(run.args["type"], run.args["partition"]) else name


def _alpha(client_of: np.ndarray, groups: np.ndarray) -> float:
    return equivalent_alpha(sparse_counts(client_of, groups, int(client_of.max()) + 1)).alpha


def by_split(table: pd.DataFrame) -> pd.DataFrame:
    """The `costs` of each partition over its seeds, as text: ranges of α, means, 95 % intervals of increases."""
    rows = []
    for fixed, part in groups(table, ["task", "type"]):
        row = fixed | {"seeds": len(part)} | {BY[name]: _range(part[name]) for name in BY if name != SHARE}
        row[BY[SHARE]] = f"{round(part[SHARE].mean(), 2) + 0.0:.2f}"  # no -0.00
        for name in LOSSES:
            images = measured_on(name)
            row[f"{images}: over IID, %"] = str(Change.of(part[name]))
            for of, words in {"split": "loss", "iid": "IID", "constant": "constant baseline"}.items():
                row[f"{images}: {words}"] = f"{part[f'{name}_{of}'].mean():.3f}"
        rows.append(row)
    return pd.DataFrame(rows)


def _range(values: pd.Series) -> str:
    least, most = (f"{value:.3g}".replace("inf", "∞") for value in (values.min(), values.max()))
    return least if least == most else f"{least} to {most}"


def ranking(table: pd.DataFrame, cost: str = OWN) -> pd.DataFrame:
    """How each measure of `BY` ranks the costs, as text: Spearman's rank correlation over runs, and p of `permuted`."""
    rows = []
    for name, label in BY.items():
        p = permuted(table[name], table[cost], table["task"] + table["type"])
        correlation = rank_correlation(table[name], table[cost])
        rows.append({"measure": label, "runs": len(table), "rank correlation": f"{correlation:.2f}", "p": f"{p:.4f}"})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class AlphaSettings(Settings):
    """Which runs are read, and what the measures are to predict."""

    heading: ClassVar[str] = "options"

    result_path: Sequence[Path] = setting(
        REQUIRED, "result folders, each of one data set", Path, nargs="+", positional=True
    )
    cost: str = setting(
        OWN,
        "loss that the figure and the rank correlations are of: train_loss (client train) or test_loss (global test)",
        choices=LOSSES,
    )
    table_path: Path | None = setting(
        None, "folder for the table and the figure; default: tables/ of the first result folder", Path
    )


def main() -> None:
    """Read the runs, and write their costs and a figure."""
    args = AlphaSettings.from_args(__doc__.split("\n")[0])
    from reports.figures.own_clients import costs_by_alpha

    parts = []
    for folder, name in zip(args.result_path, folder_names(args.result_path), strict=True):
        results = Results(folder)
        for line in check_versions(results, mixed_versions=True):
            print(line)
        part = costs(results)
        parts.append(part.assign(task=f"{name}: " + part["task"]) if len(args.result_path) > 1 else part)
    table, folder = pd.concat(parts, ignore_index=True), args.table_path or args.result_path[0] / "tables"
    write_table(table, folder / "equivalent_alphas_runs")
    write_table(by_split(table), folder / "equivalent_alphas")
    print(titled("which equivalent alpha predicts the cost", ranking(table, args.cost), ["measure"]))
    print(costs_by_alpha(table, args.cost, folder / "equivalent_alphas.png", BY, measured_on(args.cost)))


if __name__ == "__main__":
    run_script(main)
