"""FedDifRC's two terms by hand, by their limits and by finite differences; and what they do to noisy labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.classes import ClassSet
from datasets.task_data import Batch
from datasets.tasks import get_task
from models.networks.task_model import Outputs
from network.algorithms import ALGORITHMS
from network.algorithms.feddifrc import contrast, restriction
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.settings import LocalSettings, SimulationSettings
from tests.models.teacher.guiding import save_guidance
from tests.network import quadratic as q
from utils.errors import UserError
from utils.runs import Run

RNG = np.random.default_rng(0)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def tensors(*arrays: np.ndarray) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.asarray(array)) for array in arrays)


# The contrast, equations 10 and 11


def contrast_by_hand(z: np.ndarray, choices: np.ndarray, right: np.ndarray, temperature: float) -> np.ndarray:
    """Image by image and text by text, as the equations stand there."""
    distances = [np.linalg.norm(z[i] - choices[i, right[i]]) for i in range(len(z)) if right[i] >= 0]
    u = np.mean(distances)
    terms = []
    for i in range(len(z)):
        similar = [float(z[i] @ choice) / u for choice in choices[i]]
        wrong = sum(math.exp((s - similar[right[i]]) / temperature) for j, s in enumerate(similar) if j != right[i])
        terms.append(math.log(1 + wrong) if right[i] >= 0 else 0.0)
    return np.array(terms)


def test_contrast_of_some_images_by_hand() -> None:
    z, choices = unit(RNG.normal(size=(4, 6))), unit(RNG.normal(size=(4, 3, 6)))
    right = np.array([2, 0, -1, 1])
    found = contrast(*tensors(z, choices, right), 0.3)
    np.testing.assert_allclose(found, contrast_by_hand(z, choices, right, 0.3), rtol=1e-10)
    # The same choices for all are like a row of them for each.
    shared = contrast(*tensors(z, choices[0], right), 0.3)
    repeated = np.repeat(choices[:1], 4, axis=0)
    np.testing.assert_allclose(shared, contrast_by_hand(z, repeated, right, 0.3), rtol=1e-10)


def test_limits_of_the_contrast() -> None:
    z, choices = tensors(unit(RNG.normal(size=(3, 6))), unit(RNG.normal(size=(3, 5, 6))))
    right = torch.tensor([0, 4, 2])
    log_all = torch.full((3,), math.log(5.0), dtype=torch.float64)  # 1 + M with M = 4 wrong ones
    torch.testing.assert_close(contrast(z, choices[:, :1].expand(-1, 5, -1), right, 0.06), log_all)
    torch.testing.assert_close(contrast(z, choices, right, 1e9), log_all)
    # The first image is its right vector and orthogonal to the others; the second is sqrt(2) from its own.
    axes = torch.eye(6, dtype=torch.float64)
    z, choices, scale = axes[[0, 5]], axes[:5], math.sqrt(2) / 2
    found = contrast(z, choices, torch.tensor([0, 1]), 0.5)
    expected = [math.log(1 + 4 * math.exp(-1 / (0.5 * scale))), math.log(5)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert contrast(z, choices, torch.tensor([-1, -1]), 0.5).tolist() == [0.0, 0.0]


def test_order_of_the_texts_does_not_matter_unless_the_right_ones_stay() -> None:
    z, choices = tensors(unit(RNG.normal(size=(5, 6))), unit(RNG.normal(size=(5, 4, 6))))
    right, order = torch.tensor([0, 3, 2, 1, 1]), torch.tensor([2, 0, 3, 1])
    before = contrast(z, choices, right, 0.1)
    torch.testing.assert_close(contrast(z, choices[:, order], order.argsort()[right], 0.1), before)
    assert not torch.allclose(contrast(z, choices[:, order], right, 0.1), before)


def test_gradient_of_the_contrast_takes_the_scale_for_constant() -> None:
    features, choices = RNG.normal(size=(3, 5)), unit(RNG.normal(size=(3, 4, 5)))
    right = np.array([1, 0, 3])
    scale = np.mean(np.linalg.norm(unit(features) - choices[np.arange(3), right], axis=1))
    leaf = torch.from_numpy(features).requires_grad_()
    contrast(F.normalize(leaf, dim=-1), *tensors(choices, right), 0.2).sum().backward()

    def with_this_scale(at: Tensor) -> Tensor:
        cosines = (F.normalize(at, dim=-1)[:, None] * torch.from_numpy(choices)).sum(-1)
        return F.cross_entropy(cosines / (scale * 0.2), torch.from_numpy(right), reduction="sum")

    assert torch.autograd.gradcheck(with_this_scale, (torch.from_numpy(features).requires_grad_(),))
    other = torch.from_numpy(features).requires_grad_()
    with_this_scale(other).backward()
    torch.testing.assert_close(leaf.grad, other.grad)


# The restriction, equation 12


def test_restriction_is_a_cosine_and_pulls_along_the_sphere() -> None:
    features, own = tensors(RNG.normal(size=(4, 6)), unit(RNG.normal(size=(4, 6))))
    leaf = features.requires_grad_()
    found = restriction(F.normalize(leaf, dim=-1), own)
    torch.testing.assert_close(found, 2 - 2 * F.cosine_similarity(features, own))
    found.sum().backward()
    np.testing.assert_allclose((leaf.grad * features).sum(1).detach(), 0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda z: restriction(F.normalize(z, dim=-1), own), (leaf,))


# Rounds on quadratics


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_guidance(tmp_path / "guidance", "quadratic", 11, 3, q.DIM)


def arguments(folder: Path, **more: object) -> dict[str, object]:
    return {"guidance_path": folder, "contrast_temperature": 0.5} | more


@pytest.mark.parametrize("weights", [(1.0, 0.0, 1.0), (0.0, 2.0, 1.0), (0.5, 0.7, 0.3), (1.0, 1.0, 0.0)])
def test_two_rounds_by_hand(folder: Path, tmp_path: Path, weights: tuple[float, float, float]) -> None:
    tdcl, ndcr, task = weights
    made = q.method("feddifrc", **arguments(folder, tdcl_weight=tdcl, ndcr_weight=ndcr, task_weight=task))
    found = q.server_of(q.trained(made, tmp_path / "run"))
    vectors = unit(np.load(folder / "features.npy").astype(float))
    right = np.load(folder / "positive.npy")

    def terms(body: np.ndarray, images: np.ndarray, scale: float) -> float:
        z, own, choices = unit(q.A[images].astype(float) * body), vectors[images, -1], vectors[images, :-1]
        cosines = np.einsum("bd,bpd->bp", z, choices) / (scale * 0.5)
        contrasts = np.log(np.exp(cosines - cosines[np.arange(len(z)), right[images]][:, None]).sum(1))
        return float((tdcl * contrasts + ndcr * (2 - 2 * (z * own).sum(1))).mean())

    x = q.START.astype(float)
    for _ in range(2):
        ends = []
        for client, images in enumerate(q.CLIENTS):
            y = x.copy()
            for _ in range(q.STEPS):
                z = unit(q.A[images].astype(float) * y[0])
                scale = np.linalg.norm(z - vectors[images, right[images]], axis=1).mean()
                g = task * q.gradient(y, client)
                for d, step in enumerate(1e-6 * np.eye(5)):
                    up, down = terms(y[0] + step, images, scale), terms(y[0] - step, images, scale)
                    g[0, d] += (up - down) / 2e-6
                y = y - q.LR * g
            ends.append(y)
        x = q.average(ends)
    assert q.close(found, x, 2e-4)


def test_a_map_is_guided_by_the_means_of_its_cells(folder: Path) -> None:
    made = q.method("feddifrc", **arguments(folder, representation="embedding"))
    embedding = torch.from_numpy(RNG.normal(size=(2, 3, 16, 16)))
    batch = Outputs(embedding.flatten(1), embedding, embedding)
    of_cells = embedding.numpy().reshape(2, 3, 8, 2, 8, 2).mean(axis=(3, 5)).reshape(2, -1)
    assert torch.allclose(made._z(SimpleNamespace(batch=batch)), torch.from_numpy(of_cells))
    made = q.method("feddifrc", **arguments(folder))
    assert torch.equal(made._z(SimpleNamespace(batch=batch)), batch.encoded)


def test_without_weights_it_is_fedavg_to_the_bit_and_reads_nothing(tmp_path: Path) -> None:
    made = q.method("feddifrc", guidance_path=tmp_path / "nowhere", tdcl_weight=0.0, ndcr_weight=0.0)
    assert made.reads() == []
    one, other = (q.trained(method, tmp_path / name) for name, method in (("a", made), ("b", q.method("fedavg"))))
    assert all(torch.equal(one.server[name], tensor) for name, tensor in other.server.items())


def test_clients_side_by_side_are_like_one_by_one(folder: Path, tmp_path: Path) -> None:
    settings = replace(q.SETTINGS, batch_size=2)  # clients of 3 and 5 images have batches of other sizes at the end
    runs = [
        q.trained(q.method("feddifrc", **arguments(folder)), tmp_path / str(k), settings, vectorised_clients=k)
        for k in (1, 2)
    ]
    assert q.close(*map(q.server_of, runs), 1e-5)


def test_shuffled_guidance_is_that_of_other_images(folder: Path, tmp_path: Path) -> None:
    def trained(name: str, **more: object) -> np.ndarray:
        return q.server_of(q.trained(q.method("feddifrc", **arguments(folder, **more)), tmp_path / name))

    shuffled, again, own = (
        trained("a", guidance="shuffled"),
        trained("b", guidance="shuffled"),
        trained("c"),
    )
    assert np.array_equal(shuffled, again) and not q.close(shuffled, own)


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--condition round needs texts"):
        q.method("feddifrc", condition="round", contrast="classes")
    for more, said in (
        ({"condition": "round"}, "no vectors of a diffusion model with their basis"),
        ({"guidance_path": tmp_path / "nowhere"}, "run extract_diffusion_features"),
    ):
        with pytest.raises(UserError, match=said):
            q.simulation(q.method("feddifrc", **arguments(folder) | more), tmp_path / "run")


# A toy in which targets know the class, and most labels are wrong


N_CLASSES, N_INPUTS, N_TRAIN, N_TEST = 4, 12, 160, 400


class Toy(nn.Module):
    """A layer that makes features, and one that makes classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.head = nn.Linear(N_INPUTS, 8), nn.Linear(8, N_CLASSES)

    def forward(self, images: Tensor) -> Outputs:
        features = self.encoder(images)
        return Outputs(features, features, self.head(features))


