"""A federation of two quadratic problems: the real rounds on a model of ten numbers, and its gradients in NumPy.

An image is a vector a, the model's output a * w + h for a body w and a head h, the loss the mean of (output - b)^2.
Each client's images fit into one batch, so that every step follows the client's whole gradient, and a paper's
algorithm can be followed in plain arrays [w, h] of shape (2, 5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.decoding import decode_unit_scale
from datasets.task_data import Batch, TaskData
from datasets.tasks import Task
from models.networks.task_model import Outputs
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.config import FederationConfig
from network.engine.client import ClientContext, ClientRound
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.workspace import OneCopy
from network.importance import FedIR
from network.sampling import ClientSampling
from network.settings import LocalSettings, SimulationSettings
from utils.runs import Run

DIM, LR, STEPS = 5, 0.2, 3
SETTINGS = LocalSettings(
    batch_size=8,
    sgd_per_epoch=STEPS,
    epoch_per_round=1,
    n_rounds=2,
    init_lr=LR,
    momentum=0.0,
    lr_schedule="none",
    lr_decay_rate=0.999,
    no_improvement_tolerance=5,
)
CLIENTS = [np.arange(3), np.arange(3, 8)]  # of unequal size, so that weights matter
HELD_OUT = [np.arange(8, 10), np.arange(10, 11)]
SHARES = np.array([3 / 8, 5 / 8])

_RNG = np.random.default_rng(5)
A = _RNG.uniform(-1.5, 1.5, (11, DIM)).astype(np.float32)
B = (_RNG.normal(size=(11, DIM)) + np.repeat([-1.0, 2.0, -1.0, 2.0], [3, 5, 2, 1])[:, None]).astype(np.float32)
START = _RNG.normal(size=(2, DIM)).astype(np.float32)


class Quadratic(nn.Module):
    """Body and head as the project's models call them; the features are (B, 5), the embedding (B, 5, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(START[0].copy()))
        self.decoder = nn.Module()
        self.decoder.head = nn.Module()
        self.decoder.head.shift = nn.Parameter(torch.from_numpy(START[1].copy()))

    def forward(self, images: Tensor) -> Outputs:
        features = images * self.weight
        return Outputs(features, features[:, :, None, None], features + self.decoder.head.shift)


class QuadraticTable:
    """The images' table: how many there are, and what it is known by."""

    fingerprint, data_path = "quadratic", Path("quadratic")

    def __len__(self) -> int:
        return len(A)


class QuadraticData:
    """The eleven images, of which eight are trained on; what `Simulation` asks of `TaskData`."""

    task = Task("quadratic", DIM, decode_unit_scale, "mse", ())
    device = torch.device("cpu")
    train, val, test = np.arange(8), np.arange(0), np.arange(8, 11)
    labels = torch.zeros(11, dtype=torch.int64)
    table = QuadraticTable()
    shortened = False
    without = TaskData.without

    def batch(self, positions: Tensor) -> Batch:
        target = torch.from_numpy(B)[positions]
        return Batch(torch.from_numpy(A)[positions], target, torch.ones_like(target, dtype=torch.bool))

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        for at in map(torch.from_numpy, plan):
            yield at.to(self.device), self.batch(at.to(self.device))


def local_of(
    settings: LocalSettings = SETTINGS,
    round: int = 0,
    state: dict[str, Tensor] | None = None,
    model: nn.Module | None = None,
    images: np.ndarray = CLIENTS[1],
    client: int = 0,
) -> ClientContext:
    """A client at work on a model of its own, which starts from that model's weights."""
    model = model or Quadratic()
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = OneCopy(model).tensors[0]
    client_round, state = ClientRound(images, 3, 1.0, 1.0), {} if state is None else state
    return ClientContext(client, client_round, round, model, tensors, start, start, state, settings, frozenset(start))


def method(name: str, **arguments: object) -> FedAvg:
    """A method with these arguments, and its own defaults for the others."""
    return ALGORITHMS[name](**arguments)


def spoilt(name: str, client: int, rounds: Collection[int], **arguments: object) -> FedAvg:
    """A method in which this client's loss is NaN in these rounds."""

    class Spoilt(ALGORITHMS[name]):
        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            factor = float("nan") if local.client == client and local.round in rounds else 1.0
            return super().local_loss(loss, local) * factor

    return Spoilt(**arguments)


