"""Two photographs through one encoder, stacked or each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from models.networks.backbones import CENTRED, Encoder
from models.networks.config import ModelConfig
from models.networks.encoders import EncoderRequest, build_encoder
from models.networks.frames import FramesApart, stack_frames
from models.networks.task_model import TaskModel, load_model, make_initial_model, save_model
from models.networks.weights import EncoderWeights
from network.engine.stacking import stack
from tests.network.engine.test_stacking import different, fill
from utils.errors import UserError


def tiny() -> Encoder:
    torch.manual_seed(0)
    return build_encoder("tiny", EncoderRequest(32, False, "group"))


def test_frames_apart_are_what_the_encoder_makes_of_each() -> None:
    encoder, images = tiny().eval(), torch.rand(2, 6, 32, 32)
    vectors, maps = FramesApart(encoder, 2)(images)
    alone = [encoder(images[:, :3]), encoder(images[:, 3:])]
    torch.testing.assert_close(vectors, torch.cat([each for each, _ in alone], 1))
    for both, *each in zip(maps, *(of_one for _, of_one in alone), strict=True):
        torch.testing.assert_close(both, torch.cat(each, 1))
    apart = FramesApart(encoder, 2)
    assert (apart.out_features, apart.map_channels) == (256, (32, 64, 96, 128))


def test_stacked_frames_change_the_first_convolution_alone() -> None:
    plain, stacked = tiny(), stack_frames(tiny(), 2)
    shapes = {name: tensor.shape for name, tensor in plain.state_dict().items()}
    other = {name for name, tensor in stacked.state_dict().items() if tensor.shape != shapes[name]}
    assert len(other) == 1 and stacked.state_dict()[other.pop()].shape == (16, 6, 3, 3)
    vectors, maps = stacked(torch.rand(2, 6, 32, 32))
    assert vectors.shape == (2, 128) and [each.shape[1] for each in maps] == [16, 32, 48, 64]
    images = torch.rand(2, 6, 32, 32, requires_grad=True)
    stacked(images)[0].sum().backward()
    assert images.grad.abs().sum((0, 2, 3)).min() > 0  # both photographs are seen


def test_an_encoder_without_colours_is_refused() -> None:
    with pytest.raises(UserError, match="no convolution of colours"):
        stack_frames(Encoder(nn.Linear(3, 3), 3, CENTRED), 2)


@pytest.mark.parametrize("apart", [False, True])
def test_models_side_by_side_compute_what_each_does(apart: bool) -> None:
    torch.manual_seed(0)
    model = TaskModel(ModelConfig("motion", "tiny", 32, "group", frames_apart=apart)).double()
    stacked, copies = stack(model, 3), different(model)
    fill(stacked, copies)
    images = torch.rand(3, 2, 6, 32, 32, dtype=torch.float64)
    outputs = stacked(images.transpose(0, 1).flatten(1, 2))
    for k, each in enumerate(copies):
        for together, own in zip(outputs, each(images[k]), strict=True):
            torch.testing.assert_close(together.unflatten(1, (3, -1))[:, k], own)


def test_networks_from_scratch_stack_and_those_with_weights_see_each_apart(tmp_path: Path) -> None:
    config = ModelConfig("motion", "resnet10", 32, "batch", decoder="unet")
    make_initial_model(tmp_path / "scratch", config, seed=0)
    depth = TaskModel(ModelConfig("depth_euclidean", "resnet10", 32, "batch", decoder="unet"))
    save_model(depth, tmp_path / "depth.safetensors")
    make_initial_model(tmp_path / "file", config, seed=0, weights_file=tmp_path / "depth.safetensors")
    scratch, of_file = (load_model(tmp_path / name, "motion", "") for name in ("scratch", "file"))
    assert not scratch.config.frames_apart and of_file.config.frames_apart
    for name, tensor in depth.encoder.state_dict().items():
        assert torch.equal(of_file.encoder.backbone.state_dict()[name], tensor), name
    for model in (scratch, of_file):
        assert model(torch.rand(2, 6, 32, 32)).output.shape == (2, 2, 32, 32)
    assert EncoderWeights(tmp_path / "depth.safetensors").of_a_model_of_ours


def test_models_of_one_photograph_say_what_they_did() -> None:
    assert "frames_apart" not in ModelConfig("normal").record()