class ToyData(q.QuadraticData):
    """Points around four centres; of the training labels two thirds are drawn at random."""

    task = get_task("classification").with_classes(ClassSet(tuple("abcd")))
    test = np.arange(N_TRAIN, N_TRAIN + N_TEST)

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        n = N_TRAIN + N_TEST
        self.classes = rng.integers(0, N_CLASSES, n)
        points = 0.8 * rng.normal(size=(N_CLASSES, N_INPUTS))[self.classes] + rng.normal(size=(n, N_INPUTS))
        self.points = torch.from_numpy(points.astype(np.float32))
        noisy = np.where(rng.random(n) < 0.66, rng.integers(0, N_CLASSES, n), self.classes)
        self.labels = torch.from_numpy(np.where(np.arange(n) < N_TRAIN, noisy, self.classes))
        self.table = type("Table", (q.QuadraticTable,), {"__len__": lambda self: n})()

    def batch(self, positions: Tensor) -> Batch:
        target = self.labels[positions]
        return Batch(self.points[positions], target, torch.ones_like(target, dtype=torch.bool))

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        for at in map(torch.from_numpy, plan):
            yield at, self.batch(at)


def accuracy(data: ToyData, folder: Path, name: str, **more: object) -> float:
    """Of a federation of two clients on held-out points."""
    settings = LocalSettings(n_rounds=6, sgd_per_epoch=20, lr_schedule="none")
    clients, held_out = (np.array_split(part, 2) for part in (np.arange(N_TRAIN), data.test))
    federated = FederatedData(data, clients, held_out, np.zeros(len(data.table), np.int64))
    algorithm, how = ALGORITHMS[name](**more), SimulationSettings(0, evaluate_every=6)
    config = FederationConfig(algorithm, settings, how)
    federation = Simulation(Toy(), federated, config, Accelerator(cpu=True), Run(folder))
    federation.train()
    with torch.no_grad():
        predicted = federation.model(data.points[data.test]).output.argmax(1).numpy()
    return float((predicted == data.classes[data.test]).mean())


def test_targets_that_know_the_class_help_where_labels_do_not_and_shuffled_ones_do_not(tmp_path: Path) -> None:
    data = ToyData()
    n = len(data.table)
    prototypes = np.random.default_rng(3).normal(size=(N_CLASSES, 8))
    vectors = np.concatenate([np.tile(prototypes, (n, 1, 1)), prototypes[data.classes][:, None]], axis=1)
    folder = save_guidance(tmp_path / "guidance", "quadratic", n, N_CLASSES, 8, vectors, data.classes)
    given = {"guidance_path": folder, "ndcr_weight": 0.0, "contrast_temperature": 0.2, "tdcl_weight": 2.0}
    alone = accuracy(data, tmp_path / "alone", "fedavg")
    guided = accuracy(data, tmp_path / "guided", "feddifrc", **given)
    shuffled = accuracy(data, tmp_path / "shuffled", "feddifrc", **given, guidance="shuffled")
    assert guided > alone + 0.05 and guided > shuffled + 0.05
    assert shuffled < alone + 0.03
