"""FedIR: closed forms of what reweighting aims at and what it reaches, and the methods that inherit it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from scipy.stats import binom
from torch import Tensor

from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import TASKS
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.config import FederationConfig
from network.engine.client import StepView
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.importance import CLASS, CLUSTER, FedIR, labels_of, reweighting
from network.partition.assignments import save_assignments
from network.partition.client_images import ClientImages
from network.settings import SimulationSettings
from tests.models.teacher.guiding import guide_here
from tests.network import quadratic as q
from utils.errors import UserError
from utils.runs import Run

NONE_HELD_OUT = np.zeros(0, np.int64)


class Labelled(q.QuadraticData):
    """Images of two classes; those of a class are all the same, so that p(x | y) = q_k(x | y)."""

    def __init__(self, labels: list[int]) -> None:
        self.labels = torch.tensor([*labels, 0, 1])
        self.test = np.array([len(labels), len(labels) + 1])

    def batch(self, positions: Tensor) -> Batch:
        kinds = self.labels[positions]
        target = torch.from_numpy(q.B)[kinds]
        return Batch(torch.from_numpy(q.A)[kinds], target, torch.ones_like(target, dtype=torch.bool))


def federation(
    labels: list[list[int]], algorithm: FedAvg, folder: Path, reweighting: FedIR | None = None, **settings: object
) -> Simulation:
    """Clients whose images have these classes."""
    data = Labelled([kind for of_client in labels for kind in of_client])
    clients = [np.arange(a, b) for a, b in pairwise(np.cumsum([0, *map(len, labels)]))]
    of_all = replace(q.SETTINGS, batch_size=16, **settings)
    federated = FederatedData(data, clients, [data.test] * len(clients), data.labels.numpy())
    config = FederationConfig(algorithm, of_all, SimulationSettings(1), reweighting=reweighting or FedIR())
    return Simulation(q.Quadratic(), federated, config, Accelerator(cpu=True), Run(folder))


def first_step(q_2: list[int], folder: Path, **arguments: object) -> np.ndarray:
    """The server's step over the learning rate, of q_1 = (0.9, 0.1) and a second client, each in one full batch."""
    by_class = FedIR(importance_reweighting="class", **arguments)
    run = federation([[0] * 9 + [1], q_2], q.method("fedavg"), folder, by_class, n_rounds=1, sgd_per_epoch=1)
    run.train()
    return (q.START - q.server_of(run)) / q.LR


def of_classes(weights: tuple[float, float]) -> np.ndarray:
    """The gradient of the classes' losses, weighted so."""
    return sum(weight * q.gradient(q.START, np.array([kind])) for kind, weight in enumerate(weights))


def test_clients_with_all_classes_follow_the_target(tmp_path: Path) -> None:
    full = [0] * 2 + [1] * 8
    assert q.close(first_step(full, tmp_path / "population"), of_classes((0.55, 0.45)), 1e-4)
    assert q.close(first_step(full, tmp_path / "uniform", importance_target="uniform"), of_classes((0.5, 0.5)), 1e-4)


