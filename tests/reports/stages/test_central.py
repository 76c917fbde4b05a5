"""What central training shows: values as they are, and predictions beside what is true."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from reports.stages import central


class OneOff(nn.Module):
    """Takes every image for one of the class after the right one; `images` are in the order of `labels`."""

    def __init__(self, labels: np.ndarray, n_classes: int) -> None:
        super().__init__()
        self.said = iter(torch.eye(n_classes)[(labels + 1) % n_classes].split(64))

    def forward(self, images: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(output=next(self.said))


def test_confusion_counts_true_classes_by_row(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    data = TaskData(table, table.bind(get_task("classification")), 16, torch.device("cpu"))
    labels, names = table.labels[data.test], table.class_names
    shown: list[np.ndarray] = []
    monkeypatch.setattr(central, "confusion_matrix", lambda matrix, *_: shown.append(matrix))
    central.draw_predictions(OneOff(labels, len(names)), data, Path())
    assert shown[0].sum(axis=1).tolist() == np.bincount(labels, minlength=len(names)).tolist()
    assert [shown[0][k, (k + 1) % len(names)] for k in range(len(names))] == shown[0].sum(axis=1).tolist()


def test_values_stand_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    central.print_values("title", {"model": {"loss": 0.25, "rmse": 1.5}, "trivial": {"loss": 2.0, "rmse": 30.0}})
    title, *rows = capsys.readouterr().out.splitlines()
    assert title == "title" and [row.split() for row in rows] == [
        ["loss", "rmse"],
        ["model", "0.2500", "1.5000"],
        ["trivial", "2.0000", "30.0000"],
    ]
