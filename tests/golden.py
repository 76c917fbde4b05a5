"""Golden numbers: a few of each part of the code that has a declared version, so small that other machines agree.

`python -m tests.golden` writes those of new parts and of parts whose version was raised to `golden.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets import task_data
from datasets.augmentation import AUGMENTS
from datasets.classes import VOID
from datasets.task_data import TaskData, as_tensor, decode_batch
from datasets.tasks import TASKS, Encoding, Task
from losses import LOSSES
from models.central.metrics import image_statistics, summarise
from models.central.settings import TrainSettings
from models.central.training import CentralTraining
from models.embedding.embeddings import cluster, extract_embeddings
from models.embedding.projection import reduce_dimension
from models.networks.config import ModelConfig
from models.networks.decoders import DECODERS
from models.networks.encoders import ENCODERS, EncoderRequest, build_encoder
from models.networks.task_model import TaskModel
from models.teacher.basis import Notes, fit
from models.teacher.guidance import vectors_of
from network.accounting import Account
from network.aggregation import AGGREGATIONS
from network.aggregation.weighted_sum import Surroundings
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.attacks import ATTACKS
from network.config import FederationConfig
from network.engine.adaptation import Adaptation
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.partition.assigning import assign_by_settings
from network.partition.nested import Natural, joined
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings
from network.sampling import POISSON, SAMPLERS, ClientSampling
from network.settings import AdaptSettings, LocalSettings, PrivacySettings, SimulationSettings
from tests.datasets.tables import bound, classes_of, table_of
from tests.models.teacher.guiding import save_guidance
from tests.network import quadratic as q
from utils.runs import Run
from utils.versions import ENGINE

FILE = Path(__file__).with_suffix(".json")
COMMAND = "python -m tests.golden"
RTOL, ATOL = 1e-4, 1e-6
N, SIZE, CPU = 24, 32, torch.device("cpu")
WHERE = {
    "engine": "its entry of ENGINE in utils/versions.py",
    "aggregation": "`version` of its class, in network/aggregation/",
    "attack": "`version` of its class, in network/attacks/",
    "method": "`version` of its class, or of the class that has the change, in network/algorithms/",
    "task": "`version` of its entry in datasets/tasks.py",
    "partition": "`version` of its entry in network/partition/rules.py",
    "encoder": "`version` of its entry in models/networks/encoders.py",
    "decoder": "`version` of its entry in models/networks/decoders.py",
}


def parts() -> dict[str, tuple[Any, Callable[[], list[float]]]]:
    """The declared version of every part, and what computes its numbers."""
    engines = {
        "train_centralized_task_model": central,
        "extract_embeddings": embeddings,
        "extract_diffusion_features": guidance,
        "test_fed": federation,
    }
    found: dict[str, tuple[Any, Callable[[], list[float]]]] = {}
    found |= {f"engine of {stage}": (version, engines[stage]) for stage, version in ENGINE.items()}
    found |= {f"method {name}": (method.versions(), partial(rounds, name)) for name, method in ALGORITHMS.items()}
    entries = {
        "task": (TASKS, task),
        "partition": (PARTITIONERS, assigned),
        "encoder": (ENCODERS, encoded),
        "decoder": (DECODERS, decoded),
    }
    entries |= {"aggregation": (AGGREGATIONS, aggregated), "attack": (ATTACKS, attacked)}
    for kind, (registry, compute) in entries.items():
        found |= {f"{kind} {name}": (entry.version, partial(compute, name)) for name, entry in registry.items()}
    within = {name: partial(assigned_within, name) for name in PARTITIONERS}
    found |= {f"partition {name} within groups": (PARTITIONERS[name].version, each) for name, each in within.items()}
    robust = {name: partial(aggregated_far, name) for name in AGGREGATIONS}
    found |= {f"aggregation {name} of far uploads": (AGGREGATIONS[name].version, each) for name, each in robust.items()}
    found["method gossip on graphs"] = ALGORITHMS["gossip"].versions(), gossip
    more = {"with a private sum": private, "with unseen clients": adapted}
    return found | {f"engine of test_fed {how}": (ENGINE["test_fed"], each) for how, each in more.items()}


# What all of them are made of: no random numbers of PyTorch, which other versions may draw otherwise


def pattern(*shape: int, most: int = 251, step: int = 7) -> np.ndarray:
    """Whole numbers from 0 to most - 1 that vary along every axis, (shape) int64."""
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    return sum((step + 6 * i) * axis + axis * axis for i, axis in enumerate(axes)) % most


def values(*shape: int) -> Tensor:
    """Numbers from -1 to 1, (shape) float32."""
    return torch.from_numpy(pattern(*shape, step=11) / 125.0 - 1.0).float()


def filled(model: nn.Module) -> nn.Module:
    """The model with weights of the usual sizes, in eval mode."""
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            drawn = torch.from_numpy(np.random.default_rng(number).standard_normal(4093)).float()
            drawn = drawn.repeat(-(-parameter.numel() // len(drawn)))[: parameter.numel()].view(parameter.shape)
            if parameter.ndim > 1:
                drawn *= (2 / parameter[0].numel()) ** 0.5
            else:
                drawn = drawn * 0.1 + name.endswith("weight")
            parameter.copy_(drawn)
    return model.eval()


def stored(encoding: Encoding, n: int, size: int, n_classes: int = 0) -> np.ndarray:
    """Packed values of a domain, with some pixels in which nothing is known."""
    if encoding.boxes:
        corners = pattern(n, 2, 2, most=size // 2)
        boxes = np.concatenate([corners, corners + 6 + pattern(n, 2, 2, most=9)], axis=2)
        return np.concatenate([boxes, np.arange(2 * n).reshape(n, 2, 1) % n_classes], axis=2).astype(np.float32)
    if encoding.instances:
        blocks = (np.arange(16).reshape(4, 4) + pattern(n, 1, 1, most=7)) % 7
        numbers = blocks.repeat(size // 4, axis=1).repeat(size // 4, axis=2)
        maps = np.stack([np.where(numbers > 0, 1 + numbers % n_classes, 0), numbers], axis=1)
        maps[:, :, :3] = np.array(encoding.nothing)[:, None, None]
        return maps.astype(encoding.dtype)
    if encoding.categorical:
        maps = pattern(n, 1, size, size, most=n_classes + 1)
        return np.where(maps == n_classes, VOID, maps).astype(encoding.dtype)
    maps = pattern(n, encoding.channels, size, size) * {"uint16": 200, "float32": 0.04}.get(encoding.dtype, 1)
    if encoding.nothing is not None:
        maps[:, :, :3] = np.array(encoding.nothing)[:, None, None]
    if encoding.mask is not None:
        maps = np.concatenate([maps, np.ones_like(maps[:, :1])], axis=1)
        maps[:, -1, :3] = 0
    return maps.astype(encoding.dtype)


def data_of(task: Task, folder: Path) -> TaskData:
    """`N` images of the task, of which a quarter is held out."""
    n_classes = len(task.classes.names) if task.classes else 0
    table = table_of(folder, N, domains=("rgb", *([task.encoding.domain] if task.encoding else [])))
    table = replace(table, labels=np.arange(N) % 4, train=np.arange(0, N - 6), test=np.arange(N - 6, N))

    def packed(table: object, encoding: Encoding, size: int) -> tuple[np.ndarray, list[int]]:
        return stored(encoding, N, size, n_classes), []

    with patch.object(task_data, "load_packed", packed):
        return TaskData(table, task, SIZE, CPU)


def model_of(config: ModelConfig) -> TaskModel:
    return filled(TaskModel(config))


def losses_of(rows: list[Mapping[str, float]]) -> list[float]:
    """The losses in a table of metrics, as far as they are known."""
    return [float(row[name]) for row in rows for name in sorted(row) if "loss" in name and np.isfinite(row[name])]


# Parts


def federation() -> list[float]:
    """Rounds with every sampler, augmentation and schedule, in some combination."""
    found = []
    schedules = ("cosine", "step", "linear", "plateau")
    without_privacy = [name for name in SAMPLERS if name != POISSON]
    for sampler, augment, schedule in zip([*without_privacy, "uniform"], AUGMENTS, schedules, strict=True):
        settings = LocalSettings(
            n_rounds=2,
            sgd_per_epoch=2,
            epoch_per_round=1,
            batch_size=4,
            init_lr=0.01,
            momentum=0.5,
            weight_decay=0.01,
            augment=augment,
            lr_schedule=schedule,
            lr_decay_rate=0.5,
            no_improvement_tolerance=1,
        )
        with tempfile.TemporaryDirectory() as folder:
            data = data_of(TASKS["normal"], Path(folder))
            clients = [data.train[:4], data.train[4:10], data.train[10:]]
            federated = FederatedData(data, clients, [data.test] * 3, np.arange(N) % 4)
            sampling = ClientSampling(clients_per_round=2, client_sampling=sampler)
            simulation = Simulation(
                model_of(ModelConfig("normal", image_size=SIZE)),
                federated,
                FederationConfig(FedAvg(), settings, SimulationSettings(3), sampling),
                Accelerator(cpu=True),
                Run(Path(folder)),
            )
            found += losses_of(simulation.train())
    return found


def central() -> list[float]:
    """Two epochs by either schedule and optimiser."""
    found = []
    for schedule, adam, rate in (("plateau", False, 0.003), ("one_cycle", True, 0.0003)):
        settings = TrainSettings(
            rand_seed=3,
            n_epochs=2,
            batch_size=8,
            init_lr=rate,
            lr_schedule=schedule,
            lr_decay_rate=0.5,
            no_improvement_tolerance=1,
            use_adam=adam,
            augment="flip",
            val_fraction=0.2,
        )
        with tempfile.TemporaryDirectory() as name:
            data = data_of(TASKS["normal"], Path(name))
            files = [Path(name) / file for file in ("last.safetensors", "best.safetensors", "early.safetensors")]
            model = model_of(ModelConfig("normal", image_size=SIZE))
            training = CentralTraining(model, data, settings, Accelerator(cpu=True), *files)
            training.run(lambda history: None)
            found += losses_of(training.history)
    return found


def embeddings() -> list[float]:
    """Features of either kind that needs no download, their components and their clusters."""
    found = []
    for kind in ("model", "target", "image"):
        with tempfile.TemporaryDirectory() as folder:
            data = data_of(TASKS["normal"], Path(folder))
            model = model_of(ModelConfig("normal", image_size=SIZE))
            rows = np.array(extract_embeddings(model, data, Path(folder) / "embeddings.npy", kind))
            reduced, _, kept = reduce_dimension(rows, data.train)
            assignments, kmeans = cluster(reduced, data, 3, 0.0, seed=0)
            found += [kept, float(kmeans.inertia_), *sorted(np.bincount(assignments).tolist())]
            found += [float(rows.mean()), float(rows.std()), *reduced.std(axis=0)[:3].tolist()]
    return found


def guidance() -> list[float]:
    """The vectors that a teacher's maps become."""

    def maps(images: Tensor, rows: np.ndarray, columns: np.ndarray, condition: object = None) -> Iterator[list[Tensor]]:
        """Of two layers: the image shifted by its column, at two sizes."""
        shifted = images[:, None] + torch.from_numpy(columns).float()[:, :, None, None, None] / 4
        wide = torch.cat([shifted, shifted.square(), shifted.roll(3, dims=4) * shifted], dim=2).flatten(0, 1)
        yield [nn.functional.avg_pool2d(wide, 8), nn.functional.avg_pool2d(wide[:, :5], 4)]

    teacher = SimpleNamespace(columns=3, layers=("a", "b"), maps=maps)
    images = values(N, 3, SIZE, SIZE) / 2 + 0.5
    photographs = SimpleNamespace(train=np.arange(N), device=images.device, batch=lambda rows: images[rows])
    rows = np.arange(4)
    with tempfile.TemporaryDirectory() as folder:
        basis = fit(teacher, photographs, Notes(Path(folder), "golden"))
    found = vectors_of(teacher, basis, photographs.batch(rows), rows, np.tile(np.arange(3), (4, 1)))
    return found.square().mean(dim=(0, 2)).tolist()


