"""How much of the target groups explain, against an analysis of variance, chance, and groups that are made."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.partition import explained
from network.partition.explained import (
    share_explained,
    shrunk_targets,
    target_explained,
    target_share,
)


def test_it_is_epsilon_squared_of_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=60), rng.integers(0, 4, 60)
    values[groups == 2] += 1.5
    f = f_oneway(*(values[groups == k] for k in range(4))).statistic
    # With F = (between / (K - 1)) / (within / (n - K)): (between - (K - 1) within / (n - K)) / total.
    expected = 3 * (f - 1) / (3 * f + 56)
    assert share_explained(values[:, None], groups) == pytest.approx(expected)


def test_chance_explains_nothing_and_the_values_themselves_all() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(200, 3))
    random = [share_explained(values, rng.integers(0, 16, 200)) for _ in range(50)]
    assert abs(np.mean(random)) < 0.005  # plain eta squared: 15 / 199
    groups = rng.integers(0, 16, 200)
    assert share_explained(np.eye(16)[groups], groups) == pytest.approx(1.0)


def test_images_in_no_group_do_not_count() -> None:
    values = np.array([[0.0], [0.0], [1.0], [1.0], [9.0]])
    assert share_explained(values, np.array([5, 5, 7, 7, -1])) == pytest.approx(1.0)
    assert share_explained(values, np.array([0, 1, 2, -1, -1])) == 0.0  # as many groups as images say nothing


@pytest.mark.parametrize("task", ["depth_euclidean", "segment_semantic", "class_scene"])
def test_what_lies_between_clients_is_the_same_in_one_matrix_and_in_parts(
    table: Table, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TaskData(table, table.bind(get_task(task)), 16, torch.device("cpu"))
    client_of = np.full(len(data), -1)
    client_of[data.train] = np.random.default_rng(2).integers(0, 5, len(data.train))
    expected = share_explained(shrunk_targets(data, np.arange(len(data))), client_of)
    monkeypatch.setattr(explained, "_CHUNK", 7)
    assert target_share(data, client_of, 5) == pytest.approx(expected, abs=1e-6)
    client_of[data.train] = data.table.labels[data.train]
    if task == "class_scene":
        assert target_share(data, client_of, len(table.class_names)) == pytest.approx(1.0)


@pytest.mark.parametrize("task", ["depth_euclidean", "class_scene"])
def test_clusters_stand_between_chance_and_the_ceiling(table: Table, task: str) -> None:
    data = TaskData(table, table.bind(get_task(task)), 16, torch.device("cpu"))
    random = np.random.default_rng(0).integers(0, 6, len(data))
    found = target_explained(data, random, 6, seed=0)
    assert list(found) == ["clusters", "classes", "ceiling"]
    assert abs(found["clusters"]) < 0.1 < 0.3 < found["ceiling"]
    if task == "class_scene":
        assert found["classes"] == pytest.approx(1.0)


@pytest.mark.filterwarnings("error")
def test_fewer_kinds_of_targets_than_clusters_are_the_ceiling_themselves(table: Table) -> None:
    data = TaskData(table, table.bind(get_task("class_scene")), 16, torch.device("cpu"))
    found = target_explained(data, np.zeros(len(data), np.int64), len(np.unique(data.table.labels[data.train])) + 3, 0)
    assert found["ceiling"] == pytest.approx(1.0)
