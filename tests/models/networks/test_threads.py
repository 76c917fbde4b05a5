"""How many threads a network gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from datasets.task_data import Batch
from models.networks import threads
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from models.networks.threads import set_threads, threads_for
from tests.network import quadratic as q


def data_of(size: int, device: str = "cpu") -> SimpleNamespace:
    """What is asked of `TaskData`."""
    images = torch.zeros(1, 3, size, size)
    batch = Batch(images, images, torch.ones_like(images, dtype=torch.bool))
    return SimpleNamespace(device=torch.device(device), batch=lambda positions: batch)


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64 cores."""
    monkeypatch.setattr(threads, "_most", lambda: 64)


def test_work_is_that_of_the_layers_and_every_thread_has_its_share() -> None:
    # 2 * 3 * 3 * 3 * 8 operations per pixel and 2 * 8 * 4: 496 * 64 * 64 an image.
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1))
    an_image = 496 * 64 * 64
    for n_images in (1, 16, 1000, 5000, 20_000):
        wanted = int(n_images * an_image / 0.5e9)
        assert threads_for(model, data_of(64), n_images) == min(64, max(1, wanted))
    assert threads_for(model, data_of(64), 5000) == 20  # by hand: 10.16 GFLOP


@pytest.mark.parametrize(("size", "n_images", "expected"), [(32, 16, 1), (64, 16, 1), (128, 16, 2), (32, 16 * 25, 3)])
def test_the_built_in_network_gets_few(size: int, n_images: int, expected: int) -> None:
    model = TaskModel(ModelConfig("depth_euclidean", "tiny", size, "group"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert threads_for(model, data_of(size), n_images) == expected
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_papers_network_gets_all_there_are() -> None:
    assert threads_for(TaskModel(ModelConfig("normal", "clip_vit_b32", 224, "batch")), data_of(224), 16) == 64


def test_a_gpu_leaves_the_number_as_it_is() -> None:
    model = TaskModel(ModelConfig("depth_euclidean", "tiny", 32, "group"))
    assert threads_for(model, data_of(32, "cuda"), 16) == torch.get_num_threads()


def test_any_network_will_do() -> None:
    assert threads_for(q.Quadratic(), q.QuadraticData(), 8) == 1


def test_the_number_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", said.append)
    set_threads(TaskModel(ModelConfig("depth_euclidean", "tiny", 128, "group")), data_of(128), 16)
    assert said == [2]


def test_no_more_than_pytorch_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_most", lambda: 1)
    assert threads_for(TaskModel(ModelConfig("depth_euclidean", "tiny", 128, "group")), data_of(128), 64) == 1