class Labelled(q.QuadraticData):
    """The quadratic images, of three classes."""

    labels = torch.tensor([0, 1, 1, 0, 2, 2, 0, 1, 0, 0, 0])


def rounds(name: str) -> list[float]:
    """The losses of three rounds on quadratics, and the models of server and clients after them.

    FedAvg's also with what all methods have from it: virtual clients and reweighted images.
    """
    found = _rounds(name, {})
    if name == "fedavg":
        found += _rounds(name, {"virtual_client_size": 8, "importance_reweighting": "class"})
    return found


def _rounds(name: str, more: dict[str, Any]) -> list[float]:
    settings = replace(q.SETTINGS, n_rounds=3)
    with tempfile.TemporaryDirectory() as folder, chdir(folder), patch.object(q, "QuadraticData", Labelled):
        save_guidance(Path("guidance"), "quadratic", 11, n_texts=4, size=5)
        federation = q.simulation(q.method(name), Path(folder), settings, **more)
        found = losses_of(federation.train())
        found += [number for client in range(2) for number in q.model_of(federation, client).ravel().tolist()]
        return found + q.server_of(federation).ravel().tolist()


def aggregated(name: str) -> list[float]:
    """The server's model after two rounds of seven clients with one image each, by this rule."""
    return _of_seven(aggregation=AGGREGATIONS[name]())


