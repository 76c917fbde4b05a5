"""Working copies: one, stacked, and by vmap."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from models.networks.config import ModelConfig
from models.networks.task_model import Outputs, TaskModel
from network.workspace import OneCopy, StackedCopies, VmappedCopies, workspace
from tests.network.quadratic import Quadratic
from utils.errors import UserError

IMAGE = (3, 16, 16)


def model_of(norm: str = "batch", **more: object) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("normal", "tiny", 16, norm, **more))


class Mixing(nn.Module):
    """Layers that stack, but a module around them that takes the mean over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, images: Tensor) -> Outputs:
        maps = self.conv(images)
        return Outputs(maps.mean((2, 3)), maps, maps - maps.mean(1, keepdim=True))


def test_which_workspace_suits_a_model() -> None:
    assert isinstance(workspace(model_of(), 1, IMAGE), OneCopy)
    assert isinstance(workspace(model_of(), 2, IMAGE), StackedCopies)
    assert isinstance(workspace(model_of("group"), 2, IMAGE), StackedCopies)
    # Attention over the map's channels, a module that mixes channels, and parameters outside of layers:
    assert isinstance(workspace(model_of(use_cbam=True), 2, IMAGE), VmappedCopies)
    assert isinstance(workspace(Mixing(), 2, IMAGE), VmappedCopies)
    assert isinstance(workspace(Quadratic(), 2, (5,)), VmappedCopies)


@pytest.mark.parametrize("kind", ["stacked", "vmapped"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_copies_compute_what_the_model_does(kind: str, norm: str) -> None:
    model = model_of(norm)
    copies = VmappedCopies(model, 2) if kind == "vmapped" else workspace(model, 2, IMAGE)
    one = OneCopy(model)
    start = {name: tensor.clone() for name, tensor in one.tensors[0].items()}
    images = torch.rand(2, 4, 3, 16, 16)
    other = {name: tensor * 1.1 if tensor.dtype.is_floating_point else tensor for name, tensor in start.items()}
    for tensors, values in zip(copies.tensors, (start, other), strict=True):
        for name, tensor in tensors.items():
            tensor.copy_(values[name])
    copies.prepare(copies.leaves)
    outputs = copies(images.flatten(0, 1)).output.unflatten(0, (2, -1))
    outputs.square().mean((1, 2, 3, 4)).sum().backward()
    gradients = {name: copies.parts(leaf.grad) for name, leaf in copies.leaves.items()}
    for i, values in enumerate((start, other)):
        for name, tensor in one.tensors[0].items():
            tensor.copy_(values[name])
        one.prepare(one.leaves)
        output = one(images[i]).output
        assert torch.allclose(outputs[i], output, rtol=1e-4, atol=1e-5)
        output.square().mean().backward()
        largest = max(float(leaf.grad.abs().max()) for leaf in one.leaves.values())
        for name, leaf in one.leaves.items():
            assert torch.allclose(gradients[name][i], leaf.grad, rtol=1e-3, atol=1e-5 * largest), name
        for name, tensor in one.tensors[0].items():  # running statistics and counts of batches
            assert torch.allclose(copies.tensors[i][name], tensor, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("n", [1, 2])
def test_frozen_parameters_get_no_gradient(n: int) -> None:
    copies = workspace(model_of(), n, IMAGE)
    copies.prepare({"decoder.head.0.weight"})
    copies(torch.rand(n * 2, 3, 16, 16)).output.sum().backward()
    assert [name for name, leaf in copies.leaves.items() if leaf.grad is not None] == ["decoder.head.0.weight"]


def test_a_lone_image_is_not_normalised_by_itself() -> None:
    for n in (1, 2):
        copies = workspace(model_of(), n, IMAGE)
        copies.prepare(copies.leaves)
        before = {name: tensor.clone() for name, tensor in copies.tensors[0].items()}
        output = copies(torch.rand(n, 3, 16, 16)).output
        assert torch.isfinite(output).all()
        assert all(torch.equal(tensor, before[name]) for name, tensor in copies.tensors[0].items())
        copies.prepare(copies.leaves)
        copies(torch.rand(n * 2, 3, 16, 16))
        counts = [name for name in before if name.endswith("num_batches_tracked")]
        assert all(int(copies.tensors[0][name]) == 1 for name in counts)


@pytest.mark.parametrize("n", [1, 2])
def test_a_compiled_forward_pass_gives_the_same(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    # The graph is traced as ever, but not translated to C++, which takes a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    model, images = model_of("group"), torch.rand(n * 2, 3, 16, 16)
    plain, compiled = workspace(model, n, IMAGE), workspace(model, n, IMAGE, compiled=True)
    for copies in (plain, compiled):
        copies.prepare(copies.leaves)
    assert torch.allclose(compiled(images).output, plain(images).output, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_compiled_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    copies = OneCopy(model_of(), compiled=True)
    copies.prepare(copies.leaves)
    with pytest.raises(UserError, match=r"--compile True: .*no C\+\+ compiler.*; omit --compile"):
        copies(torch.rand(2, 3, 16, 16))
