"""Deal any data set to clients: embeddings or labels in; partition, report and figures out."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from utils.args import POSITIVE_INT, Parser, add_seed
from utils.errors import UserError, run_script


def parse_args() -> Namespace:
    """The command line."""
    from network.partition.dealing import add_partition

    parser = Parser(__doc__)
    add = parser.group("data").add_argument
    add("--embeddings", type=Path, help=".npy of numbers, a row per image: their K-means clusters are dealt")
    add("--labels", type=Path,
        help=".npy of a class, user, building … for each image, numbers or text (negative: left out): they are dealt, "
        "or with --embeddings only reported")  # fmt: skip
    add_partition(parser)
    text = "number of clusters, the K of K-means"
    parser.group("partition").add_argument("--n_clusters", type=POSITIVE_INT, default=16, help=text)
    text = "folder for the partition, report and figures"
    parser.group("output").add_argument("--output_path", type=Path, default=Path("partition"), help=text)
    add_seed(parser)
    return parser.parse_args()


def main() -> None:
    """Cluster embeddings if there are any, deal, and write down who has what and how uneven that is."""
    args = parse_args()
    from models.embeddings import cluster_rows
    from network.partition.arrays import read_embeddings, read_labels
    from network.partition.dealing import PARTITION_FILE, deal_as_asked
    from network.partition.heterogeneity import class_variance_share, group_counts, report, report_text
    from utils.files import write_json
    from utils.partition_plots import distribution
    from utils.versions import file_digest

    labels = None if args.labels is None else read_labels(args.labels)
    projection = None
    if args.embeddings is not None:
        embeddings = read_embeddings(args.embeddings)
        if labels is not None and len(labels) != len(embeddings):
            raise UserError(f"{len(embeddings)} embeddings and {len(labels)} labels; they must be of the same images")
        projection, groups = cluster_rows(embeddings, args.n_clusters, args.rand_seed)
    elif labels is not None:
        groups = labels
    else:
        raise UserError("nothing to deal; give --embeddings or --labels")

    dealing = deal_as_asked(args, groups, args.partition)
    inputs = {f"{kind}_sha256": file_digest(path) for kind in ("embeddings", "labels") if (path := getattr(args, kind))}
    arguments = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    dealing = replace(dealing, origin={**dealing.origin, **arguments, **inputs})
    dealing.save(args.output_path, classes=labels)
    values = report(dealing.client_of, groups, dealing.n_clients, projection)
    figures = args.output_path / "figures"
    title = f"{args.partition}, α = {args.alpha:g}"
    if labels is not None:
        counts = group_counts(dealing.client_of, labels, dealing.n_clients)
        values["target_variance_share"] = class_variance_share(counts)
        distribution(counts, title, "label", figures / "labels.png")
    if projection is not None:
        counts = group_counts(dealing.client_of, groups, dealing.n_clients)
        distribution(counts, title, "cluster", figures / "clusters.png")
    write_json(args.output_path / "heterogeneity.json", values)
    print(report_text(values))
    print(f"partition in {args.output_path / PARTITION_FILE} and beside it, figures in {figures}")


if __name__ == "__main__":
    run_script(main)