def aggregated_far(name: str) -> list[float]:
    """What becomes of eight uploads in two rounds, of which two are far away and two the same."""
    rule, within = (
        AGGREGATIONS[name].from_config({"assumed_attackers": 2.0}),
        Surroundings(Accelerator(cpu=True), reported=("loss",)),
    )
    uploads, server, found = rule.uploads(within), {"w": torch.zeros(6)}, []
    for round in range(2):
        changes = values(8, 6) + round
        changes[3] = changes[1]
        changes[[4, 6]] *= 30.0
        uploads.clear(server)
        for client in (5, 3, 0, 7, 1, 2, 6, 4):
            uploads.add({"w": server["w"] + changes[client], "loss": torch.tensor(1.0)}, 1.0 + client, client)
        mean = uploads.mean(36.0)
        server = server | uploads.state | {"w": mean["w"].float()}
        found += server["w"].tolist()
    return found


def gossip() -> list[float]:
    """The losses of nine clients with one image each on every graph that is not drawn, six of them awake."""
    found = []
    for topology in ("ring", "torus", "star", "complete"):
        rows = _of_singles(9, q.method("gossip", topology=topology), clients_per_round=6).rows
        found += losses_of(rows) + [row["consensus_distance"] for row in rows]
    return found


def private() -> list[float]:
    """The server's model and the norm after rounds with Poisson sampling, noise and an adaptive norm."""
    sampling = {"client_sampling": POISSON, "clients_per_round": 4}
    bound = PrivacySettings(clip_norm=0.3, noise_multiplier=0.5, clip_quantile=0.6)
    with patch.object(Account, "epsilon", return_value=0.0):  # which is dp-accounting's
        federation = _of_singles(7, q.method("fedavg"), privacy=bound, **sampling)
    return [row["clip_norm"] for row in federation.rows[1:]] + q.server_of(federation).ravel().tolist()


