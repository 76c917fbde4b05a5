"""Stage 4: deal a task's images to clients by cluster, scene class or at random, and simulate federated learning."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from accelerate import Accelerator

from datasets.task_data import TaskData
from models.precision import set_precision
from models.task_model import init_file, load_model
from models.training import best_file, early_file
from network.algorithms import ALGORITHMS
from network.algorithms.arguments import add_method_arguments
from network.batch_norm import BATCH_NORMS, batch_norm_tensors, with_group_norm
from network.client import LocalSettings, add_local_settings
from network.dealing import add_partition, check_unchanged
from network.dispersion import measure
from network.groups import GROUP_NAMES, dealing_of, within
from network.heterogeneity import group_counts, report_text
from network.local_test import deal_held_out
from network.report import report_run
from network.simulation import ON_NAN, Simulation, shared_run
from utils import partition_plots
from utils.args import POSITIVE_INT, Parser, add_compute, add_data, add_model, add_resume, number_or_auto
from utils.errors import run_script
from utils.files import write_json
from utils.runs import Run
from utils.versions import provenance


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_model(parser)
    add = parser.add_argument
    add("--method", choices=ALGORITHMS, default="fedavg", help="the federated method")
    add("--type", choices=GROUP_NAMES, default="embedding_based", help="what is dealt to clients")
    add_partition(parser)
    add("--partition_file", type=Path, help="take this saved partition: a run's partition.json or its folder")
    add("--n_clusters", type=POSITIVE_INT, default=10, help="clusters that the assignments must have")
    add_local_settings(parser)
    add("--batch_norm", choices=BATCH_NORMS, default="averaged", help="local: each client keeps its own; group: none")
    add("--clients_per_batch", type=number_or_auto, default=1, help="clients trained at once; auto: what is fastest")
    parser.add_flag("--compile", False, "compile the forward pass of local training")
    add_method_arguments(parser, ALGORITHMS)
    add("--assignment_files_path", type=Path, default=Path("assignments"), help="of the clusters")
    add("--init_model_dir", type=Path, default=Path("initial_models"), help="of the initial model")
    parser.add_flag("--start_warm", False, "start from the central model instead of the initial one")
    add("--trained_model_dir", type=Path, default=Path("trained_models"), help="of the central model")
    parser.add_flag("--plot_distribution", True, "draw what each client has")
    add("--on_nan", choices=ON_NAN, default="stop", help="what to do where a client's loss is not finite")
    add("--evaluate_every", type=POSITIVE_INT, default=1, help="rounds between evaluations of the models")
    add_resume(parser, "rounds", "continue the newest run with these arguments")
    add_data(parser)
    add_compute(parser)
    return parser.parse_args()


def main() -> None:
    """Partition, report how uneven the partition is, train, and draw the result."""
    args = parse_args()
    accelerator = Accelerator(cpu=not args.use_accelerator)
    if args.start_warm:
        start, made_by = best_file(args.trained_model_dir, args.task, args.use_cbam), "train_centralized_task_model.py"
    else:
        start, made_by = init_file(args.init_model_dir, args.task, args.use_cbam), "model_initialization.py"
    model = load_model(start, args.task, made_by)
    model = with_group_norm(model) if args.batch_norm == "group" else model
    set_precision(model, args.precision, accelerator.device)
    kept = batch_norm_tensors(model) if args.batch_norm == "local" else ()
    method = ALGORITHMS[args.method](args)
    data = TaskData.open(args, model.task, model.config.image_size, accelerator)
    vars(args).update(asdict(model.config))  # so that args.json says what was trained
    dealing = dealing_of(args, data)
    held_out = deal_held_out(dealing.clients, dealing.groups, within(dealing.groups, data.test), args.rand_seed)

    name = f"alpha{args.alpha:g}_seed{args.rand_seed}"
    parts = ("test_federated", args.method, args.task, args.type, name)
    clusters = args.assignment_files_path / f"assignments_{args.task}.npy"
    reads = (start, early_file(args.trained_model_dir, args.task, args.use_cbam), clusters)
    made_with = provenance(args.result_path, data.version, reads)
    run = shared_run(accelerator, lambda: Run.start(args, *parts, origin=made_with))
    title = f"{args.task}, {args.type.replace('_', ' ')}, α = {args.alpha:g}"
    uneven = measure(dealing, data, args, accelerator)
    if args.resume_training:
        check_unchanged(dealing, run.path)
    if accelerator.is_main_process:
        image_ids = [str(view.path("rgb")) for view in data.selection.views]
        dealing.save(run.path, image_ids, data.selection.places)
        write_json(run.path / "heterogeneity.json", uneven)
        print(report_text(uneven))
        if args.plot_distribution:
            counts, kind = group_counts(dealing.client_of, dealing.groups, dealing.n_clients), GROUP_NAMES[args.type]
            partition_plots.distribution(counts, title, kind, run.figures / "distribution.png")

    simulation = Simulation(
        model, data, dealing.clients, held_out, dealing.groups, method, LocalSettings.of(args), accelerator, run,
        args.rand_seed, kept, evaluate_every=args.evaluate_every, checkpoint_every=args.checkpoint_every,
        on_nan=args.on_nan, clients_per_batch=args.clients_per_batch, compiled=args.compile,
    )  # fmt: skip
    if args.resume_training:
        simulation.resume()
    simulation.train()
    report_run(simulation, f"{args.method}, {title}", uneven)


if __name__ == "__main__":
    run_script(main, smaller="--batch_size or --clients_per_batch")
