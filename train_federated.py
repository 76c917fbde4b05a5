"""Stage 4: assign a task's images to clients by cluster, scene class or at random, and simulate federated learning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from utils.errors import run_script


def main() -> None:
    """Assign the images, report how uneven the partition is, train, and draw the result."""
    from stages.federated import FederatedStage

    stage = FederatedStage.from_args(__doc__)
    from datasets.task_data import TaskData
    from models.central.training import early_file
    from models.networks.frozen import on_kept_outputs
    from models.networks.threads import set_threads
    from network.engine.adaptation import train
    from network.engine.dispersion import measure
    from network.engine.federated_data import FederatedData
    from network.engine.simulation import Simulation, shared_run
    from network.engine.trainer import travelling
    from network.partition.assigning import check_unchanged
    from network.partition.held_out import held_out_of
    from network.partition.resolve import resolve_partition
    from network.privacy import privacy_of
    from network.provenance import provenance
    from network.settings import check_adaptation
    from network.start import starting_model
    from reports.stages.federated import report_partition, report_run
    from utils.runs import Run, data_path_or_default
    from utils.tracking import accelerator_of

    running, federation, task = stage.running, stage.federation, stage.model.task
    accelerator = accelerator_of(running)
    model, start = starting_model(stage.model, stage.adapters, federation, running, accelerator.device)
    federation.check_uploads(bool(travelling(model, federation)[1]))
    data_path = data_path_or_default(running.data_path, running.result_path)
    check = partial(federation.check_table, task=task, shortened=running.test_mode)
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, running.test_mode, check)
    set_threads(model, data, federation.local.batch_size)
    partition, split = resolve_partition(stage.partition, data)
    check_adaptation(stage.adaptation.adapt_steps, partition.n_non_participating)
    federation.check(model.task, partition.participants.n_clients)
    privacy_of(federation, partition.participants.n_clients)  # before a run is begun: it refuses, too
    held_out = held_out_of(partition, data.test, running.rand_seed)
    parts = ("test_federated", stage.config["method"], task, split.type, split.name)
    early = early_file(running.trained_model_dir, task, stage.model.use_cbam)
    reads = (start, early, running.assignment_files_path / f"assignments_{task}.npy", *federation.algorithm.reads())
    config = {**stage.config, **model.config.record(), **split.record(), "data_path": data_path}
    made_with = provenance(config, data.version, reads)
    run = shared_run(accelerator, lambda: Run.start(config, *parts, origin=made_with, formerly=split.former_name))
    clients = FederatedData.of(data, partition, held_out)
    uneven = measure(partition.participants, split, clients.known, federation.reweighting, early, accelerator)
    if running.resume_training:
        check_unchanged(partition, run.path)
    if accelerator.is_main_process:
        report_partition(stage, run, data, partition, split, held_out, uneven)

    model, inputs = on_kept_outputs(model, data, federation.local, accelerator, stage.adaptation.adapt_train)
    simulation = Simulation(model, replace(clients, images=inputs), federation, accelerator, run)
    adapted = train(simulation, stage.adaptation, running.resume_training)
    report_run(simulation, partition, split, uneven, adapted)
    accelerator.end_training()


if __name__ == "__main__":
    run_script(main, smaller="--batch_size or --vectorised_clients")
