"""Stage 5: the table and the figure that compare embedding-based with class-based splits, from the finished runs."""

from argparse import Namespace
from pathlib import Path

import pandas as pd

from utils import plots
from utils.args import Parser
from utils.errors import UserError, run_script
from utils.files import write_atomically
from utils.tables import compare, read_central, read_runs, readable


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--result_path", type=Path, default=Path("results"), help="where the run directories are")
    parser.add_argument("--table_path", type=Path, help="where the tables go; default: tables/ in the result path")
    return parser.parse_args()


def main() -> None:
    """Write central.* for the central models, and comparison.* with its figure for the federated runs."""
    args = parse_args()
    folder = args.table_path or args.result_path / "tables"
    central, runs = read_central(args.result_path), read_runs(args.result_path)
    if central.empty and runs.empty:
        raise UserError(f"no finished run in {args.result_path}; run train_centralized_task_model.py or test_fed.py")
    if not central.empty:
        write_table(central, folder / "central")
    if not runs.empty:
        comparison = compare(runs)
        write_table(readable(comparison), folder / "comparison")
        figure = plots.comparison(comparison, folder / "comparison.png")
        print(f"{len(runs)} federated runs, figure in {figure}")
    print(f"tables in {folder}, as .md, .tex and .csv")


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as Markdown, LaTeX and CSV, and show it."""
    markdown = table.to_markdown(index=False)
    latex, csv = table.to_latex(index=False, escape=True), table.to_csv(index=False)
    for ending, text in ((".md", f"{markdown}\n"), (".tex", latex), (".csv", csv)):
        with write_atomically(path.with_suffix(ending)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    print(f"{markdown}\n")


if __name__ == "__main__":
    run_script(main)
