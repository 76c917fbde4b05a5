"""Stage 4: deal a task's images to clients by cluster, scene class or at random, and simulate federated learning."""

from argparse import Namespace
from pathlib import Path

from accelerate import Accelerator

from datasets.task_data import TaskData
from models.task_model import init_file, load_model
from models.training import best_file
from network.algorithms import ALGORITHMS
from network.algorithms.arguments import add_method_arguments
from network.batch_norm import BATCH_NORMS, batch_norm_tensors, with_group_norm
from network.client import LR_SCHEDULES, LocalSettings
from network.groups import SPLIT_TYPES, groups_of
from network.heterogeneity import group_counts, report
from network.local_test import deal_held_out
from network.partition import PARTITIONERS, deal
from network.report import report_run
from network.simulation import Simulation, shared_run
from utils import plots
from utils.args import POSITIVE, POSITIVE_INT, Parser, add_compute, add_data, add_model, number
from utils.errors import run_script
from utils.runs import Run


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_model(parser)
    add = parser.add_argument
    add("--method", choices=ALGORITHMS, default="fedavg", help="the federated method")
    add("--type", choices=SPLIT_TYPES, default="embedding_based", help="what is dealt to clients")
    add("--alpha", type=POSITIVE, default=0.1, help="Dirichlet concentration; iid has no use for it")
    add("--partition", choices=[name for name in PARTITIONERS if name != "iid"], default="paper", help="how")
    add("--n_clients", type=POSITIVE_INT, default=25, help="clients")
    add("--n_clusters", type=POSITIVE_INT, default=10, help="clusters that the assignments must have")
    add("--min_client_ds_len", type=POSITIVE_INT,
        help="least images a client; default: 128, or less where the data is too small for it")  # fmt: skip
    add("--n_rounds", type=POSITIVE_INT, default=100, help="global rounds")
    add("--sgd_per_epoch", type=POSITIVE_INT, default=50, help="steps a client takes in a local epoch")
    add("--epoch_per_round", type=POSITIVE_INT, default=1, help="local epochs a round")
    add("--local_epochs", type=POSITIVE_INT, help="epochs over a client's own images a round, in place of these two")
    add("--batch_size", type=POSITIVE_INT, default=16, help="images a step")
    add("--init_lr", type=POSITIVE, default=1e-1, help="initial learning rate")
    add("--momentum", type=number(float, least=0, most=0.999), default=0.0, help="of local SGD, within a round")
    add("--weight_decay", type=number(float, least=0), default=0.0, help="of the local optimiser")
    parser.add_flag("--use_adam", False, "Adam as local optimiser instead of SGD, afresh each round")
    add("--lr_schedule", choices=LR_SCHEDULES, default="plateau", help="plateau is the published rule")
    add("--lr_decay_rate", type=number(float, above=0, most=1), default=0.999, help="decay a step on a plateau")
    add("--no_improvement_tolerance", type=POSITIVE_INT, default=5, help="steps before the decay on a plateau")
    add("--batch_norm", choices=BATCH_NORMS, default="averaged", help="local: each client keeps its own; group: none")
    add_method_arguments(parser, ALGORITHMS)
    add("--assignment_files_path", type=Path, default=Path("assignments"), help="of the clusters")
    add("--init_model_dir", type=Path, default=Path("initial_models"), help="of the initial model")
    parser.add_flag("--start_warm", False, "start from the central model instead of the initial one")
    add("--trained_model_dir", type=Path, default=Path("trained_models"), help="of the central model")
    parser.add_flag("--plot_distribution", True, "draw what each client has")
    parser.add_flag("--resume_training", False, "continue the newest run with these arguments")
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
    kept = batch_norm_tensors(model) if args.batch_norm == "local" else ()
    method = ALGORITHMS[args.method](args)
    data = TaskData.open(args, model.task, model.config.image_size, accelerator)
    groups = groups_of(args.type, data, args.assignment_files_path, args.n_clusters)
    rule = "iid" if args.type == "iid" else args.partition
    dealing = deal(rule, groups, args.n_clients, args.alpha, args.rand_seed, args.min_client_ds_len)
    test_groups = groups_of(args.type, data, args.assignment_files_path, args.n_clusters, "test")
    held_out = deal_held_out(dealing.clients, groups, test_groups, args.rand_seed)
    settings = LocalSettings.of(args)

    name = f"alpha{args.alpha:g}_seed{args.rand_seed}"
    parts = ("test_federated", args.method, args.task, args.type, name)
    run = shared_run(accelerator, lambda: Run.start(args, *parts))
    title = f"{args.task}, {args.type.replace('_', ' ')}, α = {args.alpha:g}"
    uneven = report(dealing.clients, groups)
    if accelerator.is_main_process:
        origin = {"type": args.type, "rule": rule, "alpha": args.alpha, "seed": args.rand_seed}
        dealing.save(run.path, data.selection, groups, origin)
        print(", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in uneven.items()))
        if args.plot_distribution:
            kind = "cluster" if args.type == "embedding_based" else "scene class"
            plots.distribution(group_counts(dealing.clients, groups), title, kind, run.figures / "distribution.png")

    simulation = Simulation(
        model, data, dealing.clients, held_out, groups, method, settings, accelerator, run, args.rand_seed, kept
    )
    if args.resume_training:
        simulation.resume()
    simulation.train()
    report_run(simulation, f"{args.method}, {title}", uneven)


if __name__ == "__main__":
    run_script(main)
