"""Deal any data set to clients: embeddings or labels in; partition, report and figures out."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.embeddings import cluster_rows
from network.dealing import PARTITION_FILE, add_partition, deal_as_asked
from network.heterogeneity import class_variance_share, group_counts, report, report_text
from utils.args import POSITIVE_INT, Parser, number
from utils.errors import UserError, run_script
from utils.files import write_json
from utils.partition_plots import distribution
from utils.versions import file_digest


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--embeddings", type=Path, help=".npy of numbers, a row an image: their K-means clusters are dealt")
    add("--labels", type=Path,
        help=".npy of a class, user, building … for each image, numbers or text (negative: left out): they are dealt, "
        "or with --embeddings only reported")  # fmt: skip
    add("--n_clusters", type=POSITIVE_INT, default=16, help="K of K-means")
    add_partition(parser)
    add("--output_path", type=Path, default=Path("partition"), help="folder for the partition, report and figures")
    add("--rand_seed", type=number(int, least=0), default=42, help="seed of all randomness")
    return parser.parse_args()


def main() -> None:
    """Cluster embeddings if there are any, deal, and write down who has what and how uneven that is."""
    args = parse_args()
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


def read_array(path: Path, what: str) -> np.ndarray:
    """A `.npy` file, memory-mapped; UserError where there is none."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: no readable .npy file ({error}); see --{what}") from error


def read_labels(path: Path) -> np.ndarray:
    """The labels numbered from 0 in their order, (N,) int64; negative ones are -1."""
    labels = read_array(path, "labels")
    if labels.ndim != 1 or labels.dtype.kind not in "iubU" or not len(labels):
        raise UserError(f"{path}: {labels.dtype} of shape {labels.shape}; needs one whole number or text an image")
    left_out = labels < 0 if labels.dtype.kind == "i" else np.zeros(len(labels), bool)
    ids = np.full(len(labels), -1, np.int64)
    ids[~left_out] = np.unique(labels[~left_out], return_inverse=True)[1]
    return ids


def read_embeddings(path: Path) -> np.ndarray:
    """The embeddings (N, D), memory-mapped."""
    embeddings = read_array(path, "embeddings")
    if embeddings.ndim < 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
        raise UserError(f"{path}: {embeddings.dtype} of shape {embeddings.shape}; needs a row of numbers an image")
    return embeddings.reshape(len(embeddings), -1)


if __name__ == "__main__":
    run_script(main)
