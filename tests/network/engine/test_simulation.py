"""The federation against averages and gradients written out by hand."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from benchmarks.agreement import check_weights
from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import TASKS, Task
from losses import l1
from models.central.metrics import metric_names
from models.networks.config import ModelConfig
from models.networks.task_model import Outputs, TaskModel
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.config import FederationConfig
from network.engine import local_training
from network.engine import simulation as simulation_module
from network.engine.adaptation import Adaptation
from network.engine.batch_norm import batch_norm_tensors
from network.engine.client import ClientContext, ClientRound
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.state import MEMORY
from network.engine.workspace import Workspace
from network.partition.assigning import assign
from network.partition.client_images import ClientImages
from network.partition.held_out import assign_held_out
from network.sampling import ClientSampling
from network.settings import LocalSettings, SimulationSettings
from tests.conftest import start_spread
from tests.models.teacher.guiding import guide_here
from tests.network import quadratic as q
from tests.network.quadratic import simulation as quadratic
from tests.network.spread import ADAPTING, N_ROUNDS, NAMES, NON_PARTICIPATING, federation
from utils import interrupt
from utils.errors import UserError
from utils.runs import Run
from utils.streams import generator

ACCELERATOR = Accelerator(cpu=True)
SETTINGS = LocalSettings(
    batch_size=8,
    sgd_per_epoch=3,
    epoch_per_round=1,
    n_rounds=2,
    init_lr=0.05,
    momentum=0.0,
    lr_schedule="none",
    lr_decay_rate=0.999,
    no_improvement_tolerance=5,
)


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, model().task, 32, torch.device("cpu"))


@pytest.fixture(scope="module")
def small(table: Table) -> Callable[[str], TaskData]:
    """The data of each task at half the size."""
    return cache(lambda task: TaskData(table, table.bind(TASKS[task]), 16, torch.device("cpu")))


def model(norm: str = "batch", seed: int = 0, task: Task = TASKS["normal"]) -> TaskModel:
    torch.manual_seed(seed)
    return TaskModel(ModelConfig(task.name, "tiny", 32, norm, classes=task.classes))


def method(name: str = "fedavg", **arguments) -> FedAvg:
    return ALGORITHMS[name](**arguments)


def clients_of(data: TaskData, n_clients: int = 3) -> tuple[list[np.ndarray], np.ndarray]:
    groups = np.where(np.isin(np.arange(len(data)), data.train), data.table.labels, -1)
    return assign("paper", groups, n_clients, 5.0, 0).clients, groups


def held_out_groups(data: TaskData) -> np.ndarray:
    return np.where(np.isin(np.arange(len(data)), data.test), data.table.labels, -1)


@pytest.fixture
def simulate(data: TaskData, tmp_path: Path) -> Callable[..., Simulation]:
    normals = data

    def make(algorithm: FedAvg | None = None, settings: LocalSettings = SETTINGS, norm: str = "batch", **more):
        data = more.pop("data", normals)
        clients, groups = clients_of(data)
        run = Run(tmp_path / more.pop("run", "run"))
        clients = more.pop("clients", clients)
        held_out = assign_held_out(clients, groups, held_out_groups(data), 0)
        network = more.pop("model", None) or model(norm)
        federated = FederatedData(data, clients, held_out, groups)
        sampling = more.pop("sampling", None) or ClientSampling()
        how = SimulationSettings(**{"rand_seed": 7} | more)
        config = FederationConfig(algorithm or method(), settings, how, sampling)
        return Simulation(network, federated, config, ACCELERATOR, run)

    return make


def by_hand(data: TaskData, images: np.ndarray, client: int, seed: int, round: int, start: dict, mu: float = 0.0):
    """One client's round written plainly: a fresh model, torch's autograd, and w <- w - lr * gradient."""
    network = model()
    network.load_state_dict(start)
    network.train()
    rng = generator("batches", seed, round, client, "")
    seen: list[int] = []
    while len(seen) < 8 * SETTINGS.sgd_per_epoch:
        seen += rng.permutation(len(images)).tolist()
    for step in range(SETTINGS.sgd_per_epoch):
        at = np.array(seen[8 * step : 8 * (step + 1)])
        batch = data.batch(torch.from_numpy(images[at]))
        loss = l1(network(batch.images).output, batch.target, batch.valid).mean()
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
    simulation = simulate(method(name, **({"mu": mu} if mu else {})))
    expected = start = {key: tensor.clone() for key, tensor in simulation.server.items()}
    simulation.train()
    sizes = [len(images) for images in simulation.data.clients]
    assert len(set(sizes)) > 1  # otherwise the weights would not matter
    for round in range(SETTINGS.n_rounds):
        locals_ = [by_hand(data, c, i, 7, round, expected, mu) for i, c in enumerate(simulation.data.clients)]
        expected = {
            key: sum(n / sum(sizes) * local[key].double() for n, local in zip(sizes, locals_, strict=True)).to(t.dtype)
            for key, t in expected.items()
        }
    # Rounding may turn the sign of a residual or an activation: what agrees is the way that all weights have gone.
    of_three = [{key: t.numpy() for key, t in tensors.items()} for tensors in (simulation.server, expected, start)]
    check_weights(name, *of_three, 1e-4)


@pytest.mark.parametrize("schedule, adam", [("cosine", False), ("plateau", True)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_clients_side_by_side_do_what_they_do_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, schedule: str, adam: bool
) -> None:
    guide_here(tmp_path, monkeypatch, "quadratic", 11)
    # Three clients of different size, two at once and one alone; a second round, in which what they keep is used.
    settings = replace(
        q.SETTINGS,
        lr_schedule=schedule,
        use_adam=adam,
        sgd_per_epoch=7,
        lr_decay_rate=0.8,
        no_improvement_tolerance=1,
        momentum=0.5,
    )
    clients = [np.arange(3), np.arange(3, 7), np.array([7])]
    more = {"clients": clients, "held_out": [*q.HELD_OUT, np.array([8])], "evaluate_every": 2}
    alone = q.trained(method(name), tmp_path / "alone", settings, **more)
    together = q.trained(method(name), tmp_path / "together", settings, vectorised_clients=2, **more)
    for key, tensor in alone.server.items():
        assert torch.allclose(together.server[key], tensor, rtol=1e-4, atol=1e-6), key
    for client in range(3):
        expected, found = alone.states.load(client), together.states.load(client)
        assert expected.keys() == found.keys()
        assert all(torch.allclose(found[key], expected[key], rtol=1e-4, atol=1e-6) for key in expected)
    assert pd.DataFrame(together.rows)["local_loss"][1:].to_numpy() == pytest.approx(
        pd.DataFrame(alone.rows)["local_loss"][1:].to_numpy(), rel=1e-4
    )


@pytest.mark.parametrize("norm, use_cbam, size", [("group", False, 32), ("batch", False, 16), ("batch", True, 16)])
def test_networks_side_by_side_are_those_one_by_one(
    simulate: Callable, data: TaskData, norm: str, use_cbam: bool, size: int
) -> None:
    # Batches of 5 and, of the second client, 3: filled up with group norm, not side by side with batch norm.
    clients = [data.train[:8], data.train[8:11], data.train[11:20]]
    settings = replace(SETTINGS, batch_size=5, n_rounds=1, momentum=0.9)
    torch.manual_seed(1)
    config = ModelConfig("normal", "tiny", size, norm, use_cbam)
    data = TaskData(data.table, data.task, size, data.device)
    servers = []
    for n in (1, 3):
        torch.manual_seed(0)
        run = simulate(
            method(), settings, data=data, clients=clients, model=TaskModel(config), vectorised_clients=n, run=f"run{n}"
        )
        client_batches = sorted(
            run.trainer.client_batches(run.config.sampling.cohort(run.data.clients, settings, np.random.default_rng(0)))
        )
        assert client_batches == ([[0], [1], [2]] if n == 1 else [[0, 2], [1]] if norm == "batch" else [[0, 1, 2]])
        run.train()
        servers.append(run.server)
    largest = max(float(t.float().abs().max()) for t in servers[0].values())
    for key, tensor in servers[0].items():
        assert torch.allclose(servers[1][key].float(), tensor.float(), rtol=1e-3, atol=1e-4 * largest), key


def test_fedprox_without_its_term_is_fedavg(simulate: Callable) -> None:
    plain, without = simulate(run="a"), simulate(method("fedprox", mu=0.0), run="b")
    assert plain.train()[-1]["test_loss"] == without.train()[-1]["test_loss"]
    assert all(torch.equal(plain.server[key], without.server[key]) for key in plain.server)


def test_the_choice_of_clients_and_the_batches_of_each_have_streams_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draw from every generator, of which one chooses the clients of the first round, is another."""
    draws: list[int] = []

    def noted(function: Callable) -> Callable:
        def call(*args: Any) -> object:
            draws.append(int(args[-1].integers(2**63)))
            return function(*args)

        return call

    monkeypatch.setattr(ClientSampling, "cohort", noted(ClientSampling.cohort))
    monkeypatch.setattr(local_training, "shuffled_epochs", noted(local_training.shuffled_epochs))
    run = quadratic(FedAvg(), tmp_path, replace(SETTINGS, n_rounds=3))
    run.train()
    assert len(draws) == 3 * (1 + len(run.data.clients)) == len(set(draws))