def simulation(
    algorithm: FedAvg, folder: Path, settings: LocalSettings = SETTINGS, model: nn.Module | None = None, **more: object
) -> Simulation:
    """The federation, before its first round; `more` has settings, of the sampling and FedIR as well."""
    clients, held_out = more.pop("clients", CLIENTS), more.pop("held_out", HELD_OUT)
    non_participating, theirs = more.pop("non_participating", ()), more.pop("non_participating_held_out", ())
    data = FederatedData(QuadraticData(), clients, held_out, np.zeros(11, np.int64), non_participating, theirs)
    accelerator = more.pop("accelerator", None) or Accelerator(cpu=True)
    chosen = {name: more.pop(name) for name in ("aggregation", "attack", "privacy") if name in more}
    parts = [
        kind(**{name: more.pop(name) for name in kind.arguments if name in more}) for kind in (ClientSampling, FedIR)
    ]
    how = SimulationSettings(**{"rand_seed": 1} | more)
    config = FederationConfig(algorithm, settings, how, *parts, **chosen)
    return Simulation(model or Quadratic(), data, config, accelerator, Run(folder))


def trained(algorithm: FedAvg, folder: Path, settings: LocalSettings = SETTINGS, **more: object) -> Simulation:
    """The federation after its last round."""
    federation = simulation(algorithm, folder, settings, **more)
    federation.train()
    return federation


def long_run(
    algorithm: FedAvg, folder: Path, n_rounds: int, settings: LocalSettings = SETTINGS, **more: object
) -> np.ndarray:
    """The server's [w, h] after many rounds, without evaluation and checkpoints."""
    federation = simulation(algorithm, folder, settings, **more)
    for round in range(n_rounds):
        federation._train_round(round)
        federation.states.finish_round()
    return server_of(federation)


def server_of(federation: Simulation) -> np.ndarray:
    """The server's [w, h]."""
    return _array(federation.server)


def model_of(federation: Simulation, client: int) -> np.ndarray:
    """A client's own [w, h]."""
    federation._load_personal(client)
    return _array(federation.model.state_dict())


def gradient(x: np.ndarray, client: int | np.ndarray) -> np.ndarray:
    """Of the mean loss over a client's images (or those given) at x, by the derivative of (a w + h - b)^2."""
    images = CLIENTS[client] if isinstance(client, int) else client
    a, b = A[images].astype(float), B[images].astype(float)
    residual = a * x[0] + x[1] - b
    return 2 / DIM * np.stack([(a * residual).mean(axis=0), residual.mean(axis=0)])


def loss(x: np.ndarray, images: np.ndarray) -> float:
    """The mean loss over images."""
    return float(((A[images] * x[0] + x[1] - B[images]) ** 2).mean())


def descend(
    x: np.ndarray,
    client: int | np.ndarray,
    n_steps: int = STEPS,
    more: Callable[[np.ndarray], np.ndarray | float] = lambda y: 0.0,
) -> np.ndarray:
    """Plain gradient descent on a client's loss, with further terms of the gradient at the current point."""
    y = np.array(x, float)
    for _ in range(n_steps):
        y = y - LR * (gradient(y, client) + more(y))
    return y


def average(models: list[np.ndarray]) -> np.ndarray:
    """The mean of the two clients' arrays, weighted by their images."""
    return SHARES[0] * models[0] + SHARES[1] * models[1]


def optimum(weights: np.ndarray = SHARES) -> np.ndarray:
    """The minimum of the clients' weighted mean loss, by solving the 2 x 2 normal equations of each dimension."""
    rows = []
    for d in range(DIM):
        matrix, right = np.zeros((2, 2)), np.zeros(2)
        for weight, images in zip(weights, CLIENTS, strict=True):
            design = np.stack([A[images, d], np.ones(len(images))], axis=1).astype(float)
            matrix += weight / len(images) * design.T @ design
            right += weight / len(images) * design.T @ B[images, d]
        rows.append(np.linalg.solve(matrix, right))
    return np.stack(rows, axis=1)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Whether two arrays agree to single precision."""
    return np.allclose(actual, expected, rtol=tolerance, atol=tolerance)


def _array(tensors: dict[str, Tensor]) -> np.ndarray:
    return np.stack([tensors["weight"].numpy(), tensors["decoder.head.shift"].numpy()]).astype(float)