def test_clients_without_a_class_shift_the_aggregate(tmp_path: Path) -> None:
    # Population (0.45, 0.55): the first client follows it, the second its one class.
    assert q.close(first_step([1] * 10, tmp_path), of_classes((0.225, 0.775)), 1e-4)
    found = reweighting(np.array([0] * 9 + [1] * 11), [np.arange(10), np.arange(10, 20)], NONE_HELD_OUT, "population")
    measures = found.measures()
    assert measures["coverage"] == pytest.approx((1 + 0.55) / 2) and measures["coverage_least"] == pytest.approx(0.55)
    assert measures["shift"] == pytest.approx(2 * 0.225) and measures["largest_weight"] == pytest.approx(5.5)
    # 1 / (1 + chi^2) of (0.45, 0.55) to (0.9, 0.1), and 1 of the client with one class.
    kish = 1 / (0.45**2 / 0.9 + 0.55**2 / 0.1)
    assert measures["kish_least"] == pytest.approx(kish) and measures["kish"] == pytest.approx((kish + 1) / 2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_target_like_the_clients_changes_no_bit_of_any_method_and_another_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    guide_here(tmp_path, monkeypatch, "quadratic", 11)
    labels = [[0, 1, 1], [0, 0, 1, 1, 1, 1]]
    more = {"scaffold_option": 1} if name == "scaffold" else {}

    def run(folder: str, **arguments: object) -> list[Tensor]:
        method, weights = q.method(name, **more), FedIR(**arguments)
        end = federation(labels, method, tmp_path / folder, weights, n_rounds=3, momentum=0.5)
        end.train()
        of_clients = [end.states.load(client) for client in range(2)]
        return [tensor for tensors in (end.server, *of_clients) for tensor in tensors.values()]

    plain, same = run("plain"), run("same", importance_reweighting="class")
    other = run("other", importance_reweighting="class", importance_target="uniform")
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))
    assert any(not torch.allclose(a, b, rtol=1e-3) for a, b in zip(plain, other, strict=True))


def test_small_batches_follow_the_client_rather_than_the_target() -> None:
    # The rare class's weight in equation 4, over all batches of B that q = (0.9, 0.1) can give.
    algorithm, local = q.method("fedavg"), q.local_of()
    kinds = np.array([0] * 9 + [1])
    weights = reweighting(kinds, [np.arange(10)], np.array([0, 9]), "global_test").of_images(kinds, [np.arange(10)])
    reweighted = FedIR(importance_reweighting="class")
    reweighted._weights = torch.from_numpy(weights)
    local.image_weights = reweighted.weights
    for batch, expected in {2: 0.17, 4: 0.27, 8: 0.36, 16: 0.43, 64: 0.48, 256: 0.50}.items():
        mean = 0.0
        for rare in range(batch + 1):
            positions = torch.tensor([9] * rare + [0] * (batch - rare))
            local.batch = StepView(slice(0, batch), positions, None, positions, positions, positions)
            loss = algorithm.local_loss((positions == 9).double(), local)
            mean += binom.pmf(rare, batch, 0.1) * float(loss)
        assert mean == pytest.approx(expected, abs=0.006)


def test_a_bound_keeps_weights_below_it_and_the_rest_in_order() -> None:
    kinds, clients = np.array([0] * 99 + [1]), [np.arange(100)]
    free, bound = (reweighting(kinds, clients, np.array([0, 99]), "global_test", each) for each in (None, 4.0))
    assert free.weight == pytest.approx([0.5 / 0.99, 50])
    assert bound.weight == pytest.approx([0.5 / (0.125 + 0.75 * 0.99), 0.5 / (0.125 + 0.75 * 0.01)])
    assert bound.weight.max() < 4 and bound.measures()["kish"] > free.measures()["kish"]


def test_the_target_is_of_what_it_says() -> None:
    kinds = np.array([0, 0, 0, 1, 2, 2, 1, -1])
    clients, held_out = [np.arange(2), np.arange(2, 4)], np.arange(4, 8)
    assert reweighting(kinds, clients, held_out, "population").p == pytest.approx([0.75, 0.25, 0])
    assert reweighting(kinds, clients, held_out, "global_test").p == pytest.approx([0, 1 / 3, 2 / 3])
    assert reweighting(kinds, clients, held_out, "uniform").p == pytest.approx([1 / 3] * 3)
    with pytest.raises(UserError, match="1 of the clients' images have no class"):
        reweighting(kinds, [np.arange(7, 8)], held_out, "population")
    with pytest.raises(UserError, match="no test image has a class"):
        reweighting(kinds, clients, held_out[3:], "global_test")