def test_the_same_seed_gives_the_same_metrics_and_another_does_not(simulate: Callable) -> None:
    one, same, other = (simulate(run=str(i), rand_seed=seed).train() for i, seed in enumerate((7, 7, 8)))
    timeless = [{k: v for k, v in row.items() if k not in ("seconds", "local_loss")} for row in one]
    assert timeless == [{k: v for k, v in row.items() if k not in ("seconds", "local_loss")} for row in same]
    assert one[-1]["test_loss"] != other[-1]["test_loss"]


@pytest.mark.parametrize("schedule", ["plateau", "cosine"])
def test_a_resumed_run_ends_with_the_numbers_of_an_uninterrupted_one(simulate: Callable, schedule: str) -> None:
    settings = replace(SETTINGS, n_rounds=4, sgd_per_epoch=2, lr_schedule=schedule, lr_decay_rate=0.5)
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


@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_a_run_that_lacks_only_its_report_knows_each_client_again(tmp_path: Path, name: str) -> None:
    whole = federation(name, tmp_path)
    whole.train()
    again = federation(name, tmp_path)
    again.resume()
    again.train()
    before, after = whole.evaluation.by_client(), again.evaluation.by_client()
    assert list(before) == list(after) and all(np.array_equal(before[n], after[n], equal_nan=True) for n in before)
    assert all(torch.equal(again.model.state_dict()[name], whole.server[name]) for name in whole.server)


