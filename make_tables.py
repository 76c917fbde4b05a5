"""Stage 5: make tables and figures of the finished runs: what partitions cost, and how similar tasks' clusters are."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from utils.args import POSITIVE_INT, Parser, name_and_value
from utils.errors import UserError, run_script
from utils.stage import add_shared


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_shared(parser, "result_path")
    text = "folder for the tables; default: tables/ in the result path"
    parser.group("output").add_argument("--table_path", type=Path, help=text)
    add_shared(parser, "assignment_files_path", "data_path")
    parser.add_argument(
        "--metric", default="accuracy", help="metric for budgets and groups; for the former, the larger the better"
    )
    text = "argument=value of runs to compare the others with; default: method=fedavg, where there are other methods"
    parser.add_argument("--baseline", nargs="+", type=name_and_value, default=[], metavar="NAME=VALUE", help=text)
    for unit in ("round", "batch"):
        text = f"budgets for acc_at_{unit}; default: a fifth, half and all of the longest runs'"
        parser.add_argument(f"--at_{unit}", nargs="+", type=POSITIVE_INT, default=[], help=text)
    parser.group("running").add_flag("--mixed_versions", False, "only warn if versions within a row differ")
    return parser.parse_args()


def main() -> None:
    """Write the tables of central models, of metrics, of what splits cost, and of how similar clusters are."""
    args = parse_args()
    from datasets.table import read_table
    from network.partition.similarity import read_clusterings
    from reports.budgets import TITLES, budget_tables
    from reports.by_group import group_tables
    from reports.central import read_central, read_clusters
    from reports.console import report_table, wrapped
    from reports.costs import costs_table, memory_by_batch, read_costs
    from reports.files import write_table
    from reports.finished import Results, check_versions
    from reports.image_numbers import fewer_images
    from reports.metric_tables import write_metrics
    from reports.stages.tables import report_learnt, report_runs
    from reports.tables import read_runs
    from reports.task_similarity import report_similarity
    from utils.runs import data_path_or_default

    folder = args.table_path or args.result_path / "tables"
    results = Results(args.result_path)
    notes = [*check_versions(results, args.mixed_versions), *fewer_images(results)]
    central, runs = read_central(results), read_runs(results)
    if central.empty and runs.empty:
        raise UserError(f"no finished run in {args.result_path}; run train_centralized_task_model.py or test_fed.py")
    report_learnt(central, runs, folder)
    report_table("central models, global test", central, folder / "central")
    clusters, heading = read_clusters(results), "share of the target's variance that groups explain"
    report_table(heading, clusters, folder / "clusters")
    write_metrics(results, folder)
    if any(args.assignment_files_path.glob("assignments_*.npy")):
        images = read_table(data_path_or_default(args.data_path, args.result_path))
        clusterings, of_others = read_clusterings(args.assignment_files_path, images)
        if of_others:
            print(f"{args.assignment_files_path}: passed over clusters of other images ({', '.join(of_others)})\n")
        if figure := report_similarity(clusterings, folder):
            print(f"how similar the tasks' clusters are: {figure}\n")
    spent = read_costs(results)
    if not spent.empty:
        write_table(costs_table(spent), folder / "costs")
        memory_by_batch(spent, folder / "memory.png")
    for name, table in budget_tables(results, args.metric, args.at_round, args.at_batch).items():
        report_table(TITLES[name].format(args.metric), table, folder / name)
    for name, table in group_tables(results, args.metric).items():
        heading = f"client test by {name.removeprefix('by_')}"
        report_table(heading, table, folder / name)
    print(*map(wrapped, notes), f"tables in {folder}, as .md, .tex and .csv; {len(runs)} federated runs\n", sep="\n")
    if not runs.empty:
        report_runs(runs, args.baseline, folder)


if __name__ == "__main__":
    run_script(main)
