"""What a federated run writes: its partition and, at its end, a summary, figures, the model and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from datasets.task_data import TaskData
from models.central.metrics import metric_names
from models.networks.task_model import TaskModel, save_model
from network.config import FederationConfig
from network.engine.simulation import Simulation
from network.partition.assigning import Partition
from network.partition.assignments import include_non_participating
from network.partition.client_images import ClientImages
from network.partition.description import assigned_names, client_names, described_by, shown_by
from network.partition.groups import EMBEDDING, assigned_as
from network.partition.heterogeneity import report_text, sparse_counts
from network.partition.nested import lines_within, owners_within, within_of
from network.partition.non_participating import digest
from network.partition.settings import PartitionSettings
from network.partition.unassigned import unassigned_lines
from reports.chosen import chosen_clients
from reports.clients import CLIENTS_FILE, client_table
from reports.console import wrapped
from reports.figures.charts import federated_rounds
from reports.figures.clients import choices
from reports.figures.gaps import adaptation
from reports.figures.partitions import distribution
from reports.stages.central import print_values
from stages.federated import FederatedStage
from utils.files import write_json
from utils.runs import COLUMNS, MEASURED_ON, Run
from utils.words import counted, span


def report_partition(
    stage: FederatedStage,
    run: Run,
    data: TaskData,
    partition: Partition,
    split: PartitionSettings,
    held_out: ClientImages,
    uneven: Mapping[str, float],
) -> None:
    """Save the partition and `heterogeneity.json`, print how uneven it is and, if asked, draw what clients have.

    `split` is what the partition was made by. What reweighting can achieve is printed where clients' images are
    reweighted. To be called by the main process.
    """
    federation, running = stage.federation, stage.running
    for line in split.instead_of(stage.partition):
        print(wrapped(line))
    kind = split.type
    clients = client_names(partition, kind, data.table)
    named = {"client_names": [*clients]} if clients else {}
    replace(partition, origin={**partition.origin, **named}).save(run.path, data.table.image_ids, data.table.labels)
    write_json(run.path / "heterogeneity.json", uneven)
    natural, train = within_of(partition.origin, data.table), data.train
    own = train if natural is None else train[natural.numbers[train] >= 0]
    names, called = assigned_names(partition, kind, data.table), assigned_as(kind, data.table)
    left = unassigned_lines(partition.client_of[own], partition.groups[own], names, called)
    described = described_by(partition, kind, data.table)[1]
    print(report_text(uneven, described, called, [*map(wrapped, left)], federation.reweighting.is_active))
    if natural is not None:
        n_clusters = partition.origin["n_clusters"] if kind == EMBEDDING else None
        print(*lines_within(partition.client_of, partition.groups, natural, n_clusters), sep="\n")
    if not len(held_out.images):
        print(f"no test image is in a group that clients train on: the values on {MEASURED_ON['local_test']} are nan")
    _report_non_participating(partition, split, data.task.name, federation, running.start_warm)
    if running.plot_distribution:
        groups, name, names = shown_by(partition, kind, data.table)
        counts = sparse_counts(partition.client_of, groups, partition.n_clients)
        within = owners_within(natural, groups) if natural and groups is partition.groups else ()
        figure = run.figures / "distribution.png"
        title = f"{data.task.label}, {split.title}"
        distribution(counts, title, name, figure, names, within, clients, partition.n_non_participating)


def _report_non_participating(
    partition: Partition, split: PartitionSettings, task: str, federation: FederationConfig, start_warm: bool
) -> None:
    """Print how many clients never train, and what was made with their images all the same.

    `start_warm` says that the federation starts from the central model.
    """
    if not partition.n_non_participating:
        return
    sizes = partition.sizes[-partition.n_non_participating :]
    each = span(int(sizes.min()), int(sizes.max()), "image")
    print(f"{counted(len(sizes), 'non-participating client')} with {each} each never train")
    uses_clusters = federation.tells_clusters or split.type == EMBEDDING
    if uses_clusters and include_non_participating(task, split.assignment_files_path, digest(partition)):
        print(
            f"the clusters of {task} were made with their images, too; for others, extract_embeddings.py has\n"
            "  --cluster_clients participants, and takes this run as --partition_file, as test_fed.py then does"
        )
    if start_warm:
        print("the central model has seen their images, unless it was made with --train_clients participants")


def report_run(
    simulation: Simulation,
    partition: Partition,
    split: PartitionSettings,
    heterogeneity: Mapping[str, float],
    adapted: Sequence[Mapping[str, float]] = (),
) -> None:
    """Write `summary.json`, `clients.csv`, `model.safetensors` and figures by round, and print the last round's values.

    To be called by all processes; the main one writes. Without a global model, there is no `model.safetensors`; the
    personal models are in `checkpoint/clients/`. Where a rule chose clients, `chosen.csv` and a figure say which.
    `adapted` are the rows of `Adaptation.run`.
    """
    trivial = simulation.evaluation.of_trivial()
    if not simulation.accelerator.is_main_process:
        return
    run, rows, task = simulation.run, simulation.rows, simulation.data.images.task
    title = f"{simulation.label()}, {task.label}, {split.title}"
    notes = [*simulation.algorithm.notes(rows), *simulation.evaluation.notes()]
    notes += simulation.privacy.notes(len(rows) - 1)
    summary: dict[str, Any] = {"last": rows[-1], "trivial": trivial, "heterogeneity": heterogeneity, "notes": notes}
    summary |= {"costs": simulation.costs()}
    if simulation.attack:
        summary["attackers"] = sorted(simulation.attackers)
    if (chosen := chosen_clients(simulation)) is not None:
        run.write_rows("chosen.csv", chosen)
        choices(chosen, title, run.figures / "chosen.png")
    names = assigned_names(partition, split.type, simulation.data.images.table)
    run.write_rows(CLIENTS_FILE, client_table(simulation.evaluation.by_client(), partition, names))
    if adapted:
        summary |= {"adaptation": list(adapted)}
        adaptation(adapted, rows[-1], trivial, title, task.loss_label, run.figures / "adaptation.png")
    if simulation.has_global:
        save_model(cast(TaskModel, simulation.model), run.path / "model.safetensors")
    for name, measure in {"loss": task.loss_label, **task.drawn}.items():
        of_trivial = {split: values[name] for split, values in trivial.items()}
        federated_rounds(rows, name, of_trivial, title, measure, run.figures / f"{name}.png")
    run.write_summary(summary)  # last, because it marks the run as finished
    metrics = metric_names(task)
    values = {
        f"{whose}, {MEASURED_ON[images]}": {name: rows[-1][column.format(name)] for name in metrics}
        for (whose, images), column in COLUMNS.items()
        if column.format("loss") in rows[-1]
    }
    baseline = {f"constant baseline, {MEASURED_ON[split]}": of_split for split, of_split in trivial.items()}
    print_values(title, values | baseline)
    if simulation.attack:
        n, of = len(simulation.attackers), len(simulation.data.clients)
        honest = "means over clients are over the honest ones; global test is for all"
        print(f"{n} of {of} clients attack ({simulation.attack.title}); {honest}")
    place = f"metrics, partition, models and figures in {run.path}"
    print(*map(wrapped, notes), *of_gaps(rows[-1], adapted), wrapped(place), sep="\n")


def of_gaps(last: Mapping[str, float], adapted: Sequence[Mapping[str, float]]) -> list[str]:
    """Both gaps of the last round and what adaptation leaves of one; none without non-participating clients."""
    whose = "personal_" if "personal_participation_gap" in last else ""
    if f"{whose}participation_gap" not in last:
        return []
    over = "over participating clients" + " with their personal models" * bool(whose)
    lines = [
        f"out-of-sample gap, client test over client train: {last[f'{whose}out_of_sample_gap']:+.4f}; "
        f"participation gap, non-participating {over}: {last[f'{whose}participation_gap']:+.4f}"
    ]
    after = [
        f"{row[f'{whose}participation_gap']:+.4f} after {counted(int(row['steps']), 'step')}" for row in adapted[1:]
    ]
    if after:
        lines.append(f"participation gap of non-participating clients that adapt, {over}: {', '.join(after)}")
    return [wrapped(line) for line in lines]
