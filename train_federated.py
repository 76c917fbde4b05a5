"""Stage 4: assign a task's images to clients by cluster, scene class or at random, and simulate federated learning."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from utils.args import Parser
from utils.errors import run_script
from utils.stage import add_model, add_shared, add_stage


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import TASKS
    from models.networks.parts import TRAINS
    from network.choices import add_choices, resolve_choices
    from network.partition.settings import add_partition_settings, resolve_partition_settings
    from network.settings import add_federation, resolve_federation
    from utils.arguments import with_defaults

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    add_shared(parser, "start_warm", "trained_model_dir")
    add_partition_settings(parser)
    add_federation(parser)
    add_choices(parser)
    add_shared(parser, "plot_distribution")
    add_stage(parser, "continue the newest run with these arguments", "round")
    config = resolve_partition_settings(resolve_choices(resolve_federation(vars(parser.parse_args(words)))))
    return Namespace(**with_defaults(config, TRAINS, "train"))


def main() -> None:
    """Assign the images, report how uneven the partition is, train, and draw the result."""
    args = parse_args()
    from datasets.task_data import TaskData
    from models.central.training import early_file
    from models.networks.frozen import on_kept_outputs
    from models.networks.threads import set_threads
    from network.config import FederationConfig
    from network.engine.adaptation import train
    from network.engine.dispersion import measure
    from network.engine.federated_data import FederatedData
    from network.engine.simulation import Simulation, shared_run
    from network.engine.trainer import travelling
    from network.partition.assigning import check_unchanged
    from network.partition.held_out import held_out_of
    from network.partition.resolve import resolve_partition
    from network.partition.settings import PartitionSettings
    from network.privacy import privacy_of
    from network.provenance import provenance
    from network.settings import AdaptSettings, check_adaptation
    from network.start import starting_model
    from reports.stages.federated import report_partition, report_run
    from utils.runs import Run, data_path_or_default
    from utils.tracking import accelerator_of

    accelerator = accelerator_of(vars(args))
    model, start = starting_model(vars(args), accelerator.device)
    federation = FederationConfig.from_config(vars(args))
    federation.check_uploads(bool(travelling(model, federation)[1]))
    data_path = data_path_or_default(args.data_path, args.result_path)
    check = partial(federation.check_table, task=args.task, shortened=args.test_mode)
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, args.test_mode, check)
    set_threads(model, data, args.batch_size)
    partition, split = resolve_partition(PartitionSettings.from_config(vars(args)), data)
    check_adaptation(args.adapt_steps, partition.n_non_participating)
    federation.check(model.task, partition.participants.n_clients)
    privacy_of(federation, partition.participants.n_clients)  # before a run is begun: it refuses, too
    held_out = held_out_of(partition, data.test, args.rand_seed)
    parts = ("test_federated", args.method, args.task, split.type, split.name)
    early = early_file(args.trained_model_dir, args.task, args.use_cbam)
    reads = (start, early, args.assignment_files_path / f"assignments_{args.task}.npy", *federation.algorithm.reads())
    config = vars(args) | federation.record() | model.config.record() | split.record() | {"data_path": data_path}
    made_with = provenance(config, data.version, reads)
    run = shared_run(accelerator, lambda: Run.start(config, *parts, origin=made_with, formerly=split.former_name))
    clients = FederatedData.of(data, partition, held_out)
    uneven = measure(partition.participants, split, clients.known, federation.reweighting, early, accelerator)
    if args.resume_training:
        check_unchanged(partition, run.path)
    if accelerator.is_main_process:
        report_partition(vars(args), run, data, partition, split, held_out, federation, uneven)

    adapting = AdaptSettings.from_config(vars(args))
    model, inputs = on_kept_outputs(model, data, federation.local, accelerator, adapting.adapt_train)
    simulation = Simulation(model, replace(clients, images=inputs), federation, accelerator, run)
    adapted = train(simulation, adapting, args.resume_training)
    report_run(simulation, partition, split, uneven, adapted)
    accelerator.end_training()


if __name__ == "__main__":
    run_script(main, smaller="--batch_size or --vectorised_clients")
