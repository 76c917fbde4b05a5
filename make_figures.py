"""Stage 5: draw a sweep's figures: loss or a metric by round, what clients have at each alpha, and what that costs."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from utils.args import Parser
from utils.errors import run_script
from utils.stage import add_shared


def parse_args() -> Namespace:
    """The command line."""
    from network.algorithms import ALGORITHMS
    from utils.runs import MEASURED_ON

    parser = Parser(__doc__)
    add, add_output = parser.add_argument, parser.group("output").add_argument
    add("figure", choices=FIGURES, help="what to draw")
    add_shared(parser, "result_path")
    add_output("--figure_path", type=Path, help="folder for the figures; default: figures/ in the result path")
    add(
        "--methods",
        nargs="+",
        choices=ALGORITHMS,
        default=[],
        help="federated methods for rounds, a figure each; default: all found",
    )
    add("--metric", default="accuracy", help="metric for progress and emd; the larger, the better")
    add("--argument", default="init_lr", help="argument for sensitivity, in which the runs differ")
    add("--data", choices=MEASURED_ON, default="train", help="what losses are measured on; the paper's are on train")
    text = "only warn if the runs of a line have different versions of code or data"
    parser.group("running").add_flag("--mixed_versions", False, text)
    return parser.parse_args()


def main() -> None:
    """Draw the figures and print their files."""
    config = vars(parse_args())
    from reports.console import wrapped
    from reports.finished import Results, check_versions

    config["figure_path"] = config["figure_path"] or config["result_path"] / "figures"
    config["results"] = Results(config["result_path"])
    for line in check_versions(config["results"], config["mixed_versions"]):
        print(wrapped(line))
    for path in FIGURES[config["figure"]](config):
        print(path)


def rounds(config: Mapping[str, Any]) -> Iterator[Path]:
    """The loss by round, a figure per method."""
    from reports.curves import read_rounds
    from reports.figures import sweeps

    table = read_rounds(config["results"], config["data"], config["methods"])
    for method in config["methods"] or dict.fromkeys(table["method"]):
        yield sweeps.rounds(
            table, config["data"], method, config["figure_path"] / f"rounds_{method}_{config['data']}.png"
        )


def sensitivity(config: Mapping[str, Any]) -> Iterator[Path]:
    """The loss after the last round by the values of an argument."""
    from reports.curves import read_last
    from reports.figures import sweeps

    table = read_last(config["results"], config["data"], config["argument"])
    path = config["figure_path"] / f"sensitivity_{config['argument']}_{config['data']}.png"
    yield sweeps.sensitivity(table, config["data"], config["argument"], path)


def distributions(config: Mapping[str, Any]) -> Iterator[Path]:
    """What clients have, a figure per task."""
    from reports.curves import read_assigned
    from reports.figures import sweeps

    for task, assigned in read_assigned(config["results"]).items():
        yield sweeps.distributions(assigned, task, config["figure_path"] / f"distributions_{task}.png")


def progress(config: Mapping[str, Any]) -> Iterator[Path]:
    """A metric by round and by batch."""
    from reports.budgets import read_progress
    from reports.figures.budgets import learning_curves

    table = read_progress(config["results"], config["metric"])
    yield learning_curves(table, config["metric"], config["figure_path"] / f"progress_{config['metric']}.png")


def emd(config: Mapping[str, Any]) -> Iterator[Path]:
    """A metric after the last round against the partition's earth mover's distance."""
    from reports.budgets import read_progress, relative
    from reports.figures.budgets import against_emd

    last = relative(read_progress(config["results"], config["metric"]))
    yield against_emd(last, config["metric"], config["figure_path"] / f"emd_{config['metric']}.png")


def privacy(config: Mapping[str, Any]) -> Iterator[Path]:
    """The loss after the last round by epsilon."""
    from reports.curves import read_private
    from reports.figures import sweeps

    table = read_private(config["results"], config["data"])
    yield sweeps.privacy(table, config["data"], config["figure_path"] / f"privacy_{config['data']}.png")


FIGURES = {
    "rounds": rounds, "sensitivity": sensitivity, "distributions": distributions, "progress": progress, "emd": emd,
    "privacy": privacy,
}  # fmt: skip

if __name__ == "__main__":
    run_script(main)