def test_the_mean_does_not_depend_on_the_order_of_clients(data: TaskData, tmp_path: Path) -> None:
    clients, groups = clients_of(data)

    class Reversed(FedAvg):
        def cohort(self, *args: object) -> dict[int, ClientRound]:
            return dict(reversed(super().cohort(*args).items()))

    servers = []
    for number, algorithm in enumerate((method(), Reversed())):
        run = Run(tmp_path / str(number))
        federated = FederatedData(data, clients, [data.test] * len(clients), groups)
        config = FederationConfig(algorithm, SETTINGS, SimulationSettings(0))
        simulation = Simulation(model(), federated, config, ACCELERATOR, run)
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
            return l1(network(batch.images).output, batch.target, batch.valid).mean().item()

    losses = [mean_loss(images) for images in simulation.data.clients]
    assert row["train_loss_mean"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert row["train_loss_std"] == pytest.approx(np.std(losses), rel=1e-3)
    assert row["train_loss_worst"] == pytest.approx(max(losses), rel=1e-4)
    assert row["test_loss"] == pytest.approx(mean_loss(data.test), rel=1e-4)


def test_a_diverging_run_ends_with_a_clear_line(simulate: Callable) -> None:
    with pytest.raises(UserError, match="lower --init_lr"):
        simulate(settings=replace(SETTINGS, init_lr=1e30, n_rounds=3), norm="group").train()


def test_a_new_method_is_one_short_class(simulate: Callable) -> None:
    """A counter that each client keeps, a head that does not travel, and a momentum at the server."""

    steps: dict[int, int] = {}

    class Example(FedAvg):
        def server_state(self, model: nn.Module) -> dict[str, Tensor]:
            return {"rounds": torch.zeros(())}

        def is_shared(self, name: str) -> bool:
            return not name.startswith("decoder.head")

        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            local.state["steps"] = local.state.get("steps", torch.zeros(())) + 1
            steps[local.client] = int(local.state["steps"])
            assert len(local.batch.embedding) == len(local.batch.labels) == len(local.batch.groups) == len(loss)
            return super().local_loss(loss, local)

        def server_step(self, server: dict[str, Tensor], mean: dict[str, Tensor]) -> dict[str, Tensor]:
            return super().server_step(server, mean | {"rounds": server["rounds"] + 1})

    simulation = simulate(Example(), sampling=ClientSampling(clients_per_round=2))
    head = simulation.server["decoder.head.0.weight"].clone()
    body = simulation.server["decoder.fc.weight"].clone()
    simulation.train()
    assert torch.equal(head, simulation.server["decoder.head.0.weight"])
    assert not torch.equal(body, simulation.server["decoder.fc.weight"])
    own = [simulation.states.load(client)["own.decoder.head.0.weight"] for client in steps]
    assert len(steps) >= 2 and not any(torch.equal(head, weight) for weight in own)
    # Two rounds with two clients and three steps each.
    assert sum(steps.values()) == 2 * 2 * 3
    assert simulation.server["rounds"] == 2


def test_a_method_looks_at_all_images_once_before_anything_else(simulate: Callable, data: TaskData) -> None:
    # Features by position, made once and read in every step: what a batch finds is what its images look like.
    told: list[str] = []

    class Looking(FedAvg):
        def prepare(self, data: TaskData, groups: np.ndarray, clients: Sequence[np.ndarray]) -> None:
            told.append("prepare")
            self.features = data.batch(torch.arange(len(data))).images.mean((2, 3))
            self.counts = [np.bincount(groups[images], minlength=int(groups.max()) + 1) for images in clients]

        def server_state(self, model: nn.Module) -> dict[str, Tensor]:
            told.append("server_state")
            return {"entropy": self.features.mean()}

        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            told.append("local_loss")
            assert torch.equal(self.features[local.batch.positions], local.batch.inputs.mean((2, 3)))
            assert (self.counts[local.client][local.batch.groups.numpy()] > 0).all()
            return super().local_loss(loss, local)

    simulation = simulate(Looking(), vectorised_clients=3)
    simulation.train()
    assert told[:2] == ["prepare", "server_state"] and set(told[2:]) == {"local_loss"}
    assert sum(simulation.algorithm.counts).sum() == sum(map(len, simulation.data.clients))


@pytest.mark.parametrize("task", ["segment_semantic", "class_scene"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_learns_dense_tasks_and_classes(
    small: Callable, simulate: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, name: str
) -> None:
    data = small(task)
    guide_here(tmp_path, monkeypatch, data.table.fingerprint, len(data))
    network = TaskModel(ModelConfig(task, "tiny", 16, "batch", classes=data.task.classes))
    settings = replace(SETTINGS, init_lr=1e-3 if task == "class_scene" else SETTINGS.init_lr)
    rarely = {"evaluate_every": 2, "checkpoint_every": 2}
    rows = simulate(method(name), settings, model=network, data=data, **rarely).train()
    column = next(c for c in ("personal_train_loss_mean", "train_loss_mean") if c in rows[0])
    assert rows[-1][column] < rows[0][column]
    for split in ("train", "local_test", "personal_train", "personal_local_test"):
        losses = [row.get(f"{split}_loss_mean", 0.0) for row in rows]
        assert np.isfinite(losses).all()


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_local_batch_norm_stays_with_the_client(simulate: Callable, data: TaskData, name: str) -> None:
    network = model("batch")
    kept = batch_norm_tensors(network)
    simulation = simulate(method(name), model=network, batch_norm="local")
    first = {key: simulation.server[key].clone() for key in kept}
    simulation.train()
    row = simulation.rows[-1]
    assert "test_loss" not in row and "train_loss_mean" not in row  # no whole model without its batch norm
    assert all(torch.equal(simulation.server[key], first[key]) for key in kept)
    statistics = [simulation.states.load(client)["own.encoder.backbone.0.1.running_mean"] for client in range(3)]
    assert not torch.equal(statistics[0], statistics[1])
    losses = []
    for client, images in enumerate(simulation.data.clients):
        # The client's own model, put together by hand.
        own = {name[4:]: t for name, t in simulation.states.load(client).items() if name.startswith("own.")}
        assert set(own) == set(kept)
        network.load_state_dict({key: simulation.server[key] for key in network.state_dict()} | own)
        with torch.no_grad():
            batch = data.batch(torch.from_numpy(images))
            losses.append(l1(network.eval()(batch.images).output, batch.target, batch.valid).mean().item())
    assert row["personal_train_loss_mean"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_the_columns_follow_the_splits(simulate: Callable, data: TaskData) -> None:
    row = simulate(method("ditto")).train()[-1]
    for split in ("train", "local_test", "personal_train", "personal_local_test"):
        names = {name.removeprefix(f"{split}_") for name in row if name.startswith(f"{split}_")}
        assert names == {"clients", *(f"{m}_{s}" for m in metric_names(data.task) for s in ("mean", "std", "worst"))}
    assert {name for name in row if name.startswith("test_")} == {f"test_{m}" for m in metric_names(data.task)}
    assert list(row)[:6] == ["round", "local_loss", "local_steps", "bytes_up", "bytes_down", "seconds"]


def test_states_beyond_the_memory_change_nothing(simulate: Callable) -> None:
    settings = replace(SETTINGS, sgd_per_epoch=1)
    roomy, tight = (
        simulate(method("ditto"), settings, run=str(memory), memory=memory, norm="group") for memory in (1 << 30, 1)
    )
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.train()[1:]] for run in (roomy, tight)]
    assert rows[0] == rows[1]
    assert len(tight.states._held) == 1


# Interruptions and several processes, on quadratics


def same(one: Simulation, other: Simulation) -> bool:
    """Whether two federations are equal to the last bit: the server, what clients keep, and the metrics."""
    timeless = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.rows[1:]] for run in (one, other)]
    clients = [[run.states.load(client) for client in range(4)] for run in (one, other)]
    tensors = [one.server, *clients[0]], [other.server, *clients[1]]
    return timeless[0] == timeless[1] and all(
        a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a) for a, b in zip(*tensors, strict=True)
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Simulation]:
    """Each federation, run to its end by one process; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def run(name: str) -> Simulation:
        made = federation(name, folder)
        made.train()
        return made

    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    """Copies a federation that was killed in its second round, with states of that round already on the disk."""
    folder = tmp_path_factory.mktemp("stopped")

    @cache
    def run(name: str) -> Path:
        made = federation(name, folder, memory=1)
        made._finish_round(0, {"local_loss": float("nan"), "seconds": 0.0})
        made._finish_round(1, made._train_round(0) | {"seconds": 0.0})
        made._train_round(1)
        return folder / name

    def copied(name: str, to: Path) -> None:
        shutil.copytree(run(name), to / name)

    return copied


@pytest.mark.parametrize("name", NAMES)
def test_every_method_resumes_to_the_last_bit(whole: Callable, stopped: Callable, tmp_path: Path, name: str) -> None:
    stopped(name, tmp_path)
    resumed = federation(name, tmp_path)
    resumed.resume()
    assert len(resumed.rows) == 2
    resumed.train()
    assert same(whole(name), resumed)
    assert len(list((tmp_path / name / "checkpoint/clients").glob("*"))) <= 2 * 4


@pytest.mark.parametrize(("processes", "resume", "names"), [(2, False, NAMES[::2]), (3, True, NAMES[1::2])])
def test_results_do_not_depend_on_the_number_of_processes(
    whole: Callable, stopped: Callable, tmp_path: Path, processes: int, resume: bool, names: list[str]
) -> None:
    folder = tmp_path / "spread"
    if resume:  # and one process began what three end
        for name in names:
            stopped(name, folder)
    command = f"tests/network/spread.py {folder} {'resume' if resume else 'train'} {' '.join(names)}"
    for process in start_spread(tmp_path, command, processes):
        process.join()
        assert process.exitcode == 0, (tmp_path / "output.txt").read_text()[-3000:]
    for name in names:
        alone, spread = whole(name), federation(name, folder)
        spread.resume()
        assert len(spread.rows) == N_ROUNDS + 1
        for key in alone.server:
            assert torch.allclose(alone.server[key].double(), spread.server[key].double(), rtol=1e-5), (name, key)
        for client in range(4):
            own, other = alone.states.load(client), spread.states.load(client)
            assert own.keys() == other.keys()
            assert all(torch.allclose(own[key].double(), other[key].double(), rtol=1e-5, atol=1e-6) for key in own)
        rows = [(alone.rows[-1], spread.rows[-1])]
        if name in NON_PARTICIPATING:
            adapted = [Adaptation(each, ADAPTING) for each in (alone, spread)]
            rows += zip(*(each.run() for each in adapted), strict=True)  # the second reads what the processes wrote
        for own, theirs in rows:
            for column, value in own.items():
                if column != "seconds":
                    text = isinstance(value, str)
                    expected = value if text else pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True)
                    assert theirs[column] == expected, (name, column)


# Interrupts, checkpoints and losses that are not finite, on quadratics


def interrupted_at(run: Simulation, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train until SIGTERM comes in this step, counted over all clients and rounds."""
    steps = itertools.count(1)
    forward = Workspace.__call__

    def counted(self: Workspace, images: Tensor) -> Outputs:
        if next(steps) == step:
            signal.raise_signal(signal.SIGTERM)
        return forward(self, images)

    with monkeypatch.context() as patch, pytest.raises(interrupt.Interrupted, match=r"go on with: .*--resume_training"):
        patch.setattr(Workspace, "__call__", counted)
        run.train()


