"""Stage 3: embed all images with a task's central model, or take other features; cluster and draw them."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from utils.args import POSITIVE_INT, Parser, number
from utils.errors import run_script
from utils.stage import add_model, add_shared, add_stage


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import TASKS
    from models.embedding.features import features_name
    from models.networks.conventions import add_scaling
    from network.partition.unseen import add_whose

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    model, clusters, output = (parser.group(title) for title in ("model", "clusters", "output"))
    add_shared(parser, "load_model_dir")
    model.add_flag("--from_checkpoint", False, "take the last checkpoint instead of the best model")
    add = clusters.add_argument
    add(
        "--features",
        type=features_name,
        default="model",
        help="what is clustered: model (the central model's embedding), target, image, efficientnet_lite0, timm:<name> "
        "or random:<name>; all but the first need only the initial model, for its settings",
    )
    add(
        "--encoder_weights",
        type=Path,
        metavar="FILE",
        help="weights of --features timm:<name>, a safetensors file or state dict; default: timm's",
    )
    add_scaling(clusters, "features", "the network of --features")
    add("--n_clusters", type=POSITIVE_INT, default=10, help="number of clusters, the K of K-means")
    add(
        "--compare_n_clusters",
        type=number(int, least=2),
        nargs="+",
        metavar="K",
        help="to help choose K: also measure and draw these numbers of clusters",
    )
    add(
        "--cluster_threshold",
        type=number(float, least=0, most=1),
        default=0.0,
        help="leave out clusters with a smaller share of the images",
    )
    add_whose(parser, "clusters", "cluster_clients", "clusters are found in")
    add_shared(parser, "assignment_files_path")
    output.add_flag("--observe_performance", False, "also measure and draw the model's predictions")
    output.add_flag("--keep_embeddings", False, "keep the full embeddings of all images, not only their projection")
    add_stage(parser, "continue an interrupted run with these arguments")
    return parser.parse_args(words)


def main() -> None:
    """Write assignments_<task>.npy and centers_<task>.npy, and the figures of the clusters."""
    args = parse_args()
    import torch

    from datasets.task_data import TaskData
    from models.embedding import embeddings as emb
    from models.embedding.features import model_for
    from models.embedding.projection import reduce_dimension
    from models.networks.conventions import Scaling
    from models.networks.precision import set_precision
    from models.networks.threads import set_threads
    from network.partition.assignments import save_assignments
    from network.partition.unseen import Whose
    from network.provenance import provenance
    from reports.stages import clusters as stage
    from utils.files import write_array
    from utils.filling import remove
    from utils.processes import processes
    from utils.runs import Run, data_path_or_default
    from utils.versions import digests

    who = Whose.from_config(vars(args), "cluster_clients")
    accelerator = processes(args.use_accelerator)
    model, path = model_for(vars(args))
    model = model.to(accelerator.device).to(memory_format=torch.channels_last)
    set_precision(model, args.precision, accelerator.device)
    config = vars(args) | model.config.record()
    config["data_path"] = data_path = data_path_or_default(args.data_path, args.result_path)
    check = partial(emb.check_n_clusters, n_clusters=args.n_clusters, compared=args.compare_n_clusters)
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, args.test_mode, check)
    data = who.in_data(data)
    check(data)  # again: images may be unreadable, or left out by --test_mode
    set_threads(model, data, emb.BATCH)
    made_with = provenance(config, data.version, filter(None, (path, args.encoder_weights, *who.reads)))
    parts = ("extract_embeddings", args.task, f"K{args.n_clusters}_seed{args.rand_seed}")
    run = Run.take_up(config, *parts, origin=made_with)
    full = run.path / "embeddings.npy"
    scaling = Scaling.of(vars(args), "features")
    embeddings = emb.extract_embeddings(model, data, full, args.features, args.encoder_weights, scaling)
    reduced, pca, variance_kept = reduce_dimension(embeddings, data.train)
    assignments, kmeans = emb.cluster(reduced, data, args.n_clusters, args.cluster_threshold, args.rand_seed)
    projection, centres = run.path / "reduced.npy", emb.centres(kmeans, pca)
    write_array(projection, reduced)
    results = assignments, centres, args.n_clusters, projection
    made = save_assignments(args.assignment_files_path, data, args.features, *results, who.digest)
    stage.report_clusters(
        f"{args.task}, features {args.features}", embeddings, reduced, variance_kept, assignments[data.train]
    )
    explained = stage.report(args, run, model, data, accelerator, reduced, assignments)
    size = {"dimension": embeddings.shape[1], "components": reduced.shape[1], "variance_kept": variance_kept}
    if not args.keep_embeddings:
        remove(full)
    run.write_summary(size | {"target_explained": explained}, digests([*made, projection], args.result_path))
    print(f"assignments and centres in {args.assignment_files_path}, figures in {run.figures}")


if __name__ == "__main__":
    run_script(main)
