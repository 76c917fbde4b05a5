"""Stage 5: the table and the figure that compare embedding-based with class-based splits, from the finished runs."""

from pathlib import Path

from utils import plots
from utils.args import Parser
from utils.errors import run_script
from utils.files import write_atomically
from utils.tables import compare, read_runs, readable


def parse_args():
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--result_path", type=Path, default=Path("results"), help="where the run directories are")
    parser.add_argument("--table_path", type=Path, help="where the tables go; default: tables/ in the result path")
    return parser.parse_args()


def main() -> None:
    """Write comparison.md, .tex, .csv and .png."""
    args = parse_args()
    folder = args.table_path or args.result_path / "tables"
    runs = read_runs(args.result_path)
    comparison = compare(runs)
    table = readable(comparison)
    texts = {
        "md": table.to_markdown(index=False) + "\n",
        "tex": table.to_latex(index=False, escape=True),
        "csv": table.to_csv(index=False),
    }
    for ending, text in texts.items():
        with write_atomically(folder / f"comparison.{ending}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    figure = plots.comparison(comparison, folder / "comparison.png")
    print(texts["md"])
    print(f"{len(runs)} runs; tables in {folder}/comparison.md, .tex and .csv, figure in {figure}")


if __name__ == "__main__":
    run_script(main)
