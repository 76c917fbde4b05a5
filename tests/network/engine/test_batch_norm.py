"""Batch norm in a federation: what FedBN keeps, and the change to group norm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel, load_model, save_model
from network.engine.batch_norm import batch_norm_tensors, with_group_norm
from utils.errors import UserError


def model(norm: str, seed: int = 0) -> TaskModel:
    torch.manual_seed(seed)
    return TaskModel(ModelConfig("normal", "tiny", 32, norm))


def test_the_tensors_of_batch_norm_are_weights_shifts_and_statistics() -> None:
    names = batch_norm_tensors(model("batch"))
    endings = {name.rsplit(".", 1)[1] for name in names}
    assert endings == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    # The tiny model has batch norm after each of its convolutions but the head, and nowhere else a running mean.
    assert len(names) == 5 * sum(name.endswith("running_mean") for name in model("batch").state_dict())
    convolutions = {f"{name}.weight" for name, m in model("batch").named_modules() if isinstance(m, torch.nn.Conv2d)}
    assert not names & convolutions


def test_a_model_without_batch_norm_has_nothing_to_keep() -> None:
    with pytest.raises(UserError, match=r"no batch norm.*--norm batch"):
        batch_norm_tensors(model("group"))


def test_group_norm_takes_over_all_weights_that_it_has(tmp_path: Path) -> None:
    start = model("batch")
    with torch.no_grad():
        for tensor in start.state_dict().values():
            tensor.add_(1)
    changed = with_group_norm(start)
    assert changed.config.norm == "group"
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in changed.modules())
    old, new, fresh = start.state_dict(), changed.state_dict(), model("group", seed=1).state_dict()
    assert set(new) == set(fresh) and set(new) < set(old)
    assert all(torch.equal(new[name], old[name]) for name in new)
    save_model(changed, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", "normal", "a test")
    assert torch.equal(again(torch.ones(2, 3, 32, 32)).output, changed(torch.ones(2, 3, 32, 32)).output)


def test_a_model_with_group_norm_stays_as_it_is() -> None:
    start = model("group")
    assert with_group_norm(start) is start


@pytest.mark.parametrize("train", ["decoder", "head", "lora"])
def test_an_encoder_that_is_not_trained_keeps_its_batch_norm(train: str, tmp_path: Path) -> None:
    start = model("batch").eval()
    with torch.no_grad():  # statistics that say something
        for module in start.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.uniform_(-1, 1)
                module.running_var.uniform_(0.5, 2)
    changed = with_group_norm(start, train).eval()
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(changed(images).encoded, start(images).encoded)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in changed.decoder.modules())
    save_model(changed, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", "normal", "a test").eval()
    assert torch.equal(again(images).output, changed(images).output)
    assert with_group_norm(changed, train) is changed
