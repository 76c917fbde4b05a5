"""What a federated run leaves behind when it ends: a summary, a figure, the global model, a table on the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from models.report import print_values
from models.task_model import TaskModel, save_model
from network.simulation import Simulation
from utils import plots
from utils.metrics import metric_names
from utils.tables import SPLITS

# What is measured on, and the columns of `metrics.csv` that hold it.
_COLUMNS = {
    f"global, {SPLITS['train']}": "train_{}_mean",
    f"global, {SPLITS['local_test']}": "local_test_{}_mean",
    f"global, {SPLITS['test']}": "test_{}",
    f"personal, {SPLITS['train']}": "personal_train_{}_mean",
    f"personal, {SPLITS['local_test']}": "personal_local_test_{}_mean",
}


def report_run(simulation: Simulation, title: str, heterogeneity: Mapping[str, float]) -> None:
    """Write `summary.json`, `model.safetensors` and `figures/loss.png`, and print the last round's values.

    To be called by all processes; the main one writes. Without a global model there is no `model.safetensors`; the
    clients' own models stay in `checkpoint/clients/`.
    """
    trivial = simulation.evaluation.of_trivial()
    if not simulation.accelerator.is_main_process:
        return
    run, rows = simulation.run, simulation.rows
    losses = {split: values["loss"] for split, values in trivial.items()}
    summary = {"last": rows[-1], "trivial": trivial, "heterogeneity": heterogeneity}
    if simulation.has_global:
        save_model(cast(TaskModel, simulation.model), run.path / "model.safetensors")
    plots.federated_loss(rows, losses, title, run.figures / "loss.png")
    run.write_summary(summary)  # last, because it marks the run as finished
    names = metric_names(simulation.data.task)
    values = {
        label: {name: rows[-1][column.format(name)] for name in names}
        for label, column in _COLUMNS.items()
        if column.format("loss") in rows[-1]
    }
    print_values(title, values | {f"trivial, {SPLITS[split]}": of_split for split, of_split in trivial.items()})
    print(f"metrics, partition, models and figures in {run.path}")
