"""What splits cost against the α that their clients look drawn from, by class and by cluster, and their target share.

    python -m reports.equivalent_alphas results/pacs_own_clients

takes the finished runs of one result folder, with the IID run of each seed, and the clusters of the runs of that seed.
"""

from __future__ import annotations

from argparse import Namespace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.table import Table, read_table
from network.partition.assigning import read_partition
from network.partition.assignments import read_assignments
from network.partition.equivalent_alpha import equivalent_alpha
from network.partition.heterogeneity import sparse_counts
from network.partition.rules import uses_alpha
from reports.console import narrow
from reports.files import write_table
from reports.finished import Finished, Results
from reports.predictors import OWN, measured_on, permuted, rank_correlation
from reports.statistics import increase
from utils.args import Parser
from utils.errors import UserError, run_script

# Of a partition, by column: what a figure's axis says.
BY = {
    "class": "equivalent α by class",
    "cluster": "equivalent α by cluster",
    "target_variance_share": "target share between clients",
}
IID = "iid"


def costs(results: Results, cost: str = OWN) -> pd.DataFrame:
    """What each run of a split costs over the IID run of its seed, in percent, beside the measures of its partition.

    Columns: `task`, `split` (its type, and alpha where it depends on one), `rand_seed`, `increase`, and those of
    `BY`; α is infinity where the counts do not tell clients from IID ones.

    Args:
        results: the finished runs.
        cost: train_loss (client train) or test_loss (global test).

    Raises:
        UserError: where there are no runs of splits with an IID run.
    """
    runs = results["test_federated"]
    column = f"{cost}_mean" if cost == OWN else cost
    iid = {_pair(run): run.summary["last"][column] for run in runs if run.args["type"] == IID}
    read, rows = cache(read_table), []
    for run in (each for each in runs if each.args["type"] != IID and _pair(each) in iid):
        table = read(Path(run.args["data_path"]))
        clusters = read_assignments(run.args["task"], table, Path(run.args["assignment_files_path"]))
        client_of = read_partition(run.path).participants.client_of
        rows.append(
            {
                "task": run.args["task"],
                "split": _split(run, table),
                "rand_seed": run.args["rand_seed"],
                "increase": float(increase(np.array(run.summary["last"][column]), np.array(iid[_pair(run)]))),
                "class": _alpha(client_of, table.labels),
                "cluster": _alpha(client_of, clusters),
                "target_variance_share": run.summary["heterogeneity"]["target_variance_share"],
            }
        )
    if not rows:
        raise UserError(f"{results.path} has no finished run of a split with an IID run of its seed")
    return pd.DataFrame(rows)


def _pair(run: Finished) -> tuple[str, str, int]:
    return run.args["task"], run.args["method"], run.args["rand_seed"]


def _split(run: Finished, table: Table) -> str:
    """The partition in words: of clusters, whatever their features, or what it is by; with its alpha, if it has one."""
    name = run.args["type"].removesuffix("_based")
    name = name if name in {"class", "object", *table.groups} else "cluster"
    return f"{name}, α = {run.args['alpha']:g}" if uses_alpha(run.args["type"], run.args["partition"]) else name


def _alpha(client_of: np.ndarray, groups: np.ndarray) -> float:
    return equivalent_alpha(sparse_counts(client_of, groups, int(client_of.max()) + 1)).alpha


def ranking(table: pd.DataFrame) -> pd.DataFrame:
    """How each measure of `BY` ranks the costs, as text: Spearman's rank correlation over runs, and p of `permuted`."""
    rows = []
    for name, label in BY.items():
        p = permuted(table[name], table["increase"], table["task"] + table["split"])
        correlation = rank_correlation(table[name], table["increase"])
        rows.append({"measure": label, "runs": len(table), "rank correlation": f"{correlation:.2f}", "p": f"{p:.4f}"})
    return pd.DataFrame(rows)


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("result_path", type=Path, help="result folder")
    text = "loss that a split raises: train_loss (client train) or test_loss (global test)"
    parser.add_argument("--cost", default=OWN, choices=(OWN, "test_loss"), help=text)
    return parser.parse_args()


def main() -> None:
    """Read the runs, and write their costs and a figure."""
    args = parse_args()
    from reports.figures.own_clients import costs_by_alpha

    table = costs(Results(args.result_path), args.cost)
    folder = args.result_path / "tables"
    write_table(table, folder / "equivalent_alphas")
    print(narrow(ranking(table), ["measure"]))
    print(costs_by_alpha(table, folder / "equivalent_alphas.png", BY, measured_on(args.cost)))


if __name__ == "__main__":
    run_script(main)
