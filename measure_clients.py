"""Measure how non-IID given clients are: the α of the Dirichlet partition from which their counts look drawn."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.args import Parser, name_and_value
from utils.errors import UserError, run_script
from utils.stage import add_shared

if TYPE_CHECKING:
    from datasets.table import Table


def grouping(text: str) -> tuple[str, str]:
    """An argparse type: a name and a file, or a file alone, whose name it is."""
    return name_and_value(text) if "=" in text else (Path(text).stem, text)


def parse_args() -> Namespace:
    """The command line."""
    from datasets.tasks import TASKS

    parser = Parser(__doc__)
    add = parser.group("data").add_argument
    add(
        "--clients",
        metavar="FILE|COLUMN",
        help=".npy of each image's client, numbers or text (negative: of nobody), or a column of natural groups of the "
        "table of images",
    )
    add(
        "--groups",
        type=grouping,
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help=".npy of each image's class, cluster …, numbers or text (negative: left out); FILE alone: called as it. "
        "Several, to compare, beside those that a table has: its classes, and its clusters of each task",
    )
    add(
        "--partition_file",
        type=Path,
        help="for --clients: a saved partition, a run's folder or its partition.json (with --data_path, its table's "
        "groups count, too); or a folder of Flower's partitions, whose columns --groups NAME=COLUMN names",
    )
    add_shared(parser, "data_path")
    text = "tasks of the table: also measure the share of their targets' variance that lies between clients"
    add("--tasks", nargs="+", default=[], choices=TASKS, metavar="TASK", help=text)
    add_shared(parser, "assignment_files_path", "result_path")
    text = "folder for the tables and the figure"
    output = parser.group("output")
    output.add_argument("--output_path", type=Path, default=Path("own_clients"), help=text)
    output.add_flag("--simulate", False, "also write the rule and α that assign such clients, and how near they come")
    add_shared(parser, "rand_seed")
    args = parser.parse_args()
    if args.clients and args.partition_file:
        raise UserError("--clients and --partition_file both say who has which images; omit one")
    if args.tasks and args.partition_file and not args.data_path:
        raise UserError("--tasks needs the table of the partition's images; give --data_path")
    return args


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as CSV."""
    import pandas as pd

    from utils.files import write_atomically

    with write_atomically(path) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)


def main() -> None:
    """Estimate α by each grouping; print a sentence for each, write a table and draw a figure."""
    args = parse_args()
    from datasets.table import read_table
    from network.partition.own_clients import measure, own_clients, target_shares
    from reports.console import wrapped
    from reports.figures.own_clients import equivalent_alphas
    from utils.runs import data_path_or_default

    def table_of() -> tuple[Table, Path]:
        """The table of images, and the folder of its clusters."""
        return read_table(data_path_or_default(args.data_path, args.result_path)), args.assignment_files_path

    has_table = args.data_path or args.partition_file is None
    clients = own_clients(args.clients, args.groups, args.partition_file, table_of if has_table else None)
    shares = target_shares(table_of()[0], args.tasks, len(clients.client_of)) if args.tasks else {}
    measured = measure(clients, args.rand_seed)
    print(*(wrapped(grouping.sentence()) for grouping in measured), sep="\n")
    n_clients = int(clients.client_of.max()) + 1
    for task, share in shares.items():
        print(f"{task}: {share(clients.client_of, n_clients):.2f} of the target's variance lies between clients")
    write_rows(args.output_path / "equivalent_alpha.csv", [grouping.row() for grouping in measured])
    equivalent_alphas(measured, args.output_path / "equivalent_alpha.png")
    if args.simulate:
        from network.partition.simulated_clients import simulate

        simulated = [simulate(clients, grouping, args.rand_seed, shares) for grouping in measured]
        for nearest, *_ in simulated:
            print(wrapped(f"{nearest.sentence()}; arguments in {nearest.save(args.output_path)}"))
        write_rows(args.output_path / "simulated.csv", [rule.row() for rules in simulated for rule in rules])
    print(f"tables and figure in {args.output_path}")


if __name__ == "__main__":
    run_script(main)
