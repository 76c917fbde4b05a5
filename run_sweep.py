"""Run an experiment: a grid of federations and the central models that they need, and what is made of the results.

Several runs go at once, and only what is not done yet. An experiment is a file, such as those in experiments/, or what
stands on the command line; both together are the file with these changes. Arguments that are not listed here are passed
to test_fed.py, and may have several values: --init_lr 0.01 0.1 runs both.
"""

import sys
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from utils.args import POSITIVE_INT, Parser, name_and_value, number
from utils.errors import run_script
from utils.stage import add_code

_LISTS = ("tasks", "methods", "splits", "alphas", "seeds", "n_clusters", "features")


def parse_args() -> tuple[dict[str, Any], list[str]]:
    """The command line, and those of its words that are for test_fed.py."""
    from datasets.tasks import TASKS
    from models.embedding.features import features_name
    from network.algorithms import ALGORITHMS
    from network.partition.groups import split_type
    from sweeps.experiment import KEYS, SCRIPTS, UNTIL
    from sweeps.grid import SWEEP_TYPES
    from sweeps.plan import FORMATS

    parser = Parser(__doc__)
    parser.add_argument("--experiment", type=Path, help="file of the experiment, see docs/sweeps.md")
    grid, data, running = (parser.group(title) for title in ("grid", "data", "running"))
    add = grid.add_argument
    default = {name: f"default: the experiment's, or {' '.join(map(str, KEYS[name]))}" for name in _LISTS}
    add("--scale", help="one of the experiment's scales or, without an experiment, a folder of scripts/args; "
        "default: builtin")  # fmt: skip
    add("--sweep", choices=SWEEP_TYPES, help="what varies besides the grid: a file of the scale")
    add("--type", choices=SWEEP_TYPES, dest="sweep", help=SUPPRESS)  # the name that it once had
    add("--tasks", nargs="+", choices=TASKS, help=f"tasks, each with its own model; {default['tasks']}")
    add("--methods", nargs="+", choices=ALGORITHMS, help=f"federated methods; {default['methods']}")
    add("--splits", nargs="+", type=split_type,
        help=f"what is assigned to clients, the --type of test_fed.py; {default['splits']}")  # fmt: skip
    add("--alphas", nargs="+", help=f"Dirichlet concentrations; {default['alphas']}")
    add("--seeds", nargs="+", type=number(int, least=0),
        help=f"seeds of models, clusters and runs; {default['seeds']}")  # fmt: skip
    add("--n_clusters", nargs="+", type=POSITIVE_INT,
        help=f"numbers of clusters, each a K of K-means; {default['n_clusters']}")  # fmt: skip
    add("--features", nargs="+", type=features_name,
        help=f"features whose clusters embedding-based splits assign; {default['features']}")  # fmt: skip
    for stage, script in SCRIPTS.items():
        add(f"--{stage}_arguments", nargs="+", type=name_and_value, default=[], metavar="NAME=VALUE",
            help=f"further arguments of {script}")  # fmt: skip
    add = data.add_argument
    add("--data_path", "--data", help="data folder, in Taskonomy's layout or with another source's table; or rooms "
        "(rooms:1000: so many views a building) or nyu, made first; default: the experiment's")  # fmt: skip
    add("--client_file_name", help="csv of the buildings, in the data folder; without this file the table there is "
        "kept; default: rooms.csv")  # fmt: skip
    add("--taskonomy_clients_to_include", type=POSITIVE_INT,
        help="how many buildings, the first of the csv; default: 4")  # fmt: skip
    text = "folder for models and run directories; default: the experiment's, or results"
    parser.group("output").add_argument("--result_path", type=Path, help=text)
    add = running.add_argument
    add("--until", choices=UNTIL, help="the last part to run")
    add("--jobs", type=POSITIVE_INT,
        help="processes at once; default: one per GPU of --gpus, or one per core. On a cluster: jobs of an array at "
        "once; default: all")  # fmt: skip
    add("--gpus", nargs="+", help="GPUs to spread jobs over, e.g. 0 1 2 3")
    add("--cluster", choices=("slurm",), help="submit the jobs to a cluster; default: run them on this machine")
    add("--cluster_arguments", nargs="+", type=name_and_value, metavar="NAME=VALUE",
        help="what a job requests of the cluster: time=4:00:00 partition=gpu gpus_per_node=1 mem_gb=32 …")  # fmt: skip
    running.add_flag("--wait", None, "wait until no job is left on the cluster; False leaves after submission")
    add("--dry_run", nargs="?", const="True", default="False", choices=FORMATS,
        help="only print every job with its state and command, for a reader or as a table with tabs")  # fmt: skip
    running.add_flag("--test_mode", False, "very short trainings, to see that everything works")
    add_code(parser)
    args, further = parser.parse_known_args()
    if args.experiment is None and args.data_path is None:
        parser.error("give --experiment, or --data_path")
    return vars(args), further


def main() -> None:
    """Run what is not done, and make tables and figures of it; exit code 1 if a job failed."""
    config, further = parse_args()
    from sweeps.sweep import Sweep

    sweep = Sweep(config, further)
    if config["dry_run"] != "False":
        print(*sweep.plan(tsv=config["dry_run"] == "tsv"), sep="\n")
    else:
        sys.exit(sweep.run())


if __name__ == "__main__":
    run_script(main)
