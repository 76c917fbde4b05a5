"""Stage 5: tables and figures from the finished runs: what splits cost, and how alike the tasks' clusters are."""

from argparse import Namespace
from pathlib import Path

import pandas as pd

from datasets.selection import read_selection
from datasets.tasks import TASKS
from network.similarity import read_clusterings, similarity_tables
from utils import partition_plots, plots
from utils.args import Parser
from utils.errors import UserError, run_script
from utils.files import write_atomically
from utils.metric_tables import metric_table, read_metrics
from utils.runs import data_path_or_default
from utils.tables import compare, increases, read_central, read_runs, readable
from utils.verdicts import alpha_slopes, sentences, verdicts


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--result_path", type=Path, default=Path("results"), help="where the run directories are")
    parser.add_argument("--table_path", type=Path, help="where the tables go; default: tables/ in the result path")
    parser.add_argument("--assignment_files_path", type=Path, default=Path("assignments"), help="of the clusters")
    parser.add_argument("--data_path", type=Path, help="data folder; default: the one last selected from")
    return parser.parse_args()


def main() -> None:
    """Write the tables of central models, of metrics, of what splits cost, and of how alike clusters are."""
    args = parse_args()
    folder = args.table_path or args.result_path / "tables"
    central, runs = read_central(args.result_path), read_runs(args.result_path)
    if central.empty and runs.empty:
        raise UserError(f"no finished run in {args.result_path}; run train_centralized_task_model.py or test_fed.py")
    if not central.empty:
        write_table(central, folder / "central")
    metrics = read_metrics(args.result_path)
    for task in dict.fromkeys(metrics.get("task", [])):
        write_table(metric_table(metrics, task), folder / f"metrics_{task}", show=False)
    if not runs.empty:
        comparison = compare(runs)
        write_table(increases(comparison), folder / "increases", show=False)
        write_table(readable(comparison), folder / "comparison")
        said = verdicts(comparison, [task.name for task in TASKS.values() if task.dense])
        write_table(said, folder / "verdicts", show=False)
        slopes = alpha_slopes(comparison)
        if not slopes.empty:
            write_table(slopes, folder / "alpha_slopes", show=False)
        question = "Is the loss on clients' own data higher under the embedding-based than under the class-based split?"
        print(question, *sentences(said), "", sep="\n")
        figure = plots.comparison(comparison, folder / "comparison.png")
        print(f"{len(runs)} federated runs, figure in {figure}")
    if any(args.assignment_files_path.glob("assignments_*.npy")):
        compare_tasks(args, folder)
    print(f"tables in {folder}, as .md, .tex and .csv")


def compare_tasks(args: Namespace, folder: Path) -> None:
    """Write how alike the clusters of the tasks are to each other and to the scene classes, and draw it."""
    selection = read_selection(data_path_or_default(args.data_path, args.result_path))
    information, transport = similarity_tables(read_clusterings(args.assignment_files_path, selection))
    for table, name in ((information, "ami"), (transport, "transport")):
        write_table(table.round(4).rename_axis("clusters of").reset_index(), folder / f"task_similarity_{name}")
    panels = {"adjusted mutual information": (information, "Blues"), "transport distance": (transport, "Blues_r")}
    print(f"figure in {partition_plots.similarity(panels, folder / 'task_similarity.png')}")


def write_table(table: pd.DataFrame, path: Path, show: bool = True) -> None:
    """Write a table as Markdown, LaTeX and CSV, and show it on the console if asked."""
    markdown = table.to_markdown(index=False)
    latex, csv = table.to_latex(index=False, escape=True), table.to_csv(index=False)
    for ending, text in ((".md", f"{markdown}\n"), (".tex", latex), (".csv", csv)):
        with write_atomically(path.with_suffix(ending)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if show:
        print(f"{markdown}\n")


if __name__ == "__main__":
    run_script(main)