def test_clients_with_nothing_of_the_target_are_counted_and_leave_the_rest_to_the_others() -> None:
    # Targets (0.3, 0.7, 0): the first client has all of the second class, the next both, and the last nothing.
    kinds = np.array([1] * 4 + [0] * 2 + [1] * 1 + [2] * 2 + [0] * 3 + [1] * 7)
    clients, held_out = [np.arange(4), np.arange(4, 7), np.arange(7, 9)], np.arange(9, 19)
    measures = reweighting(kinds, clients, held_out, "global_test").measures()
    # pi = 4/7 (0, 1) + 3/7 (0.3, 0.7): it lacks 0.3 * 4/7 of the first class, which the second has.
    assert measures["shift"] == pytest.approx(2 * 0.3 * 4 / 7) and measures["untargeted_clients"] == 1
    nobody = reweighting(kinds, [np.arange(7, 9)], held_out, "global_test").measures()
    assert (nobody["shift"], nobody["untargeted_clients"], nobody["coverage"]) == (2, 1, 0)


def test_a_target_or_bound_that_nothing_heeds_is_said() -> None:
    line = FedIR(importance_target="global_test", importance_bound=4.0).without_effect()
    given = "--importance_target global_test and --importance_bound 4.0"
    assert line == f"{given}: has no effect without --importance_reweighting" and len(line) <= 120
    heeded = FedIR(importance_reweighting="class", importance_target="global_test", importance_bound=4.0)
    assert heeded.without_effect() == FedIR().without_effect() == ""


def test_batches_of_nothing_that_the_target_has_teach_nothing(tmp_path: Path) -> None:
    weights = FedIR(importance_reweighting="class", importance_target="global_test")
    run = federation([[0, 1], [2, 2]], q.method("fedavg"), tmp_path, weights)
    run.train()
    assert np.isfinite(q.server_of(run)).all() and run.rows[-1]["local_loss"] > 0
    weights = FedIR(importance_reweighting="class")
    alone = federation([[0, 1], [2, 2]], q.method("fedavg"), tmp_path / "all", weights)
    alone.train()
    assert not q.close(q.server_of(run), q.server_of(alone))


def test_a_hundred_thousand_clients_of_a_thousand_classes_take_little_memory() -> None:
    rng = np.random.default_rng(0)
    kinds, clients = rng.integers(1203, size=1_300_000), list(np.arange(1_300_000).reshape(-1, 13))
    tracemalloc.start()
    measures = reweighting(kinds, clients, NONE_HELD_OUT, "population").measures()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e8  # a table of clients times classes has 1.2e8 numbers
    # Thirteen draws of 1203 classes are 1203 (1 - (1 - 1/1203)^13) different ones on average.
    assert measures["coverage"] == pytest.approx(1 - (1 - 1 / 1203) ** 13, rel=0.01) and measures["kish"] > 0.95


def test_clusters_are_the_tasks_own_whatever_was_assigned(table: Table, tmp_path: Path) -> None:
    data = TaskData(table, TASKS["normal"], 32, torch.device("cpu"))
    assert (labels_of(CLASS, data, None) == table.labels).all()
    with pytest.raises(UserError, match=r"assignments_normal.json.*extract_embeddings.py --task normal"):
        labels_of(CLUSTER, data, tmp_path)
    clusters = np.arange(len(table)) % 3
    save_assignments(tmp_path, data, "embeddings", clusters, np.zeros((3, 2)), 3, tmp_path / "reduced.npy")
    reweighted = FedIR(importance_reweighting="cluster", assignment_files_path=tmp_path)
    clients = [data.train[clusters[data.train] != 2], data.train[clusters[data.train] == 2]]
    reweighted.prepare(data, ClientImages.of(clients))
    n = len(data.train)
    own = np.bincount(clusters[data.train])
    # w = (own / n) / (own / client) = client / n, whatever the cluster's size.
    assert reweighted._weights[torch.from_numpy(clients[0])].numpy() == pytest.approx((own[0] + own[1]) / n)
    assert reweighted._weights[torch.from_numpy(clients[1])].numpy() == pytest.approx(own[2] / n)
