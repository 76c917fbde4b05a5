"""What can be clustered in place of a central model's embedding."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from torchvision.transforms.v2 import Normalize

from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import get_task
from models.embedding.embeddings import extract_embeddings
from models.embedding.features import features_name, features_of, shrunk, shrunk_target
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from utils.errors import UserError

SIZE = 16
CPU = torch.device("cpu")


def open_data(table: Table, task: str) -> tuple[TaskData, TaskModel]:
    data = TaskData(table, table.bind(get_task(task)), SIZE, CPU)
    return data, TaskModel(ModelConfig(task, "tiny", SIZE, classes=data.task.classes))


@pytest.mark.parametrize("task", ["depth_euclidean", "normal", "segment_semantic", "class_scene"])
def test_target_features_are_means_of_what_counts(table: Table, task: str) -> None:
    data, model = open_data(table, task)
    features = features_of("target", model, data)
    batch = data.batch(torch.arange(5))
    found = features.of(batch)
    assert found.shape == (5, features.size) and found.dtype == torch.float32
    if not data.task.dense:
        assert (found.argmax(1) == batch.target).all() and (found.sum(1) == 1).all()
        return
    target, valid = batch.target.numpy(), batch.valid.numpy()
    cells = found.view(5, data.task.out_channels, 8, 8).numpy()
    for image, channel, row, column in [(0, 0, 0, 0), (4, data.task.out_channels - 1, 3, 7), (2, 0, 7, 2)]:
        within = np.s_[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        counted = valid[image].reshape(SIZE, SIZE)
        values = (target[image] == channel).astype(float) if data.task.categorical else target[image, channel]
        used = values[within][counted[within]] if counted[within].any() else values[counted]
        assert cells[image, channel, row, column] == pytest.approx(used.mean() if used.size else 0.0, abs=1e-5)


def test_cells_without_anything_have_the_mean_of_their_image() -> None:
    target, valid = torch.zeros(2, 1, SIZE, SIZE), torch.zeros(2, 1, SIZE, SIZE, dtype=torch.bool)
    target[0, 0, :2, :2], valid[0, 0, :2, :2] = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), True
    target[0, 0, 5] = torch.inf  # what does not count must not leak
    data = SimpleNamespace(task=get_task("depth_euclidean"))
    found = shrunk_target(data, Batch(torch.zeros(2, 3, SIZE, SIZE), target, valid))
    assert (found[0] == 3.0).all() and (found[1] == 0.0).all()


def test_thumbnails_are_means_of_squares() -> None:
    images = torch.rand(2, 3, 32, 32)
    expected = images.unfold(2, 4, 4).unfold(3, 4, 4).mean((-1, -2)).flatten(1)
    torch.testing.assert_close(shrunk(images), expected)


def test_a_public_network_sees_images_as_it_was_trained_on(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    network = timm.create_model("test_resnet", pretrained=False, num_classes=0)
    monkeypatch.setattr(timm, "create_model", lambda name, **_: network)
    data, model = open_data(table, "normal")
    found = extract_embeddings(model, data, tmp_path / "features.npy", "timm:test_resnet")
    assert found.shape == (len(data), network.num_features)
    image = data.batch(torch.tensor([7])).images
    scaled = Normalize(network.pretrained_cfg["mean"], network.pretrained_cfg["std"])
    size = network.pretrained_cfg["input_size"][1:]
    large = torch.nn.functional.interpolate(image, size, mode="bilinear", antialias=True)
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found[7]), network.eval()(scaled(large))[0], atol=1e-4, rtol=1e-3)


def test_network_that_cannot_be_had_is_one_line(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise OSError("no connection\nat all")

    data, model = open_data(table, "normal")
    with pytest.raises(UserError, match="timm has no such network or its weights could not be downloaded"):
        features_of("timm:no_such_network", model, data)
    monkeypatch.setattr(timm, "create_model", refuse)
    with pytest.raises(UserError, match="no connection at all"):
        features_of("timm:resnet18", model, data)
    assert not caplog.records


def test_kinds_of_features() -> None:
    kinds = ["model", "timm:resnet18", "random:resnet18"]
    assert [features_name(text) for text in kinds] == kinds
    for text in ("", "targets", "timm:", "random:"):
        with pytest.raises(ArgumentTypeError):
            features_name(text)
