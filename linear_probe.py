"""Measure what a run's encoder has learnt: a linear probe of its features, and one of the same network untrained."""

from argparse import Namespace
from pathlib import Path

from utils.args import Parser, number
from utils.errors import run_script
from utils.stage import add_shared


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.group("model").add_argument("--run", type=Path, required=True, help="directory of a run of test_fed.py")
    text = "inverse strength of the probe's regularisation"
    parser.group("training").add_argument("--inverse_penalty", type=number(float, above=0), default=1.0, help=text)
    add_shared(parser, "data_path")
    return parser.parse_args()


def main() -> None:
    """Print the accuracy on global test and write it into linear_probe.json beside the run's summary."""
    args = parse_args()
    from network.linear_probe import probe_run
    from utils.files import write_json

    values = probe_run(args.run, args.data_path, args.inverse_penalty)
    write_json(args.run / "linear_probe.json", values)
    print(
        f"{args.run}: accuracy {values['accuracy']:.4f} on {values['n_test']} images of global test; "
        f"untrained {values['untrained']:.4f}, the commonest class {values['trivial']:.4f}"
    )


if __name__ == "__main__":
    run_script(main)
