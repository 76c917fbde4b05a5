"""What figures call tasks, methods and losses."""

from __future__ import annotations

import pytest

from datasets.tasks import TASKS
from models.central.metrics import error_names, metric_names
from network.algorithms import ALGORITHMS
from reports.labels import headline_metric, in_order, is_share, loss_label, method_label, task_label


def test_labels_are_distinct_and_written_as_in_papers() -> None:
    assert len({task_label(name) for name in TASKS}) == len(TASKS)
    assert len({method_label(name) for name in ALGORITHMS}) == len(ALGORITHMS)
    assert [task_label(name) for name in ("depth_euclidean", "keypoints3d", "odd")] == ["Depth", "3D key points", "odd"]
    names = ("fedavg", "scaffold", "moon", "fednova", "local", "odd")
    assert [method_label(name) for name in names] == ["FedAvg", "SCAFFOLD", "MOON", "FedNova", "Local training", "odd"]
    assert all("_" not in label for label in map(task_label, TASKS))


@pytest.mark.parametrize(
    "args, label",
    [
        ({"task": "depth_euclidean", "depth_target": "metric"}, "L1 loss, m"),
        ({"task": "depth_euclidean", "depth_target": "scaled"}, "L1 loss"),  # in units of the farthest surface
        ({"task": "depth_euclidean", "depth_target": "log"}, "L1 loss"),  # of logarithms
        ({"task": "reshading"}, "mean squared error"),
        ({"task": "class_scene"}, "cross-entropy, nats"),
        ({"task": "odd"}, "loss"),
    ],
)
def test_losses_have_their_unit(args: dict[str, str], label: str) -> None:
    assert loss_label(args) == label


def test_tasks_stand_in_the_order_of_the_registry() -> None:
    assert in_order(["odd", "class_scene", "normal", "class_scene", "depth_euclidean"]) == [
        "depth_euclidean",
        "normal",
        "class_scene",
        "odd",
    ]


def test_shares_are_the_metrics_between_0_and_1_of_which_more_is_better() -> None:
    unbounded = {"ssim"}  # from -1 to 1
    for task in TASKS.values():
        for name in metric_names(task):
            assert is_share(name) == (name not in error_names(task) | unbounded), name


def test_the_metric_of_a_headline() -> None:
    assert headline_metric("classification", ["loss", "accuracy", "macro_f1"]) == "accuracy"
    assert headline_metric("normal", ["loss", "angle_mean", "within_30"]) == "within_30"
    assert headline_metric("own", ["loss", "mine"]) == "mine" and headline_metric("own", ["loss"]) == ""
