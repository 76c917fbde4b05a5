"""The figures of clusters show what the clusters hold, in whatever order the table has its images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.task_data import TaskData
from datasets.tasks import get_task
from reports.figures import charts
from reports.stages import clusters as report
from tests.datasets.sources.finding import select


@pytest.fixture
def data(tmp_path: Path) -> TaskData:
    """120 training images in the order of their classes, as in files of arrays; class k has the grey value 25 k."""
    labels = np.repeat(np.arange(10), 12)
    np.savez(
        tmp_path / "train.npz", x=np.broadcast_to(25 * labels[:, None, None], (120, 8, 8)).astype(np.uint8), y=labels
    )
    np.savez(tmp_path / "test.npz", x=np.zeros((2, 8, 8), np.uint8), y=np.array([0, 1]))
    table = select("arrays", tmp_path)
    return TaskData(table, table.bind(get_task("classification")), 8, torch.device("cpu"))


def test_samples_of_a_cluster_are_not_of_the_first_class_alone(
    data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[np.ndarray]] = []
    monkeypatch.setattr(report, "cluster_samples", lambda images, *_: shown.append(images))
    monkeypatch.setattr(charts, "tsne", lambda *_: None)
    monkeypatch.setattr(report, "tsne", lambda points, seed: points)
    report.draw_clusters(data, np.zeros((122, 2)), np.arange(122) % 2, 0, tmp_path)
    for samples in shown[0]:
        assert len(samples) == 12 and set((samples[:, 0, 0, 0] * 255 / 25).round().astype(int)) == set(range(10))


def test_of_many_images_tsne_is_of_some(data: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple] = []
    monkeypatch.setattr(report, "_POINTS", 30)
    monkeypatch.setattr(charts, "tsne", lambda points, ids, labels, *_: drawn.append((points, ids, labels)))
    monkeypatch.setattr(report, "cluster_samples", lambda *_: None)
    monkeypatch.setattr(report, "tsne", lambda points, seed: points)
    numbers = np.arange(122)
    report.draw_clusters(data, numbers[:, None], numbers % 3, 0, tmp_path)
    (points, clusters, names), (_, classes, of_classes) = drawn
    assert len(points) == 30 and set(classes) == set(range(10)) and len(of_classes) == 10
    assert (clusters == points[:, 0] % 3).all() and (classes == data.table.labels[points[:, 0]]).all()
    assert names == ["0", "1", "2"]


def test_clusters_that_explain_little_are_named(
    data: TaskData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"clusters": 0.1, "classes": 0.5, "ceiling": 0.3}
    report.report_explained(data, found, tmp_path)
    text = capsys.readouterr().out
    assert "clusters 0.10, classes 0.50, K-means on the target itself 0.30" in text
    assert "less than half of what is possible" in text
    report.report_explained(data, found | {"clusters": 0.16}, tmp_path)
    assert "less than half" not in capsys.readouterr().out
    report.report_explained(data, found, tmp_path, advise=False)
    assert "less than half of what is possible" in (text := capsys.readouterr().out) and "Train" not in text
    assert (tmp_path / "target_explained.png").stat().st_size


def test_a_central_model_that_has_not_learnt_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.report_central("depth_euclidean", 0.1, 0.12)
    assert capsys.readouterr().out == ""
    for loss in (0.676, 0.119):  # above the constant baseline's, or below it by less than what counts
        assert not report.report_central("depth_euclidean", loss, 0.12)
        printed = " ".join(capsys.readouterr().out.split())
        assert printed.startswith(
            "The central model of depth_euclidean has not learnt its task: its loss on global test"
        )
        assert f"{loss:.4f}, is not clearly below the constant baseline's, 0.1200" in printed
