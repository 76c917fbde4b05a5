"""Run a grid of federations and the central models that they need: several at once, and only what is not done yet.

Arguments that are not listed here are passed to test_fed.py, and may have several values: --init_lr 0.01 0.1 runs both.
"""

import os
import sys
from argparse import Namespace
from pathlib import Path

from utils.args import POSITIVE_INT, Parser, add_code, number
from utils.errors import run_script

PARTS = ("selection", "clusters", "federated")


def parse_args() -> tuple[Namespace, list[str]]:
    """The command line, and those of its words that are for test_fed.py."""
    from datasets.tasks import TASKS
    from models.embedding.features import features_kind
    from network.algorithms import ALGORITHMS
    from network.partition.groups import split_type
    from sweeps.grid import COMPARISON, SCALES, SWEEP_TYPES

    parser = Parser(__doc__)
    grid, data, running = (parser.group(title) for title in ("grid", "data", "running"))
    add = grid.add_argument
    add("--scale", choices=SCALES, default="builtin", help="settings of the stages, a folder of scripts/args")
    add("--type", choices=SWEEP_TYPES, default=COMPARISON, help="what varies besides the grid: a file of the scale's")
    add("--tasks", nargs="+", choices=TASKS, default=["depth_euclidean", "normal", "class_scene"],
        help="tasks, each with its own model")  # fmt: skip
    add("--methods", nargs="+", choices=ALGORITHMS, default=["fedavg"], help="federated methods")
    add("--splits", nargs="+", type=split_type, default=["iid", "class_based", "embedding_based"],
        help="what is dealt to clients, the --type of test_fed.py")  # fmt: skip
    add("--alphas", nargs="+", default=["0.1", "10"], help="Dirichlet concentrations")
    add("--seeds", nargs="+", type=number(int, least=0), default=[0, 1, 2, 3, 4],
        help="seeds of models, clusters and runs")  # fmt: skip
    add("--n_clusters", nargs="+", type=POSITIVE_INT, default=[16], help="numbers of clusters, each a K of K-means")
    add("--features", nargs="+", type=features_kind, default=["model"],
        help="features whose clusters embedding-based splits deal, --features of extract_embeddings.py")  # fmt: skip
    add("--init_arguments", nargs="+", default=[], metavar="NAME=VALUE",
        help="further arguments of model_initialization.py")  # fmt: skip
    add = data.add_argument
    add("--data_path", type=Path, required=True, help="data folder: Taskonomy's layout, or another source's table")
    add("--client_file_name", default="rooms.csv",
        help="csv of the buildings, in the data folder; without this file the table there is kept")  # fmt: skip
    add("--taskonomy_clients_to_include", type=POSITIVE_INT, default=4, help="how many buildings, the first of the csv")
    text = "folder for models and run directories"
    parser.group("output").add_argument("--result_path", type=Path, default=Path("results"), help=text)
    add = running.add_argument
    add("--until", choices=PARTS, default="federated", help="the last part to run")
    add("--jobs", type=POSITIVE_INT, help="processes at once; default: one per GPU of --gpus, or one per core")
    add("--gpus", nargs="+", help="GPUs to spread jobs over, e.g. 0 1 2 3")
    running.add_flag("--test_mode", False, "very short trainings, to see that everything works")
    add_code(parser)
    return parser.parse_known_args()


def main() -> None:
    """Select the images, then run the grid; exit code 1 if a job failed."""
    args, further = parse_args()
    from sweeps import work
    from sweeps.grid import Grid, read_axes
    from sweeps.runner import Runner
    from utils.versions import CodePolicy

    n_jobs = args.jobs or len(args.gpus or []) or os.cpu_count() or 1
    runner = Runner(args.result_path / "logs", n_jobs, args.gpus, CodePolicy.of(args))
    grid = Grid(
        args.scale, args.data_path, args.result_path, args.tasks, args.methods, args.splits, args.alphas, args.seeds,
        args.n_clusters, args.type, tuple(f"--{pair}" for pair in args.init_arguments),
        ("--test_mode", "True") if args.test_mode else (), read_axes(further), args.features,
        runner.ask(work.declared_arguments),
    )  # fmt: skip
    jobs = [*grid.central(), *(grid.federated() if args.until == "federated" else [])]
    runner.ask(work.check_commands, jobs)  # before anything is written
    # Always run: only the first stage sees what has been added to a data folder.
    selection = grid.selection(args.client_file_name, args.taskonomy_clients_to_include)
    tasks = [] if args.until == "selection" else args.tasks
    runner.ask(work.select, selection, args.data_path / args.client_file_name, tasks)
    if args.until == "selection":
        return
    grid.hold_settings()
    outcome = runner.run(jobs, args.type)
    counts = f"{len(outcome.before)} done before, {len(outcome.finished)} now, {len(outcome.failed)} failed"
    print(f"{len(jobs)} jobs: {counts}, {len(outcome.left_out)} left out because of these")
    sys.exit(1 if outcome.failed else 0)


if __name__ == "__main__":
    run_script(main)
