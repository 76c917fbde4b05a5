"""The figures of clusters show what the clusters hold, in whatever order the table has its images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.task_data import TaskData
from datasets.tasks import get_task
from models import report
from tests.datasets.sources.finding import select
from utils import plots


def test_samples_of_a_cluster_are_not_of_the_first_class_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Images in the order of their classes, as in files of arrays; class k has the grey value 25 k.
    labels = np.repeat(np.arange(10), 12)
    np.savez(
        tmp_path / "train.npz", x=np.broadcast_to(25 * labels[:, None, None], (120, 8, 8)).astype(np.uint8), y=labels
    )
    np.savez(tmp_path / "test.npz", x=np.zeros((2, 8, 8), np.uint8), y=np.array([0, 1]))
    table = select("arrays", tmp_path)
    data = TaskData(table, table.bind(get_task("classification")), 8, torch.device("cpu"))
    shown: list[list[np.ndarray]] = []
    monkeypatch.setattr(plots, "cluster_samples", lambda images, *_: shown.append(images))
    monkeypatch.setattr(plots, "tsne", lambda *_: None)
    monkeypatch.setattr(report, "tsne", lambda points, seed: points)
    report.draw_clusters(data, np.zeros((122, 2)), np.arange(122) % 2, 0, tmp_path)
    for samples in shown[0]:
        assert len(samples) == 12 and set((samples[:, 0, 0, 0] * 255 / 25).round().astype(int)) == set(range(10))
