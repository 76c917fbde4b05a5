"""Assign any data set to clients: from embeddings, labels, users or places to a partition, a report and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from utils.errors import run_script

if TYPE_CHECKING:
    from stages.partition import PartitionStage


def main() -> None:
    """Assign the images or take a saved partition, and export the clients' images where that is asked for."""
    from stages.partition import PartitionStage

    stage = PartitionStage.from_args(__doc__)
    if stage.partition_file is None:
        assign_images(stage)
    if stage.export_clients:
        from deploy.shares import export_clients

        saved = stage.partition_file or stage.output_path
        *clients, server = export_clients(saved, stage.export_clients, stage.data_path, stage.task, stage.image_size)
        print(f"the images of {len(clients)} clients in {clients[0]} and beside it, those of global test in {server}")


def assign_images(stage: PartitionStage) -> None:
    """Group the images, assign the groups, and write the partition and how uneven it is."""
    from network.partition.arrays import read_arrays
    from network.partition.assigning import PARTITION_FILE, assign_by_settings
    from network.partition.heterogeneity import beyond_chance, class_variance_share, report, report_text, sparse_counts
    from network.partition.unassigned import unassigned_lines
    from reports.console import wrapped
    from reports.figures.partitions import distribution
    from utils.files import write_json

    arrays, folder = read_arrays(stage.files, stage.groups), stage.output_path
    partition = assign_by_settings(stage.assign, arrays.groups, arrays.natural)
    partition = replace(partition, origin={**partition.origin, **stage.to_json(), **arrays.origin})
    partition.save(folder, classes=arrays.labels)
    of_described, of_assigned = arrays.names
    others = arrays.groups if of_described != of_assigned else None
    values = report(partition.client_of, arrays.described, partition.n_clients, arrays.projection, others)
    title = ", ".join(stage.assign.words())
    for name, groups in arrays.shown.items():
        counts = sparse_counts(partition.client_of, groups, partition.n_clients)
        if name == "label":
            share = class_variance_share(counts)
            values["target_variance_share"] = beyond_chance(share, partition.n_clients, int(counts.sum()))
        figure = folder / "figures" / f"{name}s.png"
        distribution(counts, title, name, figure, *arrays.called(groups))
    write_json(folder / "heterogeneity.json", values)
    own = arrays.may_be_assigned
    left = unassigned_lines(partition.client_of[own], arrays.groups[own], arrays.called(arrays.groups)[0], of_assigned)
    print(report_text(values, of_described, of_assigned, left), *arrays.lines(partition.client_of), sep="\n")
    print(wrapped(f"partition in {folder / PARTITION_FILE} and beside it, figures in {folder / 'figures'}"))


if __name__ == "__main__":
    run_script(main)