def adapted() -> list[float]:
    """The losses of non-participating clients after steps on two of their images, by a schedule."""
    settings = replace(q.SETTINGS, lr_schedule="cosine")
    who = {"clients": [np.arange(3)], "held_out": [np.array([8])]}
    who |= {
        "non_participating": [np.arange(3, 6), np.arange(6, 8)],
        "non_participating_held_out": [np.array([9]), np.array([10])],
    }
    with tempfile.TemporaryDirectory() as folder:
        federation = q.trained(q.method("fedper"), Path(folder), settings, **who)
        return losses_of(Adaptation(federation, AdaptSettings((1, 4), 2, "all")).run())


def attacked(name: str) -> list[float]:
    """The same by the mean, where two of the seven attack."""
    return _of_seven(attack=ATTACKS[name].from_config({"attackers": 2.0, "alie_z": 1.0}))


def _of_seven(**chosen: Any) -> list[float]:
    run = _of_singles(7, q.method("fedavg"), **chosen)
    return losses_of(run.rows) + q.server_of(run).ravel().tolist()


def _of_singles(n_clients: int, algorithm: FedAvg, **chosen: Any) -> Simulation:
    """A federation of clients with one image each, trained."""
    clients, none = [np.array([image]) for image in range(n_clients)], np.zeros(0, np.int64)
    held_out = [np.arange(8, 11), *[none] * (n_clients - 1)]
    with tempfile.TemporaryDirectory() as folder:
        return q.trained(algorithm, Path(folder), clients=clients, held_out=held_out, **chosen)


def task(name: str) -> list[float]:
    """Targets, loss, metrics, units and mirror images in every variant."""
    found = []
    for variant in ["scaled", *TASKS[name].variants]:
        of = bound(name, *(("scaled", True) if variant == "published" else (variant,)))
        found += _task_numbers(of)
    return found


def _task_numbers(task: Task) -> list[float]:
    n_classes = len(task.classes.names) if task.classes else 0
    if task.encoding is None:
        packed = torch.arange(N) % n_classes
    else:
        packed = as_tensor(stored(task.encoding, N, SIZE, n_classes))
    _, target, valid = vars(decode_batch(task, torch.zeros(N, 3, SIZE, SIZE, dtype=torch.uint8), packed)).values()
    output = _output(task, n_classes)
    if task.instances:  # so that some are found
        output[:, -3:] = 0.1 * output[:, -3:] + target[:, 2:]
        output[:, :-3] += 1.4 * nn.functional.one_hot(target[:, 0].long(), n_classes + 1).movedim(-1, 1)
    loss = LOSSES[task.loss](output, target, valid)
    rows = image_statistics(task, loss, output, target, valid)
    found = summarise(task, rows, [np.arange(N), np.arange(5)])
    numbers = [target.double().mean(), target.double().std(), valid.double().mean(), *loss[:3]]
    if task.physical is not None:
        surfaces, seen = task_data._values(task, packed)
        numbers += [task.physical(target, surfaces, seen).mean()]
    if task.mirror is not None:
        numbers += [task.mirror(target).mean(dim=(0, 2, 3))[0]]
    return [float(number) for number in [*numbers, *np.concatenate(list(found.values()))]]