@pytest.mark.parametrize(
    ("name", "every"), [("fedprox", 2), ("scaffold", 2), ("fedamp", 2), ("ditto", 1), ("ditto", 2), ("ditto", 5)]
)
@pytest.mark.parametrize("step", [1, 20, 30, 62])  # of 21 a round: in the first client's first step, and later
def test_an_interrupted_federation_goes_back_to_its_last_round(
    whole: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: int, every: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    stopped = federation(name, tmp_path / "stopped", checkpoint_every=every, memory=1 if every == 5 else MEMORY)
    steps_of_a_round = 42 if name == "ditto" else 21
    interrupted_at(stopped, step, monkeypatch)
    resumed = federation(name, tmp_path / "stopped")
    resumed.resume()
    assert len(resumed.rows) == len(stopped.rows) == 1 + (step - 1) // steps_of_a_round
    resumed.train()
    assert same(whole(name), resumed)
    assert not interrupt._asked and signal.getsignal(signal.SIGINT) is before


def test_checkpoints_come_every_so_many_rounds_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    keep = simulation_module.save_checkpoint
    monkeypatch.setattr(
        simulation_module,
        "save_checkpoint",
        lambda path, tensors, state: (saved.append(len(state["rows"]) - 1), keep(path, tensors, state)),
    )
    for every, rounds in ((1, [0, 1, 2, 3]), (2, [0, 2, 3]), (9, [0, 3])):
        saved.clear()
        federation("ditto", tmp_path / str(every), checkpoint_every=every).train()
        assert saved == rounds


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedrep"])
def test_evaluations_come_every_so_many_rounds_and_change_nothing(tmp_path: Path, name: str) -> None:
    always, seldom = (federation(name, tmp_path / str(every), evaluate_every=every) for every in (1, 2))
    expected, rows = always.train(), seldom.train()
    assert [row["round"] for row in rows if len(row) == len(rows[0])] == [0, 2, 3]
    assert rows[1].keys() == {"round", "local_loss", "local_steps", "bytes_up", "bytes_down", "seconds"}
    for row, other in zip(rows, expected, strict=True):
        assert all(row[name] == other[name] for name in row.keys() - {"seconds", "local_loss"})
    assert all(torch.equal(always.server[name], seldom.server[name]) for name in always.server)


@pytest.mark.parametrize("broken", ["checkpoint", "state", "both"])
def test_a_broken_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = federation("ditto", tmp_path / "whole")
    whole.train()
    folder = tmp_path / "whole" / "ditto" / "checkpoint"
    newest = max(folder.glob("clients/*"), key=lambda path: int(path.stem.split("-")[1]))
    paths = {"checkpoint": [folder / "last.safetensors"], "state": [newest]}.get(broken)
    for path in paths or [folder / "last.safetensors", folder / "last_previous.safetensors"]:
        path.write_bytes(path.read_bytes()[:-7])
    resumed = federation("ditto", tmp_path / "whole")
    capsys.readouterr()
    if broken == "both":
        with pytest.raises(UserError, match=r"last\.safetensors: not a readable checkpoint"):
            resumed.resume()
        return
    resumed.resume()
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "going on from the one before" in line and len(resumed.rows) == N_ROUNDS
    resumed.train()
    assert same(whole, resumed)


class Spoilt(FedAvg):
    """The loss of client 2 is NaN in the second step of the second round."""

    def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
        steps = self.__dict__.setdefault("steps", {})
        steps[local.client, local.round] = steps.get((local.client, local.round), 0) + 1
        spoilt = (local.client, local.round, steps[local.client, local.round]) == (2, 1, 2)
        return loss.mean() * (float("nan") if spoilt else 1.0)


def spoilt(folder: Path, **more: object) -> Simulation:
    settings = replace(SETTINGS, n_rounds=3, lr_schedule="plateau")
    clients, held_out = [np.array([0]), np.array([1, 2, 3]), np.array([4, 5])], [np.array([8])] * 3
    return quadratic(Spoilt(), folder, settings, clients=clients, held_out=held_out, **more)


@pytest.mark.parametrize("every", [1, 3])
def test_a_loss_that_is_not_finite_names_client_round_and_step(tmp_path: Path, every: int) -> None:
    run = spoilt(tmp_path / "run", checkpoint_every=every)
    with pytest.raises(UserError, match=r"not finite in round 2: client 2 in step 2; lower --init_lr.*--on_nan skip"):
        run.train()
    resumed = spoilt(tmp_path / "run")
    resumed.resume()  # the last good round is on the disk
    assert len(resumed.rows) == 2 and all(tensor.isfinite().all() for tensor in resumed.server.values())


def test_a_client_whose_loss_is_not_finite_is_left_out_of_the_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spoilt(tmp_path / "skip", on_nan="skip_client")
    run.train()
    assert "not finite in round 2: client 2 in step 2; left out of this round" in capsys.readouterr().err

    class Without(FedAvg):
        """The second round without client 2."""

        def cohort(self, sampled: dict[int, ClientRound], clients: ClientImages) -> dict[int, ClientRound]:
            self.round = getattr(self, "round", 0) + 1
            return {client: each for client, each in sampled.items() if (client, self.round) != (2, 2)}

    more = {"clients": run.data.clients, "held_out": [np.array([8])] * 3}
    settings = replace(SETTINGS, n_rounds=3, lr_schedule="plateau")
    expected = quadratic(Without(), tmp_path / "without", settings, **more)
    expected.train()
    assert all(torch.equal(run.server[key], expected.server[key]) for key in run.server)
    for client in range(3):
        own, other = run.states.load(client), expected.states.load(client)
        assert own.keys() == other.keys() and all(torch.equal(own[key], other[key]) for key in own)


def test_a_round_without_any_finite_loss_ends_the_run(tmp_path: Path) -> None:
    settings = replace(SETTINGS, n_rounds=2, init_lr=1e30, sgd_per_epoch=4)
    with pytest.raises(UserError, match=r"not finite in round 1: client 0 in step \d, client 1 in step \d"):
        quadratic(method("fedavg"), tmp_path / "run", settings, on_nan="skip_client").train()


@pytest.mark.parametrize("on_nan", ["stop", "skip_client"])
def test_a_loss_that_is_huge_but_a_number_ends_the_run(tmp_path: Path, on_nan: str) -> None:
    settings = replace(SETTINGS, n_rounds=2, init_lr=1e10, sgd_per_epoch=1)
    with pytest.raises(UserError, match=r"the loss is \d.\de\+\d+ after round 1 and was \d.*; lower --init_lr"):
        quadratic(method("fedavg"), tmp_path / "run", settings, on_nan=on_nan).train()


def test_data_that_give_no_loss_are_not_put_down_to_the_rate(tmp_path: Path) -> None:
    run = quadratic(method("fedavg"), tmp_path / "run")
    run.server = {name: torch.full_like(tensor, torch.inf) for name, tensor in run.server.items()}
    with pytest.raises(UserError, match="not finite after round 0; it has learnt nothing yet: look at the initial"):
        run.train()


# Costs


@pytest.mark.parametrize(
    "name, settings, up, down",
    [
        ("fedavg", {}, 40, 40), ("fedavg", {"train": "head"}, 20, 20), ("fedper", {}, 20, 20), ("local", {}, 0, 0),
        ("scaffold", {}, 80, 80), ("scaffold", {"train": "head"}, 40, 40), ("fednova", {}, 44, 40),
        ("fedamp", {}, 40, 40), ("fedavgm", {}, 40, 40),
    ],
)  # fmt: skip
def test_bytes_are_those_of_ten_numbers(tmp_path: Path, name: str, settings: dict, up: int, down: int) -> None:
    run = q.trained(q.method(name), tmp_path, replace(q.SETTINGS, **settings))
    assert [(row["bytes_up"], row["bytes_down"]) for row in run.rows] == [(0, 0), (up, down), (up, down)]
    costs = run.costs()
    assert (costs["parameters"], costs["bytes_up"], costs["bytes_down"]) == (10, up, down)
    assert costs["parameters_trained"] == (5 if settings else 10)
    assert costs["parameters_sent"] == {"fedper": 5, "local": 0, "fedamp": 0}.get(name, costs["parameters_trained"])
    assert costs["seconds"] > 0 and costs["peak_memory"] > 2**20
