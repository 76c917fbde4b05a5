"""Stage 5: make tables and figures of the finished runs: what partitions cost, and how similar tasks' clusters are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from utils.args import POSITIVE_INT, name_and_value
from utils.errors import UserError, run_script
from utils.settings import Settings, setting
from utils.stage import shared


@dataclass(frozen=True)
class TablesSettings(Settings):
    """Which runs tables are made of, and how."""

    heading: ClassVar[str] = "options"

    result_path: Path = shared("result_path")
    table_path: Path | None = setting(
        None, "folder for the tables; default: tables/ in the result path", Path, heading="output"
    )
    assignment_files_path: Path = shared("assignment_files_path")
    data_path: Path | None = shared("data_path")
    metric: str = setting("accuracy", "metric for budgets and groups; for the former, the larger the better")
    baseline: Sequence[tuple[str, str]] = setting(
        (),
        "argument=value of runs to compare the others with; default: method=fedavg, where there are other methods",
        name_and_value,
        nargs="+",
        metavar="NAME=VALUE",
    )
    at_round: Sequence[int] = setting(
        (), "budgets for acc_at_round; default: a fifth, half and all of the longest runs'", POSITIVE_INT, nargs="+"
    )
    at_batch: Sequence[int] = setting(
        (), "budgets for acc_at_batch; default: a fifth, half and all of the longest runs'", POSITIVE_INT, nargs="+"
    )
    mixed_versions: bool = setting(False, "only warn if versions within a row differ", bool, heading="running")


def main() -> None:
    """Write the tables of central models, of metrics, of what splits cost, and of how similar clusters are."""
    args = TablesSettings.from_args(__doc__)
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
