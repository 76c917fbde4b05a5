"""Assign any data set to clients: from embeddings, labels, users or places to a partition, a report and figures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils.args import POSITIVE, POSITIVE_INT, Parser
from utils.errors import UserError, run_script
from utils.stage import add_shared


def parse_args() -> dict[str, Any]:
    """The command line."""
    from datasets.tasks import TASKS
    from network.partition.settings import add_partition, resolve_rule

    parser = Parser(__doc__)
    add = parser.group("data").add_argument
    add("--embeddings", type=Path, help=".npy of numbers, a row per image: their K-means clusters are assigned")
    add(
        "--labels",
        type=Path,
        help=".npy of each image's class, user, building …, numbers or text (negative: left out): they are assigned "
        "or, with --embeddings, --users or --lat_lng, only reported",
    )
    add("--users", type=Path, help=".npy of each image's user, numbers or text: each user becomes a client")
    add(
        "--lat_lng",
        type=Path,
        help=".npy of each image's latitude and longitude in degrees, NaN for unknown: each cell of the earth's "
        "surface becomes a client",
    )
    add(
        "--within",
        type=Path,
        metavar="FILE",
        help=".npy of each image's natural group (city …), numbers or text (negative or empty: left out): embeddings "
        "are clustered, and clusters or labels assigned, within each, to clients of its own",
    )
    add_partition(parser)
    text = "number of clusters, the K of K-means"
    parser.group("partition").add_argument("--n_clusters", type=POSITIVE_INT, default=16, help=text)
    add = parser.group("partition").add_argument
    add("--max_cell", type=POSITIVE_INT, default=1000, help="most images in a cell of --lat_lng; others are divided")
    add("--min_cell", type=POSITIVE, help="fewest images in a cell of --lat_lng; default: a hundredth of --max_cell")
    text = "folder for the partition, report and figures"
    parser.group("output").add_argument("--output_path", type=Path, default=Path("partition"), help=text)
    text = "folder for each client's images, as data folders of machines that hold nothing else"
    parser.group("output").add_argument("--export_clients", type=Path, help=text)
    text = "with --export_clients: a saved partition, a run's folder or its partition.json, to take as it is"
    add("--partition_file", type=Path, help=text)
    add = parser.group("data").add_argument
    add("--data_path", type=Path, help="with --export_clients: folder of the images; default: the run's")
    add("--task", choices=TASKS, help="with --export_clients: whose targets go along; default: the run's")
    add("--image_size", type=POSITIVE_INT, help="with --export_clients: their side in pixels; default: the run's")
    add_shared(parser, "rand_seed")
    config = resolve_rule(vars(parser.parse_args()))
    if config["partition_file"] and not config["export_clients"]:
        raise UserError("--partition_file has nothing to assign; give --export_clients, or omit it")
    return config


def main() -> None:
    """Assign the images or take a saved partition, and export the clients' images where that is asked for."""
    config = parse_args()
    if config["partition_file"] is None:
        assign_images(config)
    if config["export_clients"]:
        from deploy.shares import export_clients

        *clients, server = export_clients(config, config["partition_file"] or config["output_path"])
        print(f"the images of {len(clients)} clients in {clients[0]} and beside it, those of global test in {server}")


def assign_images(config: Mapping[str, Any]) -> None:
    """Group the images, assign the groups, and write the partition and how uneven it is."""
    from network.partition.arrays import read_arrays
    from network.partition.assigning import PARTITION_FILE, assign_by_settings
    from network.partition.heterogeneity import beyond_chance, class_variance_share, report, report_text, sparse_counts
    from network.partition.settings import AssignSettings
    from network.partition.unassigned import unassigned_lines
    from reports.console import wrapped
    from reports.figures.partitions import distribution
    from utils.files import write_json

    arrays = read_arrays(config)
    if arrays.groups_are_clients:
        config = {**config, "partition": "natural", "n_clients": None}
    settings = AssignSettings.from_config(config)
    partition = assign_by_settings(settings, arrays.groups, arrays.natural)
    arguments = {name: str(value) if isinstance(value, Path) else value for name, value in config.items()}
    partition = replace(partition, origin={**partition.origin, **arguments, **arrays.origin})
    partition.save(config["output_path"], classes=arrays.labels)
    of_described, of_assigned = arrays.names
    others = arrays.groups if of_described != of_assigned else None
    values = report(partition.client_of, arrays.described, partition.n_clients, arrays.projection, others)
    title = ", ".join(settings.words())
    for name, groups in arrays.shown.items():
        counts = sparse_counts(partition.client_of, groups, partition.n_clients)
        if name == "label":
            share = class_variance_share(counts)
            values["target_variance_share"] = beyond_chance(share, partition.n_clients, int(counts.sum()))
        figure = config["output_path"] / "figures" / f"{name}s.png"
        distribution(counts, title, name, figure, *arrays.called(groups))
    write_json(config["output_path"] / "heterogeneity.json", values)
    own = arrays.may_be_assigned
    left = unassigned_lines(partition.client_of[own], arrays.groups[own], arrays.called(arrays.groups)[0], of_assigned)
    print(report_text(values, of_described, of_assigned, left), *arrays.lines(partition.client_of), sep="\n")
    folder = config["output_path"]
    print(wrapped(f"partition in {folder / PARTITION_FILE} and beside it, figures in {folder / 'figures'}"))


if __name__ == "__main__":
    run_script(main)
