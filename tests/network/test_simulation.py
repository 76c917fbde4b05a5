"""The federation against averages and gradients written out by hand."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.selection import Selection
from datasets.task_data import TaskData
from losses import l1
from models.task_model import ModelConfig, TaskModel
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.client import Local, LocalSettings, Schedule, longest_first
from network.dealing import deal
from network.simulation import Simulation
from utils.errors import UserError
from utils.runs import Run

ACCELERATOR = Accelerator(cpu=True)
SETTINGS = LocalSettings(
    batch_size=8, sgd_per_epoch=3, epoch_per_round=1, n_rounds=2, init_lr=0.05, momentum=0.0, lr_schedule="none",
    lr_decay_rate=0.999, no_improvement_tolerance=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(selection: Selection) -> TaskData:
    return TaskData(selection, model().task, 32, torch.device("cpu"))


def model(norm: str = "batch", seed: int = 0, task: str = "normal") -> TaskModel:
    torch.manual_seed(seed)
    return TaskModel(ModelConfig(task, "tiny", 32, norm))


def method(name: str = "fedavg", **arguments) -> FedAvg:
    return ALGORITHMS[name](Namespace(**({"clients_per_round": None, "mu": 0.1} | arguments)))


def clients_of(data: TaskData, n_clients: int = 3) -> tuple[list[np.ndarray], np.ndarray]:
    groups = np.where(np.isin(np.arange(len(data)), data.train), data.selection.labels, -1)
    return deal("paper", groups, n_clients, 5.0, 0).clients, groups


@pytest.fixture
def simulate(data: TaskData, tmp_path: Path) -> Callable[..., Simulation]:
    def make(algorithm: FedAvg | None = None, settings: LocalSettings = SETTINGS, norm: str = "batch", **more):
        clients, groups = clients_of(data)
        run = Run(tmp_path / more.pop("run", "run"))
        clients = more.pop("clients", clients)
        return Simulation(
            model(norm), data, clients, groups, algorithm or method(), settings, ACCELERATOR, run, more.pop("seed", 7)
        )

    return make


def by_hand(data: TaskData, images: np.ndarray, client: int, seed: int, round: int, start: dict, mu: float = 0.0):
    """One client's round written plainly: a fresh model, torch's autograd, and w <- w - lr * gradient."""
    network = model()
    network.load_state_dict(start)
    network.train()
    rng = np.random.default_rng((seed, round, client))
    batches: list[np.ndarray] = []
    while len(batches) < SETTINGS.steps:
        order = rng.permutation(len(images))
        batches += [order[i : i + 8] for i in range(0, len(images), 8)]
    for at in batches[: SETTINGS.steps]:
        batch = data.batch(torch.from_numpy(images[at]))
        loss = l1(network(batch.images)[1], batch.target, batch.valid).mean()
        distance = sum((p - start[name]).square().sum() for name, p in network.named_parameters())
        gradients = torch.autograd.grad(loss + mu / 2 * distance, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= SETTINGS.init_lr * gradient
    return network.state_dict()


@pytest.mark.parametrize(("name", "mu"), [("fedavg", 0.0), ("fedprox", 0.5)])
def test_two_rounds_are_the_weighted_mean_of_clients_trained_by_hand(
    simulate: Callable, data: TaskData, name: str, mu: float
) -> None:
    simulation = simulate(method(name, mu=mu))
    expected = {key: tensor.clone() for key, tensor in simulation.server.items()}
    simulation.train()
    sizes = [len(images) for images in simulation.clients]
    assert len(set(sizes)) > 1  # otherwise the weights would not matter
    for round in range(SETTINGS.n_rounds):
        locals_ = [by_hand(data, c, i, 7, round, expected, mu) for i, c in enumerate(simulation.clients)]
        expected = {
            key: sum(n / sum(sizes) * local[key].double() for n, local in zip(sizes, locals_, strict=True)).to(t.dtype)
            for key, t in expected.items()
        }
    for key, tensor in simulation.server.items():
        assert torch.allclose(tensor.float(), expected[key].float(), rtol=1e-4, atol=1e-5), key


def test_fedprox_without_its_term_is_fedavg(simulate: Callable) -> None:
    plain, without = simulate(run="a"), simulate(method("fedprox", mu=0.0), run="b")
    assert plain.train()[-1]["test_loss"] == without.train()[-1]["test_loss"]
    assert all(torch.equal(plain.server[key], without.server[key]) for key in plain.server)


def test_the_same_seed_gives_the_same_metrics_and_another_does_not(simulate: Callable) -> None:
    one, same, other = (simulate(run=str(i), seed=seed).train() for i, seed in enumerate((7, 7, 8)))
    timeless = [{k: v for k, v in row.items() if k not in ("seconds", "local_loss")} for row in one]
    assert timeless == [{k: v for k, v in row.items() if k not in ("seconds", "local_loss")} for row in same]
    assert one[-1]["test_loss"] != other[-1]["test_loss"]


@pytest.mark.parametrize("schedule", ["plateau", "cosine"])
def test_a_resumed_run_ends_with_the_numbers_of_an_uninterrupted_one(simulate: Callable, schedule: str) -> None:
    settings = replace(SETTINGS, n_rounds=4, sgd_per_epoch=8, lr_schedule=schedule, lr_decay_rate=0.5)
    settings = replace(settings, no_improvement_tolerance=1)
    whole = simulate(settings=settings, run="whole")
    whole.train()
    stopped = simulate(settings=settings, run="stopped")
    stopped._finish_round(0, {"local_loss": 0.0, "seconds": 0.0})
    for round in range(2):
        stopped._train_round(round)
        stopped._finish_round(round + 1, {"local_loss": 0.0, "seconds": 0.0})
    resumed = simulate(settings=settings, run="stopped")
    resumed.resume()
    assert len(resumed.train()) == 5
    assert resumed.rows[-1]["test_loss"] == whole.rows[-1]["test_loss"]
    assert all(torch.equal(resumed.server[key], whole.server[key]) for key in whole.server)


def test_the_mean_does_not_depend_on_the_order_of_clients(data: TaskData, tmp_path: Path) -> None:
    clients, groups = clients_of(data)

    class Reversed(FedAvg):
        def select(self, n_clients: int, rng: np.random.Generator) -> list[int]:
            return list(reversed(range(n_clients)))

    servers = []
    for number, algorithm in enumerate((method(), Reversed(Namespace(clients_per_round=None)))):
        run = Run(tmp_path / str(number))
        simulation = Simulation(model(), data, clients, groups, algorithm, SETTINGS, ACCELERATOR, run, 0)
        simulation.train()
        servers.append(simulation.server)
    assert all(torch.equal(servers[0][key], servers[1][key]) for key in servers[0])


def test_a_client_with_fewer_images_than_a_batch_trains_on_what_it_has(simulate: Callable, data: TaskData) -> None:
    few = [data.train[:3], data.train[3:40]]
    simulation = simulate(clients=few, norm="group")
    before = simulation.server["decoder.fc.weight"].clone()
    rows = simulation.train()
    assert np.isfinite([row["test_loss"] for row in rows]).all()
    assert not torch.equal(before, simulation.server["decoder.fc.weight"])


def test_reported_losses_are_the_means_over_each_clients_images(simulate: Callable, data: TaskData) -> None:
    simulation = simulate()
    row = simulation.train()[-1]
    network = simulation.model.eval()

    def mean_loss(images: np.ndarray) -> float:
        with torch.no_grad():
            batch = data.batch(torch.from_numpy(images))
            return l1(network(batch.images)[1], batch.target, batch.valid).mean().item()

    losses = [mean_loss(images) for images in simulation.clients]
    assert row["train_loss_mean"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert row["train_loss_std"] == pytest.approx(np.std(losses), rel=1e-3)
    assert row["train_loss_worst"] == pytest.approx(max(losses), rel=1e-4)
    assert row["test_loss"] == pytest.approx(mean_loss(data.test), rel=1e-4)


def test_a_diverging_run_ends_with_a_clear_line(simulate: Callable) -> None:
    with pytest.raises(UserError, match="lower --init_lr"):
        simulate(settings=replace(SETTINGS, init_lr=1e30, n_rounds=3), norm="group").train()


def test_a_new_method_is_one_short_class(simulate: Callable) -> None:
    """A counter that each client keeps, and a head that does not travel."""

    turns: dict[int, int] = {}

    class Example(FedAvg):
        def client_state(self, model: nn.Module) -> dict[str, Tensor]:
            return {"turns": torch.zeros(())}

        def is_shared(self, name: str) -> bool:
            return not name.startswith("decoder.head")

        def local_loss(self, loss: Tensor, local: Local) -> Tensor:
            local.state["turns"] += 1
            turns[local.client] = int(local.state["turns"])
            assert local.embedding.shape[0] == len(local.labels) == len(local.groups) == len(loss)
            return super().local_loss(loss, local)

    simulation = simulate(Example(Namespace(clients_per_round=2)))
    head = simulation.server["decoder.head.0.weight"].clone()
    body = simulation.server["decoder.fc.weight"].clone()
    simulation.train()
    assert torch.equal(head, simulation.server["decoder.head.0.weight"])
    assert not torch.equal(body, simulation.server["decoder.fc.weight"])
    # Two rounds with two clients and three steps each.
    assert sum(turns.values()) == 2 * 2 * 3


def test_the_plateau_schedule_follows_the_published_rule() -> None:
    rng = np.random.default_rng(0)
    losses = torch.tensor(np.r_[np.linspace(2, 1, 12), rng.uniform(0.9, 1.4, 28)], dtype=torch.float32)
    settings = replace(SETTINGS, lr_schedule="plateau", lr_decay_rate=0.9, no_improvement_tolerance=4, init_lr=0.1)
    state: dict[str, Tensor] = {}
    local = Local(0, np.arange(4), 0, nn.Linear(1, 1), {}, state, settings)
    schedule = Schedule(local, torch.device("cpu"))
    # The rule in plain Python: from the fourth step in a row without a new lowest mean of five, 0.9 a step.
    lr, best, since = 0.1, np.inf, 0
    for step, loss in enumerate(losses):
        schedule.before(step)
        schedule.after(loss)
        if step >= 4:
            mean = losses[step - 4 : step + 1].mean().item()
            best, since = (mean, 0) if mean < best else (best, since + 1)
            lr *= 0.9 if since >= 4 else 1.0
        assert schedule.lr.item() == pytest.approx(lr, rel=1e-5)
    assert lr < 0.05


def test_cosine_falls_from_the_initial_rate_to_nothing_over_all_rounds() -> None:
    settings = replace(SETTINGS, lr_schedule="cosine", n_rounds=4, sgd_per_epoch=5)
    rates = []
    for round in range(4):
        local = Local(0, np.arange(4), round, nn.Linear(1, 1), {}, {}, settings)
        schedule = Schedule(local, torch.device("cpu"))
        for step in range(5):
            schedule.before(step)
            rates.append(schedule.lr.item())
    # Twenty steps: rate i is 0.05 * (1 + cos(pi i / 20)) / 2.
    assert np.allclose(rates, 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20)) / 2, rtol=1e-6)


def test_clients_are_spread_the_longest_first() -> None:
    # 9 | 7 -> 9 | 7+4 -> 9+3 | 11 -> 12 | 11+2: loads 12 and 13
    assert longest_first([4, 9, 2, 7, 3], 2) == [[1, 4], [3, 0, 2]]
