"""The settings of `run_sweep.py`: the changes of an experiment, and how its jobs are run."""

from __future__ import annotations

from argparse import SUPPRESS
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.tasks import TASKS
from models.embedding.features import features_name
from network.algorithms import ALGORITHMS
from network.partition.groups import partition_type
from sweeps.experiment import KEYS, SCRIPTS, UNTIL
from sweeps.grid import SWEEP_TYPES
from sweeps.plan import FORMATS
from utils.args import POSITIVE_INT, name_and_value, number
from utils.settings import Settings, setting
from utils.stage import StageSettings, add_code, add_shared

if TYPE_CHECKING:
    from utils.args import Parser

_PAIRS: dict[str, Any] = {"type": name_and_value, "nargs": "+", "metavar": "NAME=VALUE"}


def _list(name: str, text: str) -> dict[str, Any]:
    """One of an experiment's lists, which the command line may have in place of the experiment's own."""
    usual = " ".join(map(str, KEYS[name]))
    return {"text": f"{text}; default: the experiment's, or {usual}", "nargs": "+", "heading": "grid"}


def _arguments(stage: str) -> dict[str, Any]:
    return {"text": f"further arguments of {SCRIPTS[stage]}", "heading": "grid"} | _PAIRS


@dataclass(frozen=True)
class SweepSettings(Settings):
    """What the command line says of a sweep; None where it leaves it to the experiment, or to the machine."""

    experiment: Path | None = None
    scale: str | None = setting(
        None,
        "one of the experiment's scales or, without an experiment, a folder of scripts/args; default: builtin",
        heading="grid",
    )
    sweep: str | None = setting(
        None, "what varies besides the grid: a file of the scale", choices=SWEEP_TYPES, heading="grid"
    )
    tasks: list[str] | None = setting(None, **_list("tasks", "tasks, each with its own model"), choices=TASKS)
    methods: list[str] | None = setting(None, **_list("methods", "federated methods"), choices=ALGORITHMS)
    types: list[str] | None = setting(
        None,
        **_list("types", "partition types: what is assigned to clients, the --type of test_fed.py"),
        type=partition_type,
    )
    alphas: list[str] | None = setting(None, **_list("alphas", "Dirichlet concentrations"))
    seeds: list[int] | None = setting(
        None, **_list("seeds", "seeds of models, clusters and runs"), type=number(int, least=0)
    )
    n_clusters: list[int] | None = setting(
        None, **_list("n_clusters", "numbers of clusters, each a K of K-means"), type=POSITIVE_INT
    )
    features: list[str] | None = setting(
        None, **_list("features", "features whose clusters embedding-based partitions assign"), type=features_name
    )
    init_arguments: list[tuple[str, str]] | None = setting(None, **_arguments("init"))
    train_arguments: list[tuple[str, str]] | None = setting(None, **_arguments("train"))
    embed_arguments: list[tuple[str, str]] | None = setting(None, **_arguments("embed"))
    teacher_arguments: list[tuple[str, str]] | None = setting(None, **_arguments("teacher"))
    data_path: str | None = setting(
        None,
        "data folder, in Taskonomy's layout or with another source's table; or rooms "
        "(rooms:1000: so many views a building) or nyu, made first; default: the experiment's",
        heading="data",
        aliases=("data",),
    )
    client_file_name: str | None = setting(
        None,
        "csv of the buildings, in the data folder; without this file the table there is kept; default: rooms.csv",
        heading="data",
    )
    taskonomy_clients_to_include: int | None = setting(
        None, "how many buildings, the first of the csv; default: 4", POSITIVE_INT, heading="data"
    )
    result_path: Path | None = setting(
        None,
        "folder for models and run directories; default: the experiment's, or results",
        Path,
        heading="output",
    )
    until: str | None = setting(None, "the last part to run", choices=UNTIL)
    jobs: int | None = setting(
        None,
        "processes at once; default: one per GPU of --gpus, or one per core. On a cluster: jobs of an array at "
        "once; default: all",
        POSITIVE_INT,
    )
    gpus: list[str] | None = setting(None, "GPUs to spread jobs over, e.g. 0 1 2 3", nargs="+")
    cluster: str | None = setting(
        None, "submit the jobs to a cluster; default: run them on this machine", choices=("slurm",)
    )
    cluster_arguments: list[tuple[str, str]] | None = setting(
        None,
        "what a job requests of the cluster: time=4:00:00 partition=gpu gpus_per_node=1 mem_gb=32 …",
        **_PAIRS,
    )
    wait: bool | None = setting(None, "wait until no job is left on the cluster; False leaves after submission", bool)
    dry_run: str = "False"
    test_mode: bool = StageSettings.test_mode
    reuse: str = StageSettings.reuse


def add_sweep(parser: Parser) -> None:
    """Add the arguments of `run_sweep.py`."""
    parser.add_argument("--experiment", type=Path, help="file of the experiment, see docs/sweeps.md")
    SweepSettings.add_arguments(parser)
    parser.add_argument("--type", choices=SWEEP_TYPES, dest="sweep", help=SUPPRESS)  # the name that it once had
    parser.group("running").add_argument(
        "--dry_run",
        nargs="?",
        const="True",
        default=SweepSettings.dry_run,
        choices=FORMATS,
        help="only print every job with its state and command, for a reader or as a table with tabs",
    )
    add_shared(parser, test_mode="very short trainings, to see that everything works")
    add_code(parser)
