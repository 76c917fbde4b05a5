"""Several models as one network, against each by itself."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.engine.stacking import stack
from tests.datasets.tables import classes_of

N = 3


def different(model: nn.Module) -> list[nn.Module]:
    """Copies of a model with other weights and statistics each."""
    generator = torch.Generator().manual_seed(0)
    copies = [copy.deepcopy(model) for _ in range(N)]
    for each in copies:
        for tensor in each.state_dict().values():
            if tensor.dtype.is_floating_point:
                tensor.mul_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return copies


def fill(stacked: nn.Module, copies: list[nn.Module]) -> None:
    for name, tensor in stacked.state_dict().items():
        tensor.copy_(torch.stack([each.state_dict()[name] for each in copies]))


def forward(stacked: nn.Module, images: Tensor) -> list[tuple[Tensor, ...]]:
    """Outputs by copy, of images (N, B, C, H, W)."""
    outputs = stacked(images.transpose(0, 1).flatten(1, 2))
    apart = [each.unflatten(1, (N, -1)).transpose(0, 1) for each in outputs]
    return list(zip(*apart, strict=True))


@pytest.mark.parametrize(
    "task, encoder, norm",
    [
        ("normal", "tiny", "group"),
        ("normal", "tiny", "batch"),
        ("class_scene", "tiny", "batch"),
        ("depth_euclidean", "timm:test_resnet", "batch"),
    ],
)
def test_outputs_gradients_and_statistics_are_those_of_each_model(task: str, encoder: str, norm: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(task, encoder, 32, norm, classes=classes_of(task))
    model = TaskModel(config).double()  # statistics of few values amplify rounding
    stacked, copies = stack(model, N), different(model)
    fill(stacked, copies)
    images = torch.rand(N, 4, 3, 32, 32, dtype=torch.float64)
    for each, own, outputs in zip(copies, images, forward(stacked.train(), images), strict=True):
        for found, expected in zip(outputs, each.train()(own), strict=True):
            assert torch.allclose(found, expected, rtol=1e-6)
    sum(output.square().mean() for *_, output in forward(stacked, images)).backward()
    for each, own in zip(copies, images, strict=True):
        each(own).output.square().mean().backward()
    largest = max(float(parameter.grad.abs().max()) for parameter in stacked.parameters())
    for name, parameter in stacked.named_parameters():
        expected = torch.stack([each.get_parameter(name).grad for each in copies])
        assert torch.allclose(parameter.grad, expected, rtol=1e-3, atol=1e-5 * largest), name
    for name, buffer in stacked.state_dict().items():  # two forward passes each
        expected = torch.stack([each.state_dict()[name] for each in copies])
        assert torch.allclose(buffer, expected, rtol=1e-4, atol=1e-5), name


def test_in_eval_mode_each_uses_its_own_statistics() -> None:
    model = TaskModel(ModelConfig("normal", "tiny", 16))
    stacked, copies = stack(model, N), different(model)
    fill(stacked, copies)
    images = torch.rand(N, 2, 3, 16, 16)
    for each, own, (*_, output) in zip(copies, images, forward(stacked.eval(), images), strict=True):
        assert torch.allclose(output, each.eval()(own).output, rtol=1e-4, atol=1e-5)


def test_a_model_with_a_layer_that_does_not_stack_is_left_alone() -> None:
    assert stack(nn.Sequential(nn.Conv2d(3, 8, 3), nn.LayerNorm(8)), 2) is None
    assert stack(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")), 2) is None
    model = nn.Sequential(nn.Conv2d(3, 8, 3))
    before = model.state_dict()["0.weight"].clone()
    stack(model, 2)
    assert list(model.state_dict()) == ["0.weight", "0.bias"] and torch.equal(model.state_dict()["0.weight"], before)
