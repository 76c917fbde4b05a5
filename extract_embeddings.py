"""Stage 3: embed all images with a task's central model, or take other features; cluster and draw them."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from utils.args import Parser
from utils.errors import run_script
from utils.stage import add_model, add_shared, add_stage


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import TASKS
    from models.embedding.settings import ClusterSettings
    from models.networks.conventions import add_scaling
    from network.partition.non_participating import add_whose
    from utils.settings import add_settings

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    add_shared(parser, "load_model_dir")
    add_settings(parser, ClusterSettings, "clusters")
    add_scaling(parser.group("clusters"), "features", "the network of --features")
    add_whose(parser, "clusters", "cluster_clients", "clusters are found in")
    add_shared(parser, "assignment_files_path")
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
    from network.partition.non_participating import Whose
    from network.provenance import provenance
    from reports.console import wrapped
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
    title = f"{args.task}, features {args.features}"
    stage.report_clusters(title, embeddings, reduced, variance_kept, assignments[data.train])
    explained = stage.report(args, run, model, data, accelerator, reduced, assignments)
    size = {"dimension": embeddings.shape[1], "components": reduced.shape[1], "variance_kept": variance_kept}
    if not args.keep_embeddings:
        remove(full)
    run.write_summary(size | {"target_explained": explained}, digests([*made, projection], args.result_path))
    print(wrapped(f"assignments and centres in {args.assignment_files_path}, figures in {run.figures}"))


if __name__ == "__main__":
    run_script(main)
