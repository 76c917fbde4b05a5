"""Stage 5: the figures of a sweep: loss by round, sensitivity to an argument, and what clients have at each alpha."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from utils import sweep_plots
from utils.args import Parser
from utils.curves import read_dealings, read_last, read_rounds
from utils.errors import run_script
from utils.tables import SPLITS


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add = parser.add_argument
    add("figure", choices=FIGURES, help="what to draw")
    add("--result_path", type=Path, default=Path("results"), help="where the run directories are")
    add("--figure_path", type=Path, help="where figures go; default: figures/ in the result path")
    add("--methods", nargs="+", default=[], help="of rounds, a figure each; default: all found")
    add("--argument", default="init_lr", help="of sensitivity: the argument that the runs differ in")
    add("--data", choices=SPLITS, default="train", help="what losses are measured on; the paper's are on train")
    return parser.parse_args()


def main() -> None:
    """Draw what is asked for and print where it is."""
    args = parse_args()
    args.figure_path = args.figure_path or args.result_path / "figures"
    for path in FIGURES[args.figure](args):
        print(path)


def rounds(args: Namespace) -> Iterator[Path]:
    """A figure for each method."""
    table = read_rounds(args.result_path, args.data, args.methods)
    for method in args.methods or dict.fromkeys(table["method"]):
        yield sweep_plots.rounds(table, args.data, method, args.figure_path / f"rounds_{method}_{args.data}.png")


def sensitivity(args: Namespace) -> Iterator[Path]:
    """One figure."""
    table = read_last(args.result_path, args.data, args.argument)
    path = args.figure_path / f"sensitivity_{args.argument}_{args.data}.png"
    yield sweep_plots.sensitivity(table, args.data, args.argument, path)


def distributions(args: Namespace) -> Iterator[Path]:
    """A figure for each task."""
    for task, dealt in read_dealings(args.result_path).items():
        yield sweep_plots.distributions(dealt, task, args.figure_path / f"distributions_{task}.png")


FIGURES = {"rounds": rounds, "sensitivity": sensitivity, "distributions": distributions}

if __name__ == "__main__":
    run_script(main)
