"""Working copies: one, stacked, and by vmap."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from timm import layers
from torch import Tensor, nn

from models.networks.config import ModelConfig
from models.networks.task_model import Outputs, TaskModel
from network.engine.workspace import OneCopy, StackedCopies, VmappedCopies, Workspace, Workspaces, workspace
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


class Split(nn.Module):
    """Split attention, as ResNeSt's: channels are viewed as (2, C). Its last scale starts at zero, as timm's do."""

    def __init__(self) -> None:
        super().__init__()
        self.skip, self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 8, 1), nn.BatchNorm2d(4)
        nn.init.zeros_(self.norm.weight)

    def forward(self, images: Tensor) -> Outputs:
        halves = self.conv(images).unflatten(1, (2, -1))
        maps = self.skip(images) + self.norm((halves * halves.mean((3, 4), keepdim=True).softmax(1)).sum(1))
        return Outputs(maps.mean((2, 3)), maps, maps)


class RolledGradient(torch.autograd.Function):
    """The identity, whose gradient is each channel's next one's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        pass

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient.roll(1, dims=1)


class MixingBackwards(nn.Module):
    """Outputs are right side by side, and gradients are not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, images: Tensor) -> Outputs:
        maps = RolledGradient.apply(self.conv(images))
        return Outputs(maps.mean((2, 3)), maps, maps)


class Unbatched(Quadratic):
    """What vmap cannot compute: a choice by a number."""

    def forward(self, images: Tensor) -> Outputs:
        return super().forward(images if images.sum().item() > 0 else -images)


def test_copies_that_would_mix_are_not_trained_side_by_side() -> None:
    for model in (Split(), MixingBackwards()):
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        copies = workspace(model, 2, IMAGE)
        assert isinstance(copies, VmappedCopies)
        assert torch.equal(before, torch.random.get_rng_state())  # the run's random numbers stay its own
        for tensors in (model.state_dict(), *copies.tensors):
            assert all(torch.equal(tensor, start[name]) for name, tensor in tensors.items())


class Around(nn.Module):
    """A layer between two convolutions, beside a path without it; its last scale starts at zero, as timm's do."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.before, self.layer, self.norm = nn.Conv2d(3, 8, 1), layer, nn.BatchNorm2d(8)
        nn.init.zeros_(self.norm.weight)

    def forward(self, images: Tensor) -> Outputs:
        maps = self.before(images)
        maps = maps + self.norm(self.layer(maps))
        return Outputs(maps.mean((2, 3)), maps, maps)


LAYERS = {
    "split attention": lambda: layers.SplitAttn(8, rd_ratio=0.5),
    "selective kernels": lambda: layers.SelectiveKernel(8, rd_ratio=0.5),
    "squeeze and excite": lambda: layers.SEModule(8, rd_ratio=0.5),
    "attention to neighbouring channels": lambda: layers.EcaModule(8),
    "channel shuffle": lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ChannelShuffle(2)),
    "gates": lambda: nn.Sequential(nn.Conv2d(8, 16, 1), nn.GLU(dim=1)),
    "layer norm": lambda: nn.Sequential(layers.LayerNorm2d(8), nn.Conv2d(8, 8, 3, padding=1, groups=8)),
    "response norm": lambda: layers.grn.GlobalResponseNorm(8, channels_last=False),
    "scaled weights": lambda: layers.ScaledStdConv2d(8, 8, 3, padding=1),
    "blur": lambda: layers.BlurPool2d(8, stride=1),
    "attention": lambda: layers.Attention2d(8, num_heads=2),
    "pixel shuffle": lambda: nn.Sequential(nn.Conv2d(8, 32, 1), nn.PixelShuffle(2), nn.AvgPool2d(2)),
}


class Cached(nn.Module):
    """Keeps in eval mode what it makes of a weight, as timm's LeViT does of its attention biases."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 4, 1), nn.Parameter(torch.ones(4))
        self.kept: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> Cached:
        if mode:
            self.kept = {}
        return super().train(mode)

    def forward(self, images: Tensor) -> Outputs:
        scale = self.scale.exp()[:, None, None]
        if not self.training:
            scale = self.kept.setdefault("scale", scale)
        maps = self.conv(images) * scale
        return Outputs(maps.mean((2, 3)), maps, maps)


def test_copies_that_keep_what_they_make_in_eval_mode_train_side_by_side() -> None:
    model = Cached()
    assert isinstance(workspace(model, 2, IMAGE), VmappedCopies) and not model.kept


@pytest.mark.parametrize("layer", LAYERS)
def test_steps_side_by_side_are_those_of_each_alone(layer: str) -> None:
    torch.manual_seed(0)
    model = Around(LAYERS[layer]()).double()
    images = torch.rand(2, 4, 3, 8, 8, dtype=torch.float64)
    alone = [trained(OneCopy(copy.deepcopy(model)), own).tensors[0] for own in images]
    together = trained(workspace(model, 2, (3, 8, 8)), images.flatten(0, 1))
    for found, expected in zip(together.tensors, alone, strict=True):
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-9)


def trained(copies: Workspace, images: Tensor) -> Workspace:
    """After three steps of gradient descent."""
    for _ in range(3):
        copies.prepare(copies.leaves)
        (copies(images).output.square().flatten(1).mean(1).sum() * copies.n / len(images)).backward()
        with torch.no_grad():
            for leaf in copies.leaves.values():
                if leaf.grad is not None:
                    leaf -= 0.1 * leaf.grad
    return copies


def test_a_network_that_allows_neither_way_says_so() -> None:
    builds = Workspaces(Unbatched(), (5,))
    assert not builds.side_by_side and isinstance(builds(1), OneCopy)
    with pytest.raises(
        UserError, match=r"--vectorised_clients 2: copies of this network .*; give --vectorised_clients 1"
    ):
        builds(2)


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
    # A small network has all that is translated: of a large one there is more.
    model, images = Around(nn.Conv2d(8, 8, 3, padding=1)), torch.rand(n * 2, 3, 16, 16)
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