def _output(task: Task, n_classes: int) -> Tensor:
    """What a model could give."""
    if not task.boxes:
        return values(*([N, n_classes] if task.encoding is None else [N, task.out_channels, SIZE, SIZE])) / 2 + 0.3
    points = [
        (x + 0.5, y + 0.5, stride) for stride in (8, 16) for y in range(SIZE // stride) for x in range(SIZE // stride)
    ]
    constants = torch.tensor(points) * torch.tensor(points)[:, 2:] ** torch.tensor([1.0, 1.0, 0.0])
    predicted = values(N, len(points), n_classes + 5)
    predicted[..., n_classes:-1] = predicted[..., n_classes:-1].abs() * 2
    return torch.cat([predicted, constants.expand(N, -1, -1)], dim=-1)


def assigned(rule: str) -> list[float]:
    """The client of each of 60 images of five groups, at two values of alpha."""
    groups = np.arange(60) * 7 // 3 % 5
    return [
        float(client)
        for alpha in (0.3, 10.0)
        for client in PARTITIONERS[rule](groups, 4, alpha, np.random.default_rng(1), 2)
    ]


def assigned_within(rule: str) -> list[float]:
    """The client of each of 60 images of five groups, assigned within two cities of different size."""
    groups, cities = np.arange(60) * 7 // 3 % 5, np.where(np.arange(60) % 5 < 3, "ulm", "bern")
    cities[::13] = ""
    natural = Natural.of("city", cities)
    asked = AssignSettings(1, rule, 0.3, 5, 1)
    return [float(client) for client in assign_by_settings(asked, joined(natural, groups), natural).client_of]


def encoded(name: str) -> list[float]:
    """Features of two images, and maps where the encoder has some."""
    with torch.no_grad():
        features, maps = filled(build_encoder(name, EncoderRequest(SIZE, False, "batch")))(
            values(2, 3, SIZE, SIZE) / 2 + 0.5
        )
    return _statistics(features, *maps)


def decoded(name: str) -> list[float]:
    """Embeddings and outputs of two images, behind an encoder that serves the decoder."""
    task = next(task for task in ("normal", "class_scene", "detection") if DECODERS[name].suits(TASKS[task]))
    config = ModelConfig(task, image_size=2 * SIZE, classes=classes_of(task), decoder=name)
    with torch.no_grad():
        outputs = model_of(config)(values(2, 3, 2 * SIZE, 2 * SIZE) / 2 + 0.5)
    return _statistics(outputs.embedding, outputs.output)


def _statistics(*tensors: Tensor) -> list[float]:
    """Size of the numbers, and how much they vary, of each tensor."""
    return [float(number) for each in tensors for number in (each.double().abs().mean(), each.double().std())]


# The file


def read() -> dict[str, dict[str, Any]]:
    """The version and the numbers of each part, as they are pinned."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def agree(numbers: list[float], pinned: list[float]) -> bool:
    """Whether numbers are the pinned ones, as far as another machine would have them."""
    return len(numbers) == len(pinned) and np.allclose(numbers, pinned, RTOL, ATOL, equal_nan=True)


def fault(part: str, version: Any, numbers: list[float], pinned: Mapping[str, Any] | None) -> str:
    """What is wrong with a part, and what to do; "" if its numbers are those that are pinned for its version."""
    if pinned is None or pinned["version"] != version:
        return f"no golden numbers of {part} in version {version}; write them by {COMMAND}"
    if agree(numbers, pinned["numbers"]):
        return ""
    return (
        f"the numbers of {part} have changed, but finished runs would be taken for those of the present code; if they "
        f"had to change, raise {WHERE[part.split()[0]]}, and write them by {COMMAND}; else find out why they did"
    )


def main() -> None:
    """Write the numbers of parts that are new or have another version; exit code 1 where others have changed."""
    pinned, now = read(), parts()
    found, faults = {}, []
    for part, (version, compute) in now.items():
        numbers = compute()
        if part in pinned and pinned[part]["version"] == version:
            faults += [line] if (line := fault(part, version, numbers, pinned[part])) else []
            found[part] = pinned[part]
        else:
            found[part] = {"version": version, "numbers": [float(f"{number:.7g}") for number in numbers]}
            print(f"{part}: version {version}, {len(numbers)} numbers")
    lines = (f'  "{part}": {json.dumps(entry)}' for part, entry in found.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
