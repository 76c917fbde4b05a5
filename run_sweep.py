"""Run an experiment: a grid of federations, the central models that they need, and tables and figures of the results.

Several runs train at once, and finished ones are not repeated. An experiment is a file, such as those in experiments/,
the command line's arguments, or a file with arguments that change it. Arguments that are not listed here are passed to
test_fed.py, and may have several values: --init_lr 0.01 0.1 runs both.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from utils.args import Parser
from utils.errors import run_script

if TYPE_CHECKING:
    from sweeps.settings import SweepSettings


def parse_args() -> tuple[SweepSettings, list[str]]:
    """What is asked for, and those of the command line's words that are for test_fed.py."""
    from sweeps.settings import SweepSettings, add_sweep

    parser = Parser(__doc__)
    add_sweep(parser)
    args, further = parser.parse_known_args()
    settings = SweepSettings(**vars(args))
    if settings.experiment is None and settings.data_path is None:
        parser.error("give --experiment, or --data_path")
    return settings, further


def main() -> None:
    """Run what is not done, and make tables and figures of it; exit code 1 if a job failed."""
    settings, further = parse_args()
    from sweeps.sweep import Sweep

    sweep = Sweep(settings, further)
    if settings.dry_run != "False":
        print(*sweep.plan(tsv=settings.dry_run == "tsv"), sep="\n")
    else:
        sys.exit(sweep.run())


if __name__ == "__main__":
    run_script(main)
