"""How non-IID are clients that are there already? The α of a Dirichlet partition that their counts look drawn from."""

from argparse import Namespace
from pathlib import Path

from utils.args import Parser, add_assignments, add_data_path, add_result_path, add_seed, name_and_value
from utils.errors import UserError, run_script


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add = parser.group("data").add_argument
    add("--clients", metavar="FILE|COLUMN",
        help=".npy of each image's client, numbers or text (negative: of nobody), or a column of natural groups of the "
        "table of images")  # fmt: skip
    add("--groups", type=name_and_value, nargs="+", default=[], metavar="NAME=FILE",
        help=".npy of each image's class, cluster …, numbers or text (negative: left out); several, to compare. Beside "
        "those that a table has: its classes, and its clusters of each task")  # fmt: skip
    add("--partition_file", type=Path, help="a saved partition, a run's folder or its partition.json, for --clients")
    add_data_path(parser)
    add_assignments(parser)
    add_result_path(parser)
    text = "folder for the table and the figure"
    parser.group("output").add_argument("--output_path", type=Path, default=Path("own_clients"), help=text)
    add_seed(parser)
    args = parser.parse_args()
    if args.clients and args.partition_file:
        raise UserError("--clients and --partition_file both say who has which images; omit one")
    return args


def main() -> None:
    """Estimate α by each grouping; print a sentence for each, write a table and draw a figure."""
    args = parse_args()
    import pandas as pd

    from datasets.table import read_table
    from network.partition.own_clients import measure, own_clients
    from reports.figures.own_clients import equivalent_alphas
    from utils.files import write_atomically
    from utils.runs import data_path_or_default

    clients = own_clients(
        args.clients,
        args.groups,
        args.partition_file,
        lambda: (read_table(data_path_or_default(args.data_path, args.result_path)), args.assignment_files_path),
    )
    measured = measure(clients, args.rand_seed)
    print(*(each.sentence() for each in measured), sep="\n")
    table = args.output_path / "equivalent_alpha.csv"
    with write_atomically(table) as temporary:
        pd.DataFrame([each.row() for each in measured]).to_csv(temporary, index=False)
    figure = equivalent_alphas(measured, args.output_path / "equivalent_alpha.png")
    print(f"table in {table}, figure in {figure}")


if __name__ == "__main__":
    run_script(main)
