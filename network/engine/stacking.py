"""Several models of one architecture as one network, which computes them all at once.

Their feature maps lie side by side as channels, (B, N * C, H, W): convolutions become grouped ones, norms get N times
the channels or groups, linear layers are one batched product, and what treats every channel by itself stays as it is.
So a layer is one large operation in place of N small ones, in the memory order that suits it; `torch.func.vmap` does
the same for any network, but moves the data before and after most layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StackedLayer(nn.Module):
    """N layers of one kind; parameters and buffers keep their names and have a dimension N in front."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Module, n: int) -> None:
        super().__init__()
        self.n = n
        for name, parameter in layer.named_parameters(recurse=False):
            self.register_parameter(name, nn.Parameter(repeated(parameter.detach(), n)))
        for name, buffer in layer.named_buffers(recurse=False):
            self.register_buffer(name, repeated(buffer, n))
        if layer.bias is None:
            self.register_parameter("bias", None)

    @property
    def of_channels(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias with the N layers' channels in one row."""
        return self.weight.flatten(0, 1), None if self.bias is None else self.bias.flatten()


class StackedConv(StackedLayer):
    """Convolutions, plain or transposed, as one with N times the groups."""

    def __init__(self, layer: nn.Conv2d | nn.ConvTranspose2d, n: int) -> None:
        super().__init__(layer, n)
        self.settings: dict[str, Any] = {
            "stride": layer.stride,
            "padding": layer.padding,
            "dilation": layer.dilation,
            "groups": layer.groups * n,
        }
        self.convolve: Callable[..., Tensor] = F.conv2d
        if isinstance(layer, nn.ConvTranspose2d):
            self.convolve = F.conv_transpose2d
            self.settings["output_padding"] = layer.output_padding

    def forward(self, x: Tensor) -> Tensor:
        """(B, N * C, H, W) to (B, N * D, H', W')."""
        return self.convolve(x, *self.of_channels, **self.settings)


class StackedLinear(StackedLayer):
    """Linear layers as one batched product."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, N * F) to (B, N * G)."""
        product = torch.bmm(x.unflatten(1, (self.n, -1)).transpose(0, 1), self.weight.transpose(1, 2))
        if self.bias is not None:
            product = product + self.bias[:, None]
        return product.transpose(0, 1).flatten(1)


class StackedGroupNorm(StackedLayer):
    """Group norms as one with N times the groups."""

    def __init__(self, layer: nn.GroupNorm, n: int) -> None:
        super().__init__(layer, n)
        self.groups, self.eps = layer.num_groups * n, layer.eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, N * C, H, W), normalised."""
        return F.group_norm(x, self.groups, *self.of_channels, self.eps)


class StackedBatchNorm(StackedLayer):
    """Batch norms as one with N times the channels."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, layer: nn.BatchNorm2d, n: int) -> None:
        super().__init__(layer, n)
        self.momentum, self.eps = cast(float, layer.momentum), layer.eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, N * C, H, W), normalised; in training mode the running statistics move."""
        if self.training:
            self.num_batches_tracked += 1
        mean, var = self.running_mean.flatten(), self.running_var.flatten()  # views, which are updated in place
        return F.batch_norm(x, mean, var, *self.of_channels, self.training, self.momentum, self.eps)


_STACKED: dict[type[nn.Module], type[StackedLayer]] = {
    nn.Conv2d: StackedConv, nn.ConvTranspose2d: StackedConv, nn.Linear: StackedLinear, nn.GroupNorm: StackedGroupNorm,
    nn.BatchNorm2d: StackedBatchNorm,
}  # fmt: skip


def stack(model: nn.Module, n: int) -> nn.Module | None:
    """N copies of `model` as one network for inputs (B, N * C, H, W), or None if it has a layer that does not stack.

    The new network's parameters and buffers have the model's names, with a leading dimension for the copies. Modules
    between the layers must treat all channels alike; that cannot be told from their code, so compare outputs before
    use.
    """
    layers = [module for module in model.modules() if _is_plain(module)]
    if len(layers) < sum(bool(module._parameters) for module in model.modules()):
        return None
    constants = dict(model.named_buffers()).keys() - model.state_dict().keys()
    # Where the copy comes upon a layer, it takes what stands for it, and copies none of its own.
    stacked = copy.deepcopy(model, {id(layer): _STACKED[type(layer)](layer, n) for layer in layers})
    for path in constants:  # such as the input's mean and deviation, (1, C, 1, 1)
        parent, _, name = path.rpartition(".")
        setattr(stacked.get_submodule(parent), name, stacked.get_buffer(path).repeat(1, n, 1, 1))
    return stacked


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is of a kind that stacks, with the usual settings."""
    usual = {"padding_mode": "zeros", "affine": True, "track_running_stats": True}
    known = type(layer) in _STACKED and getattr(layer, "momentum", 0.1) is not None
    return known and all(getattr(layer, name, value) == value for name, value in usual.items())


def repeated(tensor: Tensor, n: int) -> Tensor:
    """N copies (N, …) of a tensor, in plain memory order."""
    return tensor.expand(n, *tensor.shape).clone(memory_format=torch.contiguous_format)
